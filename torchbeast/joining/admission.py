"""Bounds on the connections that come in before it is known who they are from."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Bounds(NamedTuple):
    """What an address, and all addresses together, may do."""

    burst: int = 256
    """Connections of one address at once: a host with many servers opens as many."""
    per_second: float = 20.0
    """Connections of one address from then on."""
    max_unknown: int = 256
    """Connections of all addresses that have not yet sent their first message."""
    max_addresses: int = 4096
    """Addresses that are remembered."""


class Admission:
    """Counts connections by address, with a bucket of tokens for each."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` is the present time in seconds."""
        self._bounds = bounds
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # Tokens, and when they were counted.
        self._unknown = 0

    def admits(self, address: str) -> bool:
        """Whether a further connection of an address may come in. Counts it."""
        now = self._clock()
        tokens = self._tokens(address, now)
        if tokens < 1 or self._unknown >= self._bounds.max_unknown:
            return False
        if len(self._buckets) >= self._bounds.max_addresses:
            full = self._bounds.burst
            self._buckets = {a: b for a, b in self._buckets.items() if self._tokens(a, now) < full}
        if len(self._buckets) >= self._bounds.max_addresses and address not in self._buckets:
            return False
        self._buckets[address] = (tokens - 1, now)
        return True

    @contextlib.contextmanager
    def unknown(self) -> Iterator[None]:
        """Makes a context in which a connection has not yet sent its first message."""
        self._unknown += 1
        try:
            yield
        finally:
            self._unknown -= 1

    def _tokens(self, address: str, now: float) -> float:
        tokens, then = self._buckets.get(address, (float(self._bounds.burst), now))
        return min(self._bounds.burst, tokens + (now - then) * self._bounds.per_second)
