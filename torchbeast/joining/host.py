"""A host that joins a learner: ``python -m torchbeast.polybeast_env --join``."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torchbeast.core.types import RunError
from torchbeast.joining.channel import Channel, connect
from torchbeast.joining.messages import (
    Announcement,
    Hello,
    Lease,
    Leave,
    MessageError,
    Offer,
    Refusal,
    Spaces,
)
from torchbeast.joining.stay import NotNowError, Stay, describe_lease, server_arguments
from torchbeast.joining.tenancy import Timing
from torchbeast.joining.tls import make_tls_context, split_flag
from torchbeast.runtime.text import counted

# Between two attempts to join, in seconds; each is up to a half longer, so that many hosts do not
# come at one moment.
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 30.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Of a frame that a learner may ask for: more is a mistake, and would take all memory.
MAX_FRAME_SIDE = 4096


class HostConfig(NamedTuple):
    """What a host offers, and to whom."""

    learner: str
    """``HOST:PORT``."""
    version: str
    """Of this package."""
    name: str
    """Of the host, for people."""
    num_servers: int
    games: tuple[str, ...] | None
    """Ids of the games that it serves; None for every Atari game."""
    tls_dir: str | None
    timing: Timing = Timing()


class Host:
    """Joins a learner, serves what it gets, and joins again when the learner is gone."""

    def __init__(self, config: HostConfig, say: Callable[[str], None]) -> None:
        """Connects nothing yet.

        Args:
            config: what the host offers.
            say: takes lines for people.

        Raises:
            UsageError: the address or a certificate cannot be used.
        """
        self._config = config
        self._say = say
        self._address = split_flag("--join", config.learner, config.tls_dir)
        self._tls = make_tls_context(config.tls_dir, is_server=False)
        self._backoff = FIRST_BACKOFF_S
        self._reason = ""  # Why the last attempt failed: it is said once.

    async def run(self) -> None:
        """Joins again and again until it is cancelled.

        Raises:
            UsageError: a game cannot be had here.
            RunError: the learner refuses this host for good, or the servers cannot run.
        """
        while True:
            try:
                await self._visit()
            except NotNowError as error:
                reason = str(error)
            except ssl.SSLError as error:
                reason = self._explain_tls(error)
            except (OSError, MessageError) as error:
                reason = f"{self._config.learner}: {error}"
            if reason != self._reason:
                self._say(f"{reason}; trying again until it works")
                self._reason = reason
            await asyncio.sleep(self._backoff * random.uniform(1, 1.5))
            self._backoff = min(2 * self._backoff, LAST_BACKOFF_S)

    def _explain_tls(self, error: ssl.SSLError) -> str:
        """Says who refused whom. Raises RunError if this side refused the learner."""
        learner = self._config.learner
        if isinstance(error, ssl.SSLCertVerificationError):
            raise RunError(
                f"{learner}: its certificate is refused: {error.verify_message}"
            ) from error
        if "ALERT" in str(error).upper():
            return f"{learner} refuses this side's certificate"
        return f"{learner}: TLS failed ({error.reason})"

    async def _visit(self) -> None:
        """Joins once, and serves until the learner is gone. Always raises why it ended."""
        channel = await self._dial_learner()
        try:
            offer, lease = await self._ask(channel)
            self._say(f"joined {self._config.learner}: {describe_lease(lease)}")
            self._backoff, self._reason = FIRST_BACKOFF_S, ""
            stay = Stay(channel, lease, self._dial_learner, self._config.learner)
            await stay.run(server_arguments(offer, lease))
        finally:
            # The learner is to know at once, also if this process is about to end.
            if channel.is_connected:
                channel.send(Leave())
            channel.close()
            await asyncio.sleep(0)

    async def _dial_learner(self) -> Channel:
        """Returns a new connection to the learner."""
        channel = Channel()
        await connect(channel, self._address, self._tls, self._config.timing.hello_s)
        return channel

    async def _ask(self, channel: Channel) -> tuple[Offer, Lease]:
        """Asks for places. Raises NotNowError or RunError if the learner refuses."""
        config = self._config
        hello = Hello(config.version, config.name, config.num_servers, config.games)
        channel.send(hello)
        try:
            offer: Offer = await self._receive(channel, Offer)
        except ConnectionError as error:
            if self._tls is None:
                raise
            # In TLS 1.3 the learner looks at this side's certificate after the handshake.
            raise NotNowError(
                f"{config.learner} hangs up: it probably refuses this side's certificate"
            ) from error
        if not all(map(hello.serves, offer.games)):
            raise MessageError("it offers games that this host does not serve")
        sides = (offer.frame_height, offer.frame_width)
        if not all(1 <= side <= MAX_FRAME_SIDE for side in sides):
            raise MessageError(f"it asks for frames of {sides[0]} x {sides[1]} pixels")
        # The event loop, and with it the handlers of the signals, waits for custom environments.
        with default_actions():
            announcement = describe_games(offer)
        channel.send(announcement)
        lease: Lease = await self._receive(channel, Lease)
        if not {place.game for place in lease.places} <= set(offer.games):
            raise MessageError("it deals games that it did not offer")
        if not 1 <= len(lease.places) <= config.num_servers:
            raise MessageError(
                f"it deals {counted(len(lease.places), 'place')}, this host offered "
                f"{counted(config.num_servers, 'server')}"
            )
        return offer, lease

    async def _receive(self, channel: Channel, kind: type) -> Any:
        message = await channel.receive(self._config.timing.hello_s)
        if isinstance(message, Refusal):
            text = f"{self._config.learner} refuses this host: {message.reason}"
            raise RunError(text) if message.is_final else NotNowError(text)
        if not isinstance(message, kind):
            raise MessageError("an unexpected message")
        return message


def describe_games(offer: Offer) -> Announcement:
    """Returns the observations and actions that this host's environments have.

    Args:
        offer: the games, and how they are to be observed.

    Raises:
        UsageError: a game cannot be had here.
        RunError: a custom environment failed when it was made.
    """
    from torchbeast.envs import ObservationConfig, atari_actions, plan_envs
    from torchbeast.envs.games import is_atari

    observation = ObservationConfig(
        offer.preprocessing, offer.frame_format, offer.frame_height, offer.frame_width
    )
    spaces = []
    for game in offer.games:
        spec = plan_envs((game,), observation)
        count = spec.num_actions
        if offer.full_action_space and is_atari(game):
            count = len(atari_actions(game, observation, full=True))
        spaces.append(Spaces(game, spec.observation_shape, count))
    return Announcement(tuple(spaces))


@contextlib.contextmanager
def default_actions() -> Iterator[None]:
    """Has a signal to stop end this process at once, unless it is ignored. A context manager.

    There are no servers yet, and the processes that measure environments end with this one.
    """
    handlers = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
    changed = {s: handler for s, handler in handlers.items() if handler is not signal.SIG_IGN}
    try:
        for signum in changed:
            signal.signal(signum, signal.SIG_DFL)
        yield
    finally:
        for signum, handler in changed.items():
            signal.signal(signum, handler)


def run_until_signal(host: Host) -> None:
    """Runs a host until SIGINT, SIGTERM or SIGHUP comes.

    Raises:
        UsageError, RunError: see :meth:`Host.run`.
    """
    asyncio.run(_run_until_signal(host))


async def _run_until_signal(host: Host) -> None:
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(host.run())
    for signum in STOP_SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            loop.add_signal_handler(signum, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
