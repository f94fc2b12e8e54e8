"""Connections: messages over one, and bytes copied between two."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from torchbeast.joining.messages import MAX_LINE_BYTES, MessageError, decode, encode

T = TypeVar("T")

# Of messages that nobody has received yet. More than a lease with its first dials.
MAX_BUFFER_BYTES = 4 * MAX_LINE_BYTES
# Bytes that may wait to be written before a connection counts as stuck: pings are small.
MAX_UNSENT_BYTES = 1 << 20


class Channel(asyncio.Protocol):
    """Sends and receives messages over a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._is_lost = False
        self._error: Exception | None = None
        self._transport: Any = None
        self._successor: TunnelEnd | None = None

    async def receive(self, timeout: float) -> Any:
        """Waits for the next message.

        Args:
            timeout: seconds.

        Raises:
            ConnectionError: the connection is gone.
            MessageError: the other side sent something else.
            TimeoutError: nothing came in time.
        """
        return decode(await within(timeout, self._receive_line(), f"no word for {timeout:g} s"))

    async def _receive_line(self) -> bytes:
        while (end := self._buffer.find(b"\n", 0, MAX_LINE_BYTES)) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise MessageError("a line is too long")
            if self._is_lost:
                raise self._error or ConnectionResetError("it closed the connection")
            self._changed.clear()
            await self._changed.wait()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None and not self._is_lost

    def send(self, message: NamedTuple) -> None:
        """Sends a message; does not wait until it has left. To a lost connection sends nothing."""
        if self._is_lost:
            return
        with contextlib.suppress(AttributeError):  # See _pause().
            if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                self._transport.abort()
            else:
                self._transport.write(encode(message))

    def become(self, end: TunnelEnd) -> None:
        """Hands the connection over to a tunnel, with all bytes that were not received."""
        self._successor = end
        self._transport.set_protocol(end)
        end.connection_made(self._transport)
        if self._is_lost:
            end.connection_lost(None)
        elif self._buffer:
            end.data_received(bytes(self._buffer))

    def close(self) -> None:
        """Closes the connection when what was sent has left."""
        _close(self._transport)

    def abort(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        self._changed.set()
        if len(self._buffer) > MAX_BUFFER_BYTES:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._is_lost, self._error = True, error
        self._changed.set()
        # An encrypted transport may have planned this call before the tunnel took over.
        if self._successor is not None:
            self._successor.connection_lost(error)


def _pause(transport: Any) -> None:
    """Stops reading.

    In Python 3.10 an encrypted transport whose connection is lost has nothing left to ask or to
    pause, and raises AttributeError. The protocol hears of the loss in a later turn of the loop.
    """
    with contextlib.suppress(AttributeError):
        transport.pause_reading()


def _resume(transport: Any) -> None:
    """Reads again. As for :func:`_pause`, the connection may be lost."""
    with contextlib.suppress(AttributeError):
        transport.resume_reading()


def _close(transport: asyncio.WriteTransport) -> None:
    """Closes a transport when what was written has left.

    An encrypted transport of asyncio must not be closed twice: it forgets its connection then, and
    each of its other methods raises AttributeError.
    """
    if not transport.is_closing():
        transport.close()


async def connect(
    protocol: asyncio.Protocol,
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    timeout: float,
) -> asyncio.BaseTransport:
    """Opens a connection.

    Args:
        protocol: gets what arrives.
        address: host and port.
        tls: settings of the encryption; None for none.
        timeout: seconds, for the handshake of TLS, too.

    Returns:
        The transport.

    Raises:
        OSError: there is no connection; TimeoutError is one.
    """
    connecting = asyncio.get_running_loop().create_connection(lambda: protocol, *address, ssl=tls)
    return (await within(timeout, connecting, "it does not answer"))[0]


async def within(timeout: float, work: Coroutine[Any, Any, T], problem: str) -> T:
    """Returns what ``work`` returns. Raises TimeoutError(``problem``) after ``timeout`` seconds."""
    try:
        return await asyncio.wait_for(work, timeout)
    except asyncio.TimeoutError as error:  # Another type before Python 3.11.
        raise TimeoutError(problem) from error


class TunnelEnd(asyncio.Protocol):
    """One of two connections; what one receives the other sends. Both are closed together."""

    def __init__(self) -> None:
        self._other: TunnelEnd | None = None
        # What came before the other connection. More waits in the kernel.
        self._early = b""
        self._transport: Any = None
        self._is_lost = False

    def join(self, other: TunnelEnd) -> None:
        """Connects two ends, whose connections have been made."""
        self._other, other._other = other, self
        for one, two in ((self, other), (other, self)):
            if one._is_lost:
                two.abort()
                return
            two._transport.write(one._early)
            one._early = b""
            _resume(one._transport)

    def abort(self) -> None:
        """Closes both connections at once; what was not sent is lost."""
        for end in (self, self._other):
            if end is not None and end._transport is not None:
                end._transport.abort()

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._is_lost

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        self._transport = transport
        if self._other is None:
            _pause(transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._other is None:
            self._early += data
        else:
            self._other._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._is_lost = True
        if self._other is not None:
            _close(self._other._transport)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        if self._other is not None:
            _pause(self._other._transport)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        if self._other is not None:
            _resume(self._other._transport)
