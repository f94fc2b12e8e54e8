"""The gateway: the process of a learner that hosts connect to.

It imports neither torch nor gRPC. The learner's end of it is in ``process.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing.connection
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from torchbeast.joining.admission import Admission
from torchbeast.joining.channel import Channel, TunnelEnd
from torchbeast.joining.config import GatewayConfig, HostEvent
from torchbeast.joining.dialer import Dialer, read_addresses
from torchbeast.joining.messages import (
    MAX_TEXT,
    Announcement,
    Data,
    Hello,
    Lease,
    MessageError,
    Offer,
    Place,
    Refusal,
    Spaces,
)
from torchbeast.joining.places import Places
from torchbeast.joining.tenancy import Tenancy
from torchbeast.joining.tls import make_tls_context
from torchbeast.runtime.text import counted
from torchbeast.runtime.workers import follow_parent, raise_file_limit

# A host that is refused again and again is reported once in this time.
REPORT_INTERVAL_S = 60.0
# So that a lease fits into a message.
MAX_PLACES_PER_HOST = 256
# How long the hosts get to hear that the learner ends.
GOODBYE_S = 0.2
# Between the seeds of two leases: each plays games of its own.
LEASE_SEEDS = 1_000_003


class RefusedError(Exception):
    """A host cannot join: the reason, and whether that is final."""

    def __init__(self, reason: str, *, is_final: bool) -> None:
        super().__init__(reason if len(reason) <= MAX_TEXT else f"{reason[: MAX_TEXT - 3]}...")
        self.is_final = is_final


class Gateway:
    """Takes hosts in, and gives the places of lost ones to others."""

    def __init__(
        self,
        config: GatewayConfig,
        listener: socket.socket | None,
        report: Callable[[HostEvent], None],
    ) -> None:
        """Accepts nothing yet.

        Args:
            config: of the run.
            listener: the socket that hosts connect to; None if there is none.
            report: called with what happens.
        """
        self._config = config
        self._listener = listener
        self._report = report
        self._places = Places(config.loads)
        self._admission = Admission(config.bounds)
        self._tls = make_tls_context(config.tls_dir, is_server=True)
        self._dials: dict[str, TunnelEnd] = {}
        self._tenancies: set[Tenancy] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported: dict[tuple[str, str], float] = {}
        self._num_leases = 0

    async def run(self) -> None:
        """Accepts hosts, and connects to servers, until it is cancelled."""
        work = []
        if self._listener is not None:
            self._listener.setblocking(False)
            work.append(self._accept(self._listener))
        if self._config.env_addresses is not None:
            work.append(self._make_dialer(self._config.env_addresses).run())
        await asyncio.gather(*work)

    def _make_dialer(self, path: str) -> Dialer:
        config = self._config

        def take(task: int) -> int | None:
            places = self._places.deal(1, {task})
            return places[0] if places else None

        return Dialer(
            lambda: read_addresses(path, config.names, config.tls_dir),
            config.tls_dir,
            config.basename,
            config.timing,
            take,
            lambda place: self._places.free([place]),
            lambda kind, host, places, reason: self._report(HostEvent(kind, host, places, reason)),
        )

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:  # No file descriptor is left, or the other side has gone again.
                await asyncio.sleep(0.1)
                continue
            # One that waits already is accepted without a turn of the loop, in which connections
            # that were admitted are counted and served.
            await asyncio.sleep(0)
            if not self._admission.admits(address[0]):
                connection.close()
                continue
            task = loop.create_task(self._welcome(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Tells the hosts that the learner ends."""
        for tenancy in self._tenancies:
            tenancy.say_goodbye()
        if self._tenancies:
            await asyncio.sleep(GOODBYE_S)

    async def _welcome(self, connection: socket.socket) -> None:
        """Serves a connection from its handshake to its end."""
        channel = Channel()
        loop, wait_s = asyncio.get_running_loop(), self._config.timing.hello_s
        try:
            with self._admission.unknown():
                await loop.connect_accepted_socket(
                    lambda: channel,
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=wait_s if self._tls else None,
                )
                first = await channel.receive(wait_s)
            if isinstance(first, Hello):
                await self._take_in(channel, first)
            elif isinstance(first, Data) and first.token in self._dials:
                other = self._dials.pop(first.token)
                end = TunnelEnd()
                channel.become(end)
                end.join(other)
            else:
                channel.abort()
        except (OSError, MessageError):
            if channel.is_connected:
                channel.abort()

    async def _take_in(self, channel: Channel, hello: Hello) -> None:
        """Serves the control connection of a host."""
        try:
            lease = await self._negotiate(channel, hello)
        except RefusedError as error:
            channel.send(Refusal(str(error), error.is_final))
            channel.close()
            self._report_refusal(hello.host, str(error))
            return
        places = tuple(place.number for place in lease.places)
        tenancy = Tenancy(channel, lease, self._config.basename, self._config.timing, self._dials)
        self._tenancies.add(tenancy)
        was_ready = False

        def on_ready() -> None:
            nonlocal was_ready
            was_ready = True
            self._report(HostEvent("joined", hello.host, places, ""))

        try:
            channel.send(lease)
            kind, reason = await tenancy.run(on_ready)
        finally:
            self._tenancies.discard(tenancy)
            self._places.free(places)
        if was_ready:
            self._report(HostEvent(kind, hello.host, places, reason))
        elif reason:
            self._report_refusal(hello.host, reason)

    async def _negotiate(self, channel: Channel, hello: Hello) -> Lease:
        """Agrees with a host on what it serves. Raises RefusedError if that cannot be."""
        config = self._config
        if hello.version != config.version:
            raise RefusedError(
                f"it has version {hello.version}, the learner {config.version}", is_final=True
            )
        tasks = [t for t, game in enumerate(config.games) if hello.serves(game)]
        if not tasks:
            theirs = "Atari games" if hello.games is None else ", ".join(hello.games)
            raise RefusedError(
                f"it serves {theirs}, the learner plays {', '.join(config.games)}", is_final=True
            )
        if self._places.num_free == 0:
            raise RefusedError(self._describe_full(), is_final=False)
        games = tuple(config.games[task] for task in tasks)
        channel.send(Offer(games, **config.observation, full_action_space=config.full_action_space))
        answer = await channel.receive(config.timing.start_s)
        if not isinstance(answer, Announcement):
            raise MessageError("an unexpected message")
        check_spaces(answer, games, config.observation_shape, config.num_actions)
        dealt = self._places.deal(min(hello.servers, MAX_PLACES_PER_HOST), tasks)
        if not dealt:
            raise RefusedError(self._describe_full(), is_final=False)
        self._num_leases += 1
        places = [(index, self._config.loads[index]) for index in dealt]
        return Lease(
            tuple(
                Place(index, load.task, config.games[load.task], load.num_environments)
                for index, load in places
            ),
            seed=(config.seed + LEASE_SEEDS * self._num_leases) % 2**31,
            step_timeout_s=config.step_timeout_s,
            ping_s=config.timing.ping_s,
            silence_s=config.timing.silence_s,
        )

    def _describe_full(self) -> str:
        return f"all {counted(len(self._config.loads), 'place')} of its games are filled"

    def _report_refusal(self, host: str, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        self._reported = {
            key: then for key, then in self._reported.items() if now - then < REPORT_INTERVAL_S
        }
        if (host, reason) not in self._reported:
            self._reported[host, reason] = now
            self._report(HostEvent("refused", host, (), reason))


def check_spaces(
    announcement: Announcement,
    games: Sequence[str],
    observation_shape: tuple[int, ...],
    num_actions: int,
) -> None:
    """Raises RefusedError if a host's environments do not fit the learner's agent.

    Args:
        announcement: what the host says of its environments.
        games: that were offered to it.
        observation_shape: ``[C, H, W]`` of the agent.
        num_actions: of the agent.
    """
    theirs = {spaces.game: spaces for spaces in announcement.spaces}
    for game in games:
        wanted = Spaces(game, observation_shape, num_actions)
        found = theirs.get(game)
        if found is None:
            raise RefusedError(f"it does not describe {game}", is_final=True)
        if found != wanted:
            raise RefusedError(
                f"{game} has observations {list(found.observation_shape)} and "
                f"{found.num_actions} actions there, the agent takes {list(observation_shape)} and "
                f"{num_actions}",
                is_final=True,
            )


async def _serve(connection: Any, config: GatewayConfig, listener: socket.socket | None) -> None:
    def report(event: HostEvent) -> None:
        with contextlib.suppress(OSError):  # The learner has ended, and this is about to.
            connection.send(event)

    gateway = Gateway(config, listener, report)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    # The learner sends nothing more: what comes is the end of its process.
    loop.add_reader(connection.fileno(), over.set)
    loop.add_signal_handler(signal.SIGTERM, over.set)
    accepting = loop.create_task(gateway.run())
    accepting.add_done_callback(lambda _: over.set())
    try:
        await over.wait()
        loop.remove_reader(connection.fileno())
    finally:
        if not accepting.cancel():
            accepting.result()  # It never ends by itself: this raises what was wrong.
        await gateway.close()


def serve(connection_fd: int, listener_fd: int | None) -> None:
    """Runs the gateway until the learner's end of the connection is closed.

    Args:
        connection_fd: a pipe, from which the configuration comes, and which takes events.
        listener_fd: the socket that hosts connect to; None if there is none.
    """
    follow_parent()
    raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.ExitStack() as stack:
        listener = None
        if listener_fd is not None:
            listener = stack.enter_context(socket.socket(fileno=listener_fd))
        connection = multiprocessing.connection.Connection(connection_fd)
        stack.enter_context(connection)
        asyncio.run(_serve(connection, connection.recv(), listener))
