"""The kernel's alarm clock, which ends a process whose environment hangs.

A process that hangs cannot say so, and code that holds Python's lock stops all of its threads. The
kernel's signal ends it all the same, and shows where each thread is.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
from collections.abc import Iterator
from typing import Any

# The kernel's timer takes no more than the seconds that a time_t holds, which may have 32 bits.
LONGEST_S = 1e9


def print_tracebacks() -> None:
    """Has the alarm print the traceback of every thread before it ends this process."""
    faulthandler.register(signal.SIGALRM, chain=True)


def set_alarm(seconds: float) -> None:
    """Ends this process after ``seconds``, unless the alarm is set anew before. 0: no alarm."""
    signal.setitimer(signal.ITIMER_REAL, min(seconds, LONGEST_S))


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Makes a context that ends this process if it lasts longer than ``seconds``."""
    set_alarm(seconds)
    try:
        yield
    finally:
        set_alarm(0.0)


def describe_end(exit_code: int | None, seconds: float) -> str:
    """Returns why a process ended whose alarm was after ``seconds``."""
    if exit_code == -signal.SIGALRM:
        return f"hung for {seconds:g} s"
    if exit_code is not None and exit_code < 0:
        return f"was killed by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    return f"ended with exit code {exit_code}"


class Watched:
    """An environment, each call of which ends this process if it lasts too long."""

    def __init__(self, env: Any, timeout_s: float) -> None:
        self._env = env
        self._timeout_s = timeout_s

    def step(self, action: Any) -> Any:
        with alarm(self._timeout_s):
            return self._env.step(action)

    def reset(self, **options: Any) -> Any:
        with alarm(self._timeout_s):
            return self._env.reset(**options)

    def close(self) -> None:
        with alarm(self._timeout_s):
            self._env.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
