"""Noticing worker processes whose environments hang.

A process that hangs cannot say so, and code that holds Python's lock stops all of its threads. So
each worker notes in shared memory when it entered its environment, and its parent looks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

# How long a hung process gets to show where it hangs.
TRACEBACK_S = 1.0
# After so long without a look the watching process was stopped.
PAUSE_S = 20.0


class PauseDetector:
    """Knows when this process last went on after it had been stopped, such as by Ctrl-Z.

    The processes that it watches were stopped, too: that is no hang.
    """

    def __init__(self) -> None:
        self._looked = self._awake_since = time.monotonic()

    def awake_since(self) -> float:
        """Returns the time.monotonic() of the last start. To be called every few seconds."""
        now = time.monotonic()
        if now - self._looked > PAUSE_S:
            self._awake_since = now
        self._looked = now
        return self._awake_since


class Watchdog:
    """Notes when each of some workers entered its environment. Can be sent to child processes."""

    def __init__(self, context: Any, count: int, timeout_s: float) -> None:
        """Makes a watchdog of workers that are all outside.

        Args:
            context: the ``multiprocessing`` context that starts the workers.
            count: how many workers there are.
            timeout_s: seconds after which a call counts as hung.
        """
        self.timeout_s = timeout_s
        self._entered = context.RawArray("d", count)  # By time.monotonic; 0: outside.
        self._pauses = PauseDetector()

    @contextlib.contextmanager
    def inside(self, index: int) -> Iterator[None]:
        """Makes a context in which worker ``index`` is in its environment."""
        self._entered[index] = time.monotonic()
        try:
            yield
        finally:
            self._entered[index] = 0.0

    def beat(self, index: int) -> None:
        """Restarts the timeout of worker ``index``, which is inside."""
        self._entered[index] = time.monotonic()

    def watch(self, index: int, env: Any) -> Any:
        """Returns ``env``, with worker ``index`` noted while it is inside."""
        return _Watched(env, self, index)

    def is_hung(self, index: int) -> bool:
        """Whether worker ``index`` has been inside for longer than ``timeout_s``.

        To be called every few seconds.
        """
        awake_since, entered = self._pauses.awake_since(), self._entered[index]
        return entered > 0 and time.monotonic() - max(entered, awake_since) > self.timeout_s

    def end(self, process: Any) -> None:
        """Ends a hung worker, a ``multiprocessing`` process, with a traceback.

        :func:`torchbeast.runtime.workers.begin_worker` prepared it for that.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGABRT)
        process.join(TRACEBACK_S)
        process.kill()
        process.join()

    def explain(self, index: int, exit_code: int | None) -> tuple[str, float]:
        """Returns why worker ``index`` ended, and how long it had hung; for :class:`Restarts`.

        Forgets it.
        """
        hung, self._entered[index] = self.is_hung(index), 0.0
        if hung:
            return f"hung in its environment for {self.timeout_s:g} s", self.timeout_s
        return f"died (exit code {exit_code})", 0.0


class _Watched:
    """An environment whose calls are noted while they last."""

    def __init__(self, env: Any, watchdog: Watchdog, index: int) -> None:
        self._env = env
        self._watchdog = watchdog
        self._index = index

    def step(self, action: Any) -> Any:
        with self._watchdog.inside(self._index):
            return self._env.step(action)

    def reset(self, **options: Any) -> Any:
        with self._watchdog.inside(self._index):
            return self._env.reset(**options)

    def close(self) -> None:
        with self._watchdog.inside(self._index):
            self._env.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
