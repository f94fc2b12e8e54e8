"""One host at the gateway, from its lease to its end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from torchbeast.joining.channel import Channel, TunnelEnd
from torchbeast.joining.messages import Dial, Lease, Leave, MessageError, Ping, Ready
from torchbeast.runtime.servers import server_address

# The actor pool has one connection to a place, and perhaps some that are about to close.
MAX_TUNNELS_PER_PLACE = 4


class Timing(NamedTuple):
    """How long the gateway and a host wait for each other, in seconds."""

    hello_s: float = 10.0
    """For the handshake of TLS, and for the first message after it."""
    start_s: float = 300.0
    """For a host that measures its games, or starts its servers."""
    ping_s: float = 5.0
    """Between two pings of a lease."""
    silence_s: float = 30.0
    """Without a message, until a lease ends."""
    look_s: float = 5.0
    """Between two looks at a file of addresses, and at each server of it that is away."""


class PlaceSocket:
    """The socket of a place while somebody fills it. The actor pool connects to it."""

    def __init__(self, basename: str, place: int, dial: Callable[[TunnelEnd], None]) -> None:
        """Opens nothing yet.

        Args:
            basename: of the sockets of all places.
            place: the number of the place.
            dial: called with each connection of the actor pool, to connect it with a server.
        """
        self._path = server_address(basename, place).removeprefix("unix:")
        self._dial = dial
        self._ends: list[TunnelEnd] = []
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Begins to listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _PoolEnd(self._accept), self._path)

    def close(self) -> None:
        """Closes the socket and all connections at once: a server that is away from now on."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        for end in self._ends:
            end.abort()

    def _accept(self, end: TunnelEnd) -> None:
        self._ends = [one for one in self._ends if not one.is_lost]
        if len(self._ends) >= MAX_TUNNELS_PER_PLACE:
            end.abort()
            return
        self._ends.append(end)
        self._dial(end)


class Tenancy:
    """Keeps the sockets of a host's places, and connects them with the host."""

    def __init__(
        self, channel: Channel, lease: Lease, basename: str, timing: Timing, dials: dict[str, Any]
    ) -> None:
        """Opens nothing yet.

        Args:
            channel: the control connection of the host.
            lease: what it fills.
            basename: of the sockets to which the actor pool connects.
            timing: see there.
            dials: the connections of the actor pool that wait for the host, by token. Shared by
                all tenancies.
        """
        self._channel = channel
        self._timing = timing
        self._dials = dials
        self._is_open = False
        self._sockets = [
            PlaceSocket(basename, place.number, functools.partial(self._dial, place.number))
            for place in lease.places
        ]

    async def run(self, on_ready: Callable[[], None]) -> tuple[str, str]:
        """Serves the host until it is gone.

        Args:
            on_ready: called when its servers listen.

        Returns:
            ``left`` or ``lost``, and why.
        """
        pinger = asyncio.ensure_future(send_pings(self._channel, self._timing.ping_s))
        try:
            return await self._receive(on_ready)
        except TimeoutError as error:
            return "lost", str(error)
        except OSError:
            return "lost", "its connection broke"
        except MessageError as error:
            return "lost", f"it broke the protocol: {error}"
        finally:
            pinger.cancel()
            self.close()

    async def _receive(self, on_ready: Callable[[], None]) -> tuple[str, str]:
        loop = asyncio.get_running_loop()
        start_until = loop.time() + self._timing.start_s
        while True:
            message = await self._channel.receive(self._timing.silence_s)
            if isinstance(message, Leave):
                return "left", ""
            if isinstance(message, Ready) and not self._is_open:
                self._is_open = True
                try:
                    for place_socket in self._sockets:
                        await place_socket.open()
                except OSError as error:  # No file descriptor is left, for example.
                    return "lost", f"its places cannot be opened: {error.strerror or error}"
                on_ready()
            elif not isinstance(message, Ping):
                raise MessageError("an unexpected message")
            if not self._is_open and loop.time() > start_until:
                raise TimeoutError(f"its servers did not start within {self._timing.start_s:g} s")

    def say_goodbye(self) -> None:
        """Tells the host that the learner ends."""
        self._channel.send(Leave())
        self._channel.close()

    def close(self) -> None:
        """Closes everything at once. The places are servers that are away from now on."""
        for place_socket in self._sockets:
            place_socket.close()
        self._channel.close()

    def _dial(self, place: int, end: TunnelEnd) -> None:
        """Asks the host to connect to its server of a place, to which the actor pool connected."""
        token = secrets.token_hex(16)
        self._dials[token] = end
        self._channel.send(Dial(place, token))
        loop = asyncio.get_running_loop()
        loop.call_later(self._timing.hello_s, self._expire, token)

    def _expire(self, token: str) -> None:
        end = self._dials.pop(token, None)
        if end is not None:
            end.abort()


class _PoolEnd(TunnelEnd):
    """A connection of the actor pool."""

    def __init__(self, on_made: Callable[[TunnelEnd], None]) -> None:
        super().__init__()
        self._on_made = on_made

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._on_made(self)


async def send_pings(channel: Channel, interval_s: float) -> None:
    """Sends a ping now and then, until it is cancelled."""
    while True:
        channel.send(Ping())
        await asyncio.sleep(interval_s)
