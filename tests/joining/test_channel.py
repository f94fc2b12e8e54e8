import asyncio
import socket

import pytest

from torchbeast.joining.channel import Channel, TunnelEnd
from torchbeast.joining.messages import MAX_LINE_BYTES, Data, MessageError, Ping, encode
from torchbeast.joining.tls import make_tls_context


async def connect(protocol):
    """A protocol on one end of a connection; returns the other end."""
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, ours)
    theirs.setblocking(False)
    return theirs


async def receive(end, size):
    data = b""
    while len(data) < size:
        part = await asyncio.get_running_loop().sock_recv(end, 1 << 20)
        if not part:
            break
        data += part
    return data


def test_messages_arrive_in_any_pieces():
    async def run():
        channel = Channel()
        end = await connect(channel)
        for byte in encode(Data("abc")) + encode(Ping()):
            await asyncio.get_running_loop().sock_sendall(end, bytes([byte]))
        assert await channel.receive(10) == Data("abc")
        assert await channel.receive(10) == Ping()
        with pytest.raises(TimeoutError, match=r"no word for 0\.01 s"):
            await channel.receive(0.01)
        end.close()
        with pytest.raises(ConnectionResetError):
            await channel.receive(10)

    asyncio.run(run())


def test_a_line_without_end_is_refused():
    async def run():
        channel = Channel()
        end = await connect(channel)
        await asyncio.get_running_loop().sock_sendall(end, b"x" * (MAX_LINE_BYTES + 1))
        with pytest.raises(MessageError, match="too long"):
            await channel.receive(10)
        channel.abort()
        end.close()

    asyncio.run(run())


def test_a_tunnel_copies_both_ways_also_what_came_with_the_message():
    async def run():
        loop = asyncio.get_running_loop()
        channel, inner, outer = Channel(), TunnelEnd(), TunnelEnd()
        far, near = await connect(channel), await connect(inner)
        await loop.sock_sendall(far, encode(Data("abc")) + b"early")
        await loop.sock_sendall(near, b"first")
        await channel.receive(10)
        channel.become(outer)
        outer.join(inner)
        assert await receive(near, 5) == b"early"
        assert await receive(far, 5) == b"first"
        # More than all buffers hold: the sender has to wait until somebody reads.
        data = bytes(range(256)) * 100_000
        sending = asyncio.ensure_future(loop.sock_sendall(far, data))
        await asyncio.sleep(0.1)
        assert not sending.done()
        assert await receive(near, len(data)) == data
        await sending
        near.close()
        assert await receive(far, 1) == b""
        far.close()

    asyncio.run(run())


@pytest.mark.parametrize("lost", ["inner", "outer"])
def test_an_end_that_was_lost_before_the_other_came_closes_it(lost):
    async def run():
        ends = {"inner": TunnelEnd(), "outer": TunnelEnd()}
        far = {name: await connect(end) for name, end in ends.items()}
        ends[lost].abort()
        await asyncio.sleep(0.01)
        ends["inner"].join(ends["outer"])
        for end in far.values():
            assert await receive(end, 1) == b""
            end.close()

    asyncio.run(run())


async def connect_encrypted(tls):
    """The two ends of an encrypted connection."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    accepted, connected = Channel(), Channel()
    accepting = loop.connect_accepted_socket(
        lambda: accepted, ours, ssl=make_tls_context(tls, is_server=True)
    )
    context = make_tls_context(tls, is_server=False)
    connecting = loop.create_connection(
        lambda: connected, sock=theirs, ssl=context, server_hostname="localhost"
    )
    await asyncio.gather(accepting, connecting)
    return accepted, connected


@pytest.mark.parametrize("turns", range(5))
def test_an_encrypted_connection_that_vanishes_while_it_becomes_a_tunnel_closes_it(make_tls, turns):
    tls = make_tls("localhost")

    async def run():
        accepted, _ = await connect_encrypted(tls)
        end, other = TunnelEnd(), TunnelEnd()
        plain = await connect(other)
        accepted.abort()
        for _ in range(turns):  # The connection is lost in the first, its protocol told later.
            await asyncio.sleep(0)
        accepted.send(Ping())
        accepted.become(end)
        end.join(other)
        assert await asyncio.wait_for(receive(plain, 1), 10) == b""
        assert end.is_lost
        plain.close()

    asyncio.run(run())


class LostTransport:
    """An encrypted transport of Python 3.10 that has lost its connection."""

    def pause_reading(self):
        raise AttributeError

    resume_reading = get_write_buffer_size = pause_reading

    def write(self, data):
        pass

    def is_closing(self):
        return True

    def abort(self):
        pass


def test_a_lost_transport_takes_no_messages_and_is_neither_paused_nor_resumed():
    async def run():
        channel = Channel()
        channel.connection_made(LostTransport())
        channel.send(Ping())
        lost, other = TunnelEnd(), TunnelEnd()
        lost.connection_made(LostTransport())
        far = await connect(other)
        other.join(lost)
        other.pause_writing()
        other.resume_writing()
        other.abort()
        far.close()

    asyncio.run(run())


def test_an_encrypted_tunnel_may_be_closed_from_all_sides(make_tls):
    tls = make_tls("localhost")

    async def run():
        accepted, _ = await connect_encrypted(tls)
        end = TunnelEnd()
        accepted.become(end)
        other = TunnelEnd()
        plain = await connect(other)
        end.join(other)
        # Both connections end at once, and the host is found lost.
        end.abort()
        plain.close()
        await asyncio.sleep(0.1)
        end.abort()
        other.abort()
        other.pause_writing()
        other.resume_writing()
        accepted.close()
        accepted.abort()

    asyncio.run(run())
