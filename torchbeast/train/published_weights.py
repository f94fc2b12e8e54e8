"""The learner's weights on their way to inference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchbeast.runtime.devices import record_event, wait_event


class PublishedWeights:
    """Copies of an agent for inference: readers never see half of an update, and never wait.

    Two copies more than there are readers: there is always one that nobody reads and that is not
    the newest, and the learner writes there.
    """

    def __init__(self, make_copy: Callable[[], Any], num_readers: int) -> None:
        self._copies = [make_copy() for _ in range(num_readers + 2)]
        self._readers = [0] * len(self._copies)
        self._versions = [0] * len(self._copies)
        # On a GPU publish() returns before the copy is complete: readers wait for these events.
        self._copied: list[Any] = [None] * len(self._copies)
        self._newest = 0
        self._published = threading.Condition()

    @contextmanager
    def reading(self) -> Iterator[tuple[Any, int]]:
        """Yields the newest copy and its version, which stay as they are inside the block.

        On a GPU kernels that read the copy must have ended at the block's end.
        """
        with self._published:
            index = self._newest
            self._readers[index] += 1
        try:
            copy = self._copies[index]
            wait_event(self._copied[index], copy)
            yield copy, self._versions[index]
        finally:
            with self._published:
                self._readers[index] -= 1

    @torch.no_grad()
    def publish(self, agent: Any, version: int) -> None:
        """Makes the weights of ``agent`` the newest. One thread at a time."""
        with self._published:
            index = next(i for i, n in enumerate(self._readers) if n == 0 and i != self._newest)
        targets = self._copies[index].state_dict()
        for name, value in agent.state_dict().items():
            targets[name].copy_(value)
        # On the copy's GPU, which may be another one: its stream has to wait for the agent's.
        copied = record_event(self._copies[index])
        with self._published:
            self._copied[index] = copied
            self._versions[index] = version
            self._newest = index
            self._published.notify_all()

    def wait_for(self, version: int, timeout: float) -> bool:
        """Waits until ``version`` or a later one is published; False after ``timeout`` seconds."""
        with self._published:
            return self._published.wait_for(
                lambda: self._versions[self._newest] >= version, timeout
            )
