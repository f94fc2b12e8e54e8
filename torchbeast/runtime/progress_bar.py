"""How far a long task is, and how long it will still take."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TimeRemainingColumn,
)

from torchbeast.runtime.text import human_time

# Seconds between updates in a file or a pipe, in which each of them stays.
PIPE_INTERVAL_S = 30.0

T = TypeVar("T")


def track(items: Iterable[T], *, total: int, unit: str) -> Iterator[T]:
    """Yields ``items`` and shows on stderr how many are done.

    A terminal has a bar. A file or a pipe gets a line every half a minute.

    Args:
        total: how many items there are, or may be.
        unit: the name of an item, in the plural.
    """
    console = Console(stderr=True, force_jupyter=False)
    if sys.stderr.isatty() and not console.is_dumb_terminal:
        bar = Progress(
            SpinnerColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            "{task.description}",
            TimeRemainingColumn(),
            console=console,
            redirect_stdout=sys.stdout.isatty(),
        )
        with bar:
            console.show_cursor(True)  # Nobody would show it again after Ctrl-C.
            yield from bar.track(items, total=total, description=unit)
        return
    start = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - last >= PIPE_INTERVAL_S:
            left = (now - start) / done * (total - done)
            print(f"{done} of {total} {unit}, {human_time(left)} left", file=sys.stderr)
            last = now
        yield item
