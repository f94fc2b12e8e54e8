"""How several threads learn from one batch together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Result = TypeVar("Result")


class LearnerClosed(Exception):  # noqa: N818
    """There is nothing more to learn: the steps are done, or the learner was closed."""


class BatchGate(Generic[Result]):
    """Admits threads with parts of one batch, until the batch is whole and has been learned from.

    Each thread enters :meth:`part`, computes, and hands its result to :meth:`deliver`. The thread
    that delivers the last part learns from all of them; until then no part of the next batch is
    admitted. A thread that fails wakes all others, which fail, too.
    """

    def __init__(
        self,
        batch_size: int,
        join: Callable[[Result, Result], Result],
        share: Callable[[Result], Result],
        learn: Callable[[Result], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Makes an open gate.

        Args:
            batch_size: rollouts in a batch.
            join: combines the results of two parts.
            share: adds to the combined results of a whole batch those of other processes. It may
                wait for them long, and changes nothing else.
            learn: takes the combined results of a whole batch. No other thread is inside then.
            is_over: whether there is nothing more to learn.
        """
        self._batch_size = batch_size
        self._join = join
        self._share = share
        self._learn = learn
        self._is_over = is_over
        self._turn = threading.Condition()
        self._admitted = 0  # Rollouts of the current batch.
        self._delivered = 0
        self._result: Result | None = None
        self._failed: BaseException | None = None
        self._closed = False

    @contextlib.contextmanager
    def part(self, num_rollouts: int) -> Iterator[None]:
        """Makes a context in which a part of the current batch is computed and delivered.

        Waits while a whole batch is being learned from.

        Raises:
            LearnerClosed: there is nothing more to learn.
            RuntimeError: another thread failed.
        """
        self._enter(num_rollouts)
        try:
            yield
        except BaseException as error:
            with self._turn:
                self._failed = error
                self._turn.notify_all()
            raise

    def deliver(self, result: Result, num_rollouts: int) -> None:
        """Adds a part's result. With the last part, learns from the batch."""
        with self._turn:
            self._result = result if self._result is None else self._join(self._result, result)
            self._delivered += num_rollouts
            if self._delivered < self._batch_size:
                return
            whole = self._result
        # Without the lock, so that the run can be saved meanwhile. Nobody else is inside.
        whole = self._share(whole)
        with self._turn:
            self._learn(whole)
            self._admitted, self._delivered, self._result = 0, 0, None
            self._turn.notify_all()

    @contextlib.contextmanager
    def between_batches(self) -> Iterator[None]:
        """Makes a context in which no batch is being learned from."""
        with self._turn:
            yield

    def close(self) -> None:
        """Wakes threads that wait for their turn; what they have is not learned from."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _enter(self, num_rollouts: int) -> None:
        with self._turn:
            while self._admitted >= self._batch_size and not self._closed and not self._failed:
                self._turn.wait()
            if self._failed:
                raise RuntimeError("another learner thread failed") from self._failed
            if self._closed or self._is_over():
                raise LearnerClosed
            self._admitted += num_rollouts
