"""Signals that ask a program to stop."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


class StopRequestedError(Exception):
    """A signal asks a long computation to stop: see :meth:`StopSignals.check`."""


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a request to stop. A context manager.

    Inside it the first signal is kept in ``received``, at which the program looks now and then.
    Nothing is raised, because C++ code that calls Python cannot pass an exception on. Nothing is
    called, because the main thread may hold any lock, such as that of an Event. Enter it when there
    is something to save: until then a signal ends the process, as it ends any other.

    Further signals change nothing (``timeout`` of coreutils sends two), except for an impatient
    user's: Ctrl-C more than ``REPEAT_S`` seconds after the first signal ends the program at once.
    """

    REPEAT_S = 2.0

    HINT = f"Ctrl-C again after {REPEAT_S:.0f} s ends the program at once"

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        self._previous: dict[int, Any] = {}

    def check(self) -> None:
        """Raises StopRequestedError if a signal has come."""
        if self.received is not None:
            raise StopRequestedError

    def __enter__(self) -> StopSignals:
        signums = [signal.SIGINT, signal.SIGTERM]
        # nohup has it ignored: that is to stay.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signums.append(signal.SIGHUP)
        for signum in signums:
            self._previous[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous.clear()

    def _handle(self, signum: int, _frame: Any) -> None:
        now = time.monotonic()
        if self.received is not None:
            if signum == signal.SIGINT and now - self._received_at > self.REPEAT_S:
                os._exit(128 + signum)
            return
        self.received, self._received_at = signum, now
