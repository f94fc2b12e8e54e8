"""What the kernel says about running processes and their threads. Linux only."""

from __future__ import annotations

import collections
import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """``root`` and all its descendants."""
    children = collections.defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        _, fields = _stat(path)
        if fields:
            children[int(fields[1])].append(int(path.parent.name))
    tree = [root]
    for process in tree:
        tree += children[process]
    return tree


def cpu_seconds(process: int | None) -> float:
    """User and system time so far of a process; 0 if it is gone."""
    _, fields = _stat(Path(f"/proc/{process}/stat"))
    return sum(map(int, fields[11:13])) / TICKS_PER_SECOND


def thread_seconds(process: int) -> dict[str, float]:
    """CPU seconds so far of a process's threads, by name."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for task in Path(f"/proc/{process}/task").glob("*"):
        name, fields = _stat(task / "stat")
        if fields:
            seconds[name] += (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
    return seconds


def _stat(path: Path) -> tuple[str, list[str]]:
    """The name, and the fields from the state on; none if the process is gone."""
    try:
        # The name may hold spaces and brackets.
        name, _, fields = path.read_text().partition("(")[2].rpartition(")")
    except OSError:
        return "", []
    return name, fields.split()
