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
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.context import ForkServerContext
from typing import Any

from torchbeast.core.types import RunError
from torchbeast.runtime import alarm
from torchbeast.runtime.text import typed_line

log = logging.getLogger("torchbeast")

# A worker, or an environment in the actor pool, that fails so often within so many seconds ends the
# run.
MAX_FAILURES = 5
FAILURE_WINDOW_S = 600.0
# How long workers get to close their environments.
CLOSING_S = 1.0
# A fork server that is dying takes requests that it cannot serve.
MAX_START_ATTEMPTS = 20
# OPEN_MAX of macOS: what a process there may have.
MACOS_OPEN_FILES = 10240

# What the fork server of this process imports.
_forked_modules = ["torchbeast.runtime.fork_server"]
# In a fork server and its children: the process id of the fork server.
_fork_server_pid: int | None = None


def end_with_parent() -> None:
    """Makes this process end when its parent dies; on Linux with the parent's thread that started
    it.

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
    """Makes a fork server end as :func:`end_with_parent` does; its children end with it.

    They are in a new session: a signal to the terminal's processes reaches only the learner, which
    then ends them in order.
    """
    global _fork_server_pid
    os.setsid()
    end_with_parent()
    _fork_server_pid = os.getpid()


def raise_file_limit() -> None:
    """Lets this process have as many open files as the system allows.

    Connections to servers and pipes to child processes are open files, too.
    """
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

    Forks inherit one random state, so each worker seeds its generators.

    Args:
        niceness: how much lower than the parent's its priority is.
    """
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(signum, signal.SIG_DFL)
    # From interrupt_blocked(): what an environment starts may want it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    seed_generators(seed)
    faulthandler.enable()
    alarm.print_tracebacks()
    end_with_parent()
    os.nice(niceness)


@contextlib.contextmanager
def interrupt_blocked() -> Iterator[None]:
    """Keeps Ctrl-C from processes that start inside: they inherit the thread's mask.

    Else Ctrl-C while they import would have each print a traceback.
    """
    resource_tracker.ensure_running()  # Its start would end this.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def fork_context(*modules: str) -> ForkServerContext:
    """Makes a ``multiprocessing`` context whose children are forks of a fresh process with
    ``modules``.

    A program has one such process, with the modules of all calls before its start. It has no
    threads. The first child starts it, unless ``forkserver.ensure_running()`` did. On Linux it ends
    with the thread that started it, so that thread must outlive the children.
    """
    _forked_modules.extend(module for module in modules if module not in _forked_modules)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_forked_modules)
    return context


def start_worker(process: Any) -> None:
    """Starts a child process, which Ctrl-C does not reach before :func:`begin_worker`.

    Tries again while a fork server is replaced.

    Raises:
        RunError: it cannot be started.
    """
    for _ in range(MAX_START_ATTEMPTS):
        try:
            with interrupt_blocked():  # It may start the fork server.
                process.start()
            return
        except (EOFError, OSError) as error:
            reason = typed_line(error)
        time.sleep(0.1)
    raise RunError(
        f"no process can be started ({reason}); more may be allowed: ulimit -u, ulimit -n"
    )


def start_with_pipe(
    context: Any, target: Callable[..., None], *args: Any, **options: Any
) -> tuple[Any, Any]:
    """Starts a child process that runs ``target(*args, pipe)``; ``options`` are those of Process.

    Returns the process and our end of the pipe, which ends with the process; both may send. Raises
    RunError if it cannot be started, and OSError if there can be no pipe.
    """
    ours, theirs = context.Pipe()
    with contextlib.ExitStack() as failing, theirs:  # Ours ends when all others are closed.
        failing.enter_context(ours)
        process = context.Process(target=target, args=(*args, theirs), **options)
        start_worker(process)
        failing.pop_all()
    return process, ours


def end_workers(processes: Iterable[Any]) -> None:
    """Gives worker processes ``CLOSING_S`` seconds together to end; kills those that have not."""
    started = [process for process in processes if process is not None]
    deadline = time.monotonic() + CLOSING_S
    for process in started:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
    for process in started:
        process.join()


class Failures:
    """Counts the failures of workers that are replaced. A few are forgiven, and forgotten."""

    def __init__(self, count: int, timeout_s: float) -> None:
        """Makes the counts of ``count`` workers, whose hangs last ``timeout_s`` seconds."""
        # Else failures that take long to notice would be forgotten before there are too many.
        self._window_s = FAILURE_WINDOW_S + MAX_FAILURES * timeout_s
        self._failures: list[collections.deque[float]] = [collections.deque() for _ in range(count)]

    def note(self, index: int, name: str, reason: str, traceback: str = "") -> None:
        """Logs a failure of a worker that is to be replaced.

        Args:
            name: of the worker, for messages.
            reason: what it did, such as ``ended with exit code 1``.

        Raises:
            RunError: it failed too often. One line.
        """
        now, failures = time.monotonic(), self._failures[index]
        failures.append(now)
        while now - failures[0] > self._window_s:
            failures.popleft()
        count, within = len(failures), f"within {self._window_s:g} s"
        last = f": {traceback.splitlines()[-1]}" if traceback else ""
        traceback = f":\n{traceback}" if traceback else ""
        if count >= MAX_FAILURES:
            log.error("%s %s%s", name, reason, traceback)
            raise RunError(f"{name} {reason}, {count} times {within}{last}")
        restarting = f"restarting it ({count} of {MAX_FAILURES} failures {within})"
        log.error("%s %s, %s%s", name, reason, restarting, traceback)
