"""How several threads learn from one batch together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Part = TypeVar("Part")


class LearnerClosed(Exception):  # noqa: N818
    """Nothing more is learned: the steps are done, the learner was closed, or a thread failed."""


class BatchGate(Generic[Part]):
    """Admits threads with parts of one batch, until the batch is whole and has been learned from.

    A thread enters :meth:`part`, computes, and hands its result to :meth:`deliver`. The thread that
    delivers the last part learns from the sum of all, inside :meth:`update`. No part of the next
    batch is admitted before that has ended. A thread that fails closes the gate: its batch will
    never be whole.
    """

    def __init__(self, batch_size: int, join: Callable[[Part, Part], Part]) -> None:
        """``batch_size``: rollouts in a batch; all parts have the same number of them, a divisor.
        ``join``: adds up two parts.
        """
        self._batch_size = batch_size
        self._join = join
        # Re-entrant: what is called inside update() may use without_update().
        self._turn = threading.Condition()
        self._admitted = 0  # Rollouts of the current batch.
        self._delivered = 0
        self._sum: Part | None = None
        self._closed = False

    @contextlib.contextmanager
    def part(self, num_rollouts: int) -> Iterator[None]:
        """Makes a context in which a part is computed; waits while a whole batch is learned from.

        Raises:
            LearnerClosed: the gate was closed.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._admitted < self._batch_size or self._closed)
            if self._closed:
                raise LearnerClosed
            self._admitted += num_rollouts
        try:
            yield
        except BaseException:
            self.close()
            raise

    def deliver(self, part: Part, num_rollouts: int) -> Part | None:
        """Adds a part. Returns the whole batch to the thread that completes it, else None."""
        with self._turn:
            self._sum = part if self._sum is None else self._join(self._sum, part)
            self._delivered += num_rollouts
            return self._sum if self._delivered >= self._batch_size else None

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """Makes a context in which the whole batch is learned from; the next one is admitted at
        its end.

        Raises:
            LearnerClosed: the gate was closed.
        """
        with self._turn:
            if self._closed:  # The run may be saved already.
                raise LearnerClosed
            yield
            self._admitted, self._delivered, self._sum = 0, 0, None
            self._turn.notify_all()

    def without_update(self) -> threading.Condition:
        """Returns a context in which no update is made."""
        return self._turn

    def close(self) -> None:
        """Wakes threads that wait for their turn; what they have is not learned from."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
