"""Servers that listen for the learner, from a file that is read again and again.

For sites where hosts cannot connect to the learner. A server of the file fills a place while it can
be reached, as a server of a host that joined does.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchbeast.core.types import UsageError
from torchbeast.joining.channel import TunnelEnd, connect, within
from torchbeast.joining.tenancy import PlaceSocket, Timing
from torchbeast.joining.tls import make_tls_context, split_address

# Of the file: thousands of lines.
MAX_FILE_BYTES = 1 << 20
# A connection on which nothing arrives is tried by the kernel from KEEPALIVE_IDLE_S on, and is
# closed if KEEPALIVE_PROBES of them have no answer. The kernel of the other side answers also while
# a server is in a long step.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 15, 5, 4
HANGS_UP = "it hangs up: it probably refuses this side's certificate"


class Entry(NamedTuple):
    """A line of the file."""

    address: str
    """``HOST:PORT`` of one server."""
    task: int
    """The index of its game."""


def parse_addresses(text: str, names: Sequence[str]) -> list[Entry]:
    r"""Parses lines ``HOST:PORT GAME``. What follows a ``#`` is a comment.

    Args:
        text: of the file.
        names: short names of the games, by task.

    Raises:
        UsageError: a line is wrong, or an address is there twice.

    >>> parse_addresses("# site one\na:4000 pong\na:4001 Breakout", ["Breakout", "Pong"])
    [Entry(address='a:4000', task=1), Entry(address='a:4001', task=0)]
    """
    tasks = {name.lower(): task for task, name in enumerate(names)}
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2:
            raise UsageError(f"--env_addresses, line {number}: a line is HOST:PORT GAME")
        address, game = words
        if game.lower() not in tasks:
            raise UsageError(
                f"--env_addresses, line {number}: {game} is none of the games, which are "
                f"{', '.join(names)}"
            )
        if any(entry.address == address for entry in entries):
            raise UsageError(f"--env_addresses, line {number}: {address} is there twice")
        entries.append(Entry(address, tasks[game.lower()]))
    return entries


def read_addresses(path: str, names: Sequence[str], tls_dir: str | None) -> list[Entry]:
    """Reads the file.

    Args:
        path: of the file.
        names: short names of the games, by task.
        tls_dir: None if connections are not encrypted: all servers are on this machine then.

    Raises:
        UsageError: it cannot be read or used.
    """
    try:
        with open(Path(path).expanduser()) as file:
            entries = parse_addresses(file.read(MAX_FILE_BYTES), names)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--env_addresses: {error}") from error
    for entry in entries:
        split_address("--env_addresses", entry.address, tls_dir)
    return entries


def make_client_context(tls_dir: str | None) -> ssl.SSLContext | None:
    """Returns the settings of connections to gRPC servers; None without encryption."""
    context = make_tls_context(tls_dir, is_server=False)
    if context is not None:
        context.set_alpn_protocols(["h2"])  # gRPC's servers insist.
    return context


class Dialer:
    """Connects places with the servers of a file."""

    def __init__(
        self,
        read: Callable[[], list[Entry]],
        tls_dir: str | None,
        basename: str,
        timing: Timing,
        take: Callable[[int], int | None],
        free: Callable[[int], None],
        report: Callable[[str, str, tuple[int, ...], str], None],
    ) -> None:
        """Connects nothing yet.

        Args:
            read: returns the servers of the file, or raises UsageError.
            tls_dir: the directory of the certificates.
            basename: of the sockets to which the actor pool connects.
            timing: see there.
            take: takes a place of a game; returns None if none is free.
            free: gives a place back.
            report: takes the kind of an event, a server's address, places and a reason.
        """
        self._read = read
        self._tls_dir = tls_dir
        self._tls = make_client_context(tls_dir)
        self._basename = basename
        self._timing = timing
        self._take = take
        self._free = free
        self._report = report
        self._serving: dict[Entry, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follows the file until it is cancelled."""
        problem = ""
        while True:
            try:
                entries = self._read()
                problem = ""
            except UsageError as error:  # It is being written, perhaps.
                entries = list(self._serving)
                if str(error) != problem:
                    problem = str(error)
                    self._report("refused", "", (), problem)
            for entry in [entry for entry in self._serving if entry not in entries]:
                self._serving.pop(entry).cancel()
            for entry in entries:
                if entry not in self._serving:
                    self._serving[entry] = asyncio.ensure_future(self._follow(entry))
            await asyncio.sleep(self._timing.look_s)

    async def _follow(self, entry: Entry) -> None:
        """Gives a server a place whenever it can be reached."""
        reported = ""
        while True:
            problem = ""
            try:
                await self._probe(entry.address)
                place = self._take(entry.task)
                if place is not None:
                    await self._fill(entry, place)
            except (OSError, UnicodeError) as error:
                problem = "" if is_absent(error) else str(error)
            if problem and problem != reported:
                self._report("refused", entry.address, (), problem)
            reported = problem
            await asyncio.sleep(self._timing.look_s)

    async def _probe(self, address: str) -> None:
        """Waits for the first word of a server. Raises OSError or UnicodeError.

        A server that speaks TLS 1.3 looks at this side's certificate after the handshake: it hangs
        up then without a word. A server of gRPC speaks first.
        """
        probe = _Probe()
        try:
            await self._connect(address, probe)
            await within(self._timing.hello_s, probe.wait(), "it does not answer")
        finally:
            probe.abort()

    async def _fill(self, entry: Entry, place: int) -> None:
        """Connects a place with a server until the server is lost, or this is cancelled."""
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        dials: set[asyncio.Task[None]] = set()

        def dial(end: TunnelEnd) -> None:
            task = asyncio.ensure_future(self._dial(entry.address, end, lost))
            dials.add(task)
            task.add_done_callback(dials.discard)

        end_of_socket = PlaceSocket(self._basename, place, dial)
        try:
            await end_of_socket.open()
            self._report("joined", entry.address, (place,), "")
            self._report("lost", entry.address, (place,), await lost)
        except asyncio.CancelledError:
            self._report("left", entry.address, (place,), "")
            raise
        finally:
            for task in dials:
                task.cancel()
            end_of_socket.close()
            self._free(place)

    async def _dial(self, address: str, end: TunnelEnd, lost: asyncio.Future[str]) -> None:
        other = TunnelEnd()
        try:
            await self._connect(address, other)
        except (OSError, UnicodeError) as error:
            end.abort()
            if not lost.done():
                lost.set_result(str(error))
            return
        end.join(other)

    async def _connect(self, address: str, end: asyncio.Protocol) -> None:
        """Connects to a server. Raises OSError; UnicodeError if the host's name is none."""
        target = split_address("--env_addresses", address, self._tls_dir)
        transport = await connect(end, target, self._tls, self._timing.hello_s)
        if transport.is_closing():  # A server may hang up at once.
            return
        connection = transport.get_extra_info("socket")
        if connection is None:  # Python 3.10 says so of a lost encrypted connection.
            raise ConnectionResetError(HANGS_UP)
        keep_alive(connection)


class _Probe(asyncio.Protocol):
    """A connection of which only the server's first word is of interest."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._has_answered = False
        self._transport: Any = None

    async def wait(self) -> None:
        """Waits for the word. Raises ConnectionResetError if the connection ends before."""
        await self._changed.wait()
        if not self._has_answered:
            raise ConnectionResetError(HANGS_UP)

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def data_received(self, _: bytes) -> None:
        """See asyncio.Protocol."""
        self._has_answered = True
        self._changed.set()

    def connection_lost(self, _: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._changed.set()

    def abort(self) -> None:
        """Closes the connection, if there is one."""
        if self._transport is not None:
            self._transport.abort()


def is_absent(error: Exception) -> bool:
    """Whether nobody listens: the program is not there yet. A name may have several addresses."""
    text = str(error)
    return 0 < text.count("[Errno ") == text.count(f"[Errno {errno.ECONNREFUSED}]")


def keep_alive(connection: Any) -> None:
    """Has the kernel close a connection whose other side is gone, within a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    user_timeout_ms = 1000 * (KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S * KEEPALIVE_PROBES)
    for name, value in {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": user_timeout_ms,
    }.items():
        if hasattr(socket, name):  # Not all of them everywhere.
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
