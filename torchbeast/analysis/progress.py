"""How far an analysis is, and how long it will still take."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

# Seconds between updates in a file or a pipe, in which each of them stays.
PIPE_INTERVAL = 30.0


def track(items: Iterable[Any] | None = None, **options: Any) -> tqdm[Any]:
    """Returns a progress bar on stderr that advances with ``items``.

    A terminal shows it as soon as an item is done, so an error before that is a line of its own.
    Into a file or a pipe it is written every half a minute.

    Args:
        items: what to iterate over; None if the caller counts.
        options: of tqdm, such as ``total``, ``desc`` and ``unit``.
    """
    interval = 0.1 if sys.stderr.isatty() else PIPE_INTERVAL
    return tqdm(items, delay=interval, mininterval=interval, maxinterval=interval, **options)
