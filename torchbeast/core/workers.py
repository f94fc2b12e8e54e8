"""Worker processes: how they begin, and when they are given up."""

from __future__ import annotations

import ctypes
import signal
import sys
import time

from torchbeast.core.types import RunError

# A worker that dies this often in succession, each time within MIN_LIFE_S of its start, dies of it.
MAX_QUICK_DEATHS = 5
MIN_LIFE_S = 10.0


def end_with_parent() -> None:
    """Makes the kernel end this process when its parent dies (Linux; elsewhere look at getppid)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def begin_worker() -> None:
    """Makes a worker process end with its parent and leave a terminal's signals to the parent."""
    end_with_parent()
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Lives:
    """The starts and deaths of a number of worker processes that are replaced when they die."""

    def __init__(self, program: str, kind: str, count: int) -> None:
        """``program`` and ``kind`` are for messages: polybeast_env, server."""
        self._program = program
        self._kind = kind
        self._starts = [0] * count
        self._started_at = [0.0] * count
        self._quick_deaths = [0] * count

    def begin(self, index: int) -> int:
        """Worker ``index`` is about to start; returns how often it has been started before."""
        self._started_at[index] = time.monotonic()
        self._starts[index] += 1
        return self._starts[index] - 1

    def end(self, index: int, exit_code: int | None) -> None:
        """Worker ``index`` died and will be replaced. Raises RunError if that would not help."""
        quick = time.monotonic() - self._started_at[index] < MIN_LIFE_S
        self._quick_deaths[index] = self._quick_deaths[index] + 1 if quick else 0
        if self._quick_deaths[index] >= MAX_QUICK_DEATHS:
            raise RunError(
                f"{self._kind} {index} died {MAX_QUICK_DEATHS} times right after its start"
            )
        print(
            f"{self._program}: {self._kind} {index} died (exit code {exit_code}), restarting it",
            file=sys.stderr,
            flush=True,
        )
