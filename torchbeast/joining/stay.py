"""A host's servers while it has a lease, and their connections to the learner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from torchbeast.joining.channel import Channel, TunnelEnd
from torchbeast.joining.messages import Data, Dial, Lease, Leave, MessageError, Offer, Ping, Ready
from torchbeast.joining.tenancy import send_pings
from torchbeast.runtime.servers import (
    EnvServers,
    server_address,
    socket_directory,
    somebody_listens,
)
from torchbeast.runtime.text import counted

# How long a server that is being replaced gets to listen again, seconds.
SERVER_TIMEOUT_S = 5.0
# Between two looks at the servers, seconds.
LOOK_INTERVAL_S = 0.1


class NotNowError(Exception):
    """The learner cannot take this host in now, or no longer."""


def describe_lease(lease: Lease) -> str:
    """Returns how many servers and environments of which games a host got, as text."""
    names = dict.fromkeys(place.game for place in lease.places)
    count = sum(place.environments for place in lease.places)
    return (
        f"{counted(len(lease.places), 'server')} with {counted(count, 'environment')} of "
        f"{', '.join(names)}"
    )


def server_arguments(offer: Offer, lease: Lease) -> list[str]:
    """Returns the flags of polybeast_env that serve what a lease says."""
    games = list(dict.fromkeys(place.game for place in lease.places))
    served = ",".join(f"{games.index(place.game)}:{place.task}" for place in lease.places)
    return [
        f"--env={','.join(games)}",
        f"--served={served}",
        f"--preprocessing={offer.preprocessing}",
        f"--frame_format={offer.frame_format}",
        f"--frame_height={offer.frame_height}",
        f"--frame_width={offer.frame_width}",
        f"--seed={lease.seed}",
        f"--step_timeout_s={lease.step_timeout_s:.0f}",
        *(["--full_action_space"] if offer.full_action_space else []),
    ]


class Stay:
    """Serves a lease until the learner or the servers are gone."""

    def __init__(
        self,
        channel: Channel,
        lease: Lease,
        dial_learner: Callable[[], Awaitable[Channel]],
        learner: str,
    ) -> None:
        """Starts nothing yet.

        Args:
            channel: the control connection.
            lease: what this host fills.
            dial_learner: returns a new connection to the learner.
            learner: its address, for messages.
        """
        self._channel = channel
        self._lease = lease
        self._dial_learner = dial_learner
        self._learner = learner
        self._basename = ""
        self._tunnels: set[TunnelEnd] = set()
        self._dials: set[asyncio.Task[None]] = set()

    async def run(self, arguments: list[str]) -> None:
        """Starts the servers, and ends them at the end.

        Args:
            arguments: flags of the servers.

        Raises:
            NotNowError: the learner is gone.
            RunError: the servers ended. They have said why.
        """
        count = len(self._lease.places)
        with (
            socket_directory(None) as self._basename,
            EnvServers(self._basename, count, True, arguments) as servers,
        ):
            tasks = [
                asyncio.ensure_future(work)
                for work in (
                    send_pings(self._channel, self._lease.ping_s),
                    self._watch(servers),
                    self._obey(),
                )
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # Raises: none of them ends otherwise.
            finally:
                for task in [*tasks, *self._dials]:
                    task.cancel()
                for end in self._tunnels:
                    end.abort()

    async def _watch(self, servers: EnvServers) -> None:
        """Tells the learner when all servers listen; raises RunError when they are gone."""
        waiting = {place for place, _ in enumerate(self._lease.places)}
        while waiting:
            waiting = {index for index in waiting if not somebody_listens(self._path(index))}
            servers.check()
            await asyncio.sleep(LOOK_INTERVAL_S)
        self._channel.send(Ready())
        while True:
            servers.check()
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _obey(self) -> None:
        """Does what the learner asks for."""
        while True:
            try:
                message = await self._channel.receive(self._lease.silence_s)
            except OSError as error:
                raise NotNowError(f"{self._learner} is lost: {error}") from error
            if isinstance(message, Leave):
                raise NotNowError(f"{self._learner} has ended")
            if isinstance(message, Dial):
                task = asyncio.ensure_future(self._dial(message))
                self._dials.add(task)
                task.add_done_callback(self._dials.discard)
            elif not isinstance(message, Ping):
                raise MessageError("an unexpected message")

    async def _dial(self, dial: Dial) -> None:
        """Connects a server with the learner, which gives up by itself if that fails."""
        places = [place.number for place in self._lease.places]
        if dial.place not in places:
            return
        ours, theirs = TunnelEnd(), TunnelEnd()
        try:
            await self._connect(ours, self._path(places.index(dial.place)))
            channel = await self._dial_learner()
        except OSError:
            ours.abort()
            return
        channel.send(Data(dial.token))
        channel.become(theirs)
        ours.join(theirs)
        self._tunnels = {end for end in self._tunnels if not end.is_lost} | {ours}

    async def _connect(self, end: TunnelEnd, path: str) -> None:
        """Connects to a server, also while it is being replaced. Raises OSError after a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SERVER_TIMEOUT_S
        while True:
            try:
                await loop.create_unix_connection(lambda: end, path)
                return
            except OSError:
                if loop.time() > until:
                    raise
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _path(self, index: int) -> str:
        """The socket of the server that fills the lease's place ``index``."""
        return server_address(self._basename, index).removeprefix("unix:")
