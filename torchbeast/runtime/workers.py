"""Worker processes: how they begin, and when they are given up."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import faulthandler
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
import time
from multiprocessing.context import ForkServerContext
from typing import Any

from torchbeast.core.types import RunError

log = logging.getLogger("torchbeast")

# A worker that dies this often in succession, each time within MIN_LIFE_S of its start, dies of it.
MAX_QUICK_DEATHS = 5
MIN_LIFE_S = 10.0
# A fork server that is dying takes requests that it cannot serve.
MAX_START_ATTEMPTS = 20
# OPEN_MAX of macOS: what a process there may have.
MACOS_OPEN_FILES = 10240

# In a fork server and its children: the process id of the fork server.
_fork_server_pid: int | None = None


def end_with_parent() -> None:
    """Makes this process end when its parent dies.

    Where the kernel cannot do that it ends with the process that asked a fork server for it.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    elif (asker := multiprocessing.parent_process()) is not None:
        threading.Thread(target=lambda: (asker.join(), os._exit(1)), daemon=True).start()
    # The kernel says nothing of a parent that died before.
    if _fork_server_pid not in (None, os.getppid()):
        signal.raise_signal(signal.SIGTERM)


def begin_fork_server() -> None:
    """Makes a fork server end with the process that started it; its children end with it.

    They are in a new session: a signal to the terminal's processes, or to all of a job, reaches
    only the learner, which then ends them in order.
    """
    global _fork_server_pid
    os.setsid()
    end_with_parent()
    _fork_server_pid = os.getpid()


def raise_file_limit() -> None:
    """Lets this process have as many open files as the system allows; a connection is one, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses its own hard limit, which is infinite.
    most = min(hard, max(soft, MACOS_OPEN_FILES)) if sys.platform == "darwin" else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def seed_generators(seed: int | None) -> None:
    """Seeds the global generators of Python and NumPy, from which custom environments may draw.

    ``seed`` is less than 2**32; None for one from the system.
    """
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)


def begin_worker(niceness: int = 0, seed: int | None = None) -> None:
    """Makes a worker process end with its parent and leave a terminal's signals to the parent.

    Forks inherit one random state, so each worker seeds its generators. SIGABRT shows where each
    thread is.

    Args:
        niceness: how much lower than the parent's its priority is.
        seed: as of :func:`seed_generators`.
    """
    seed_generators(seed)
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable()
    end_with_parent()
    os.nice(niceness)


def fork_context(*modules: str) -> ForkServerContext:
    """Makes a ``multiprocessing`` context whose children are forks of a fresh process with
    ``modules``.

    That process has no threads, and ends with this one, however this one ends. Each child has pipes
    to this process.
    """
    raise_file_limit()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torchbeast.runtime.fork_server", *modules])
    return context


def start_worker(process: Any) -> None:
    """Starts a process of :func:`fork_context`; tries again while the fork server is replaced."""
    for _ in range(MAX_START_ATTEMPTS - 1):
        with contextlib.suppress(EOFError, OSError):
            process.start()
            return
        time.sleep(0.1)
    process.start()


class Restarts:
    """Counts the starts and deaths of worker processes that are replaced when they die."""

    def __init__(self, kind: str, count: int) -> None:
        """``kind`` is for messages: server, actor."""
        self._kind = kind
        self._starts = [0] * count
        self._started_at = [0.0] * count
        self._quick_deaths = [0] * count

    def note_start(self, index: int) -> int:
        """Notes that worker ``index`` is about to start.

        Returns how often it was started before.
        """
        self._started_at[index] = time.monotonic()
        self._starts[index] += 1
        return self._starts[index] - 1

    def note_end(self, index: int, reason: str, hung_s: float = 0.0) -> None:
        """Notes that worker ``index`` died and will be replaced.

        Args:
            index: of the worker.
            reason: why, as ``died (exit code 1)``.
            hung_s: how long it had hung.

        Raises:
            RunError: replacing it would not help.
        """
        quick = time.monotonic() - self._started_at[index] - hung_s < MIN_LIFE_S
        self._quick_deaths[index] = self._quick_deaths[index] + 1 if quick else 0
        if self._quick_deaths[index] >= MAX_QUICK_DEATHS:
            raise RunError(
                f"{self._kind} {index} {reason}, {MAX_QUICK_DEATHS} times right after its start"
            )
        log.warning("%s %s %s, restarting it", self._kind, index, reason)


class FailureBudget:
    """Counts failures within a time: a limited number is forgiven, and forgotten after a while.

    For MonoBeast. ``libtorchbeast/csrc/pool/failure_budget.h`` is PolyBeast's.
    """

    def __init__(self, limit: int, window_s: float) -> None:
        """``limit``: the failure within ``window_s`` seconds that is not forgiven."""
        self._limit = limit
        self._window_s = window_s
        self._failures: collections.deque[float] = collections.deque()

    def note(self, subject: str, text: str) -> None:
        """Notes a failure and logs it.

        Args:
            subject: what failed, for messages.
            text: the traceback.

        Raises:
            RunError: it is one too many.
        """
        now = time.monotonic()
        self._failures.append(now)
        while now - self._failures[0] > self._window_s:
            self._failures.popleft()
        count, within = len(self._failures), f"within {self._window_s:g} s"
        if count >= self._limit:
            log.error("%s failed:\n%s", subject, text)
            raise RunError(f"{subject} failed {count} times {within}: {text.splitlines()[-1]}")
        restarting = f"restarting it ({count} of {self._limit} failures {within})"
        log.error("%s failed, %s:\n%s", subject, restarting, text)
