"""Cores and threads: what this machine has, how it is dealt out, how threads end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torchbeast.core.types import RunError
from torchbeast.runtime.text import counted

CGROUP = Path("/sys/fs/cgroup")


def available_cores(num_processes: int = 1) -> int:
    """Returns the cores this process may use: its affinity, limited by the container's quota.

    ``num_processes`` share them: this one may use its part, at least one core.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    # The files of cgroup v2 and v1. Without a quota they hold max and -1; elsewhere there are none.
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            quota, period = map(int, " ".join((CGROUP / n).read_text() for n in names).split())
            if quota > 0:
                cores = min(cores, max(1, round(quota / period)))
    return max(1, cores // num_processes)


class ThreadPlan(NamedTuple):
    """Threads of a run; MonoBeast has no inference threads.

    >>> print(ThreadPlan(learner_threads=2, inference_threads=1))
    1 inference thread, 2 learner threads
    """

    learner_threads: int
    inference_threads: int

    def __str__(self) -> str:
        parts = {
            "inference thread": self.inference_threads,
            "learner thread": self.learner_threads,
        }
        return ", ".join(counted(count, name) for name, count in parts.items() if count)


def name_thread(name: str) -> None:
    """Names the calling thread for tools like ``top -H`` (Linux; 15 characters are kept)."""
    if sys.platform == "linux":
        pr_set_name = 15
        ctypes.CDLL(None).prctl(pr_set_name, name.encode()[:15])


class WorkThread(threading.Thread):
    """A thread of :class:`Threads`."""


def work_threads_left() -> bool:
    """Returns whether a thread of any :class:`Threads` still runs."""
    return any(isinstance(thread, WorkThread) for thread in threading.enumerate())


class Threads:
    """Threads whose first failure ends the run instead of passing unseen."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.changed = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, function: Callable[..., None], *args: Any) -> None:
        """Starts a daemon thread that runs ``function(*args)``."""

        def run() -> None:
            name_thread(name)
            try:
                function(*args)
            except BaseException as error:
                if self.error is None:
                    self.error = error
            finally:
                self.changed.set()

        # Daemons: a thread inside a stuck call must not keep the program from ending.
        thread = WorkThread(target=run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise RunError(f"{error}; more threads may be allowed: ulimit -u") from error
        self._threads.append(thread)

    def join(self, timeout: float) -> None:
        """Waits for all threads, together at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
