"""What a learner and a host say to each other: one line of JSON per message, checked on arrival."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

# Of a line. A learner with all games of Atari offers them in 4 KiB.
MAX_LINE_BYTES = 64 << 10
# Of a text in a message; it may be printed.
MAX_TEXT = 300
MAX_ITEMS = 4096
MAX_NUMBER = 2**53


class Hello(NamedTuple):
    """From a host: it wants to serve environments."""

    version: str
    """Of this package. It must be the learner's."""
    host: str
    """The name of the host, for people."""
    servers: int
    """Environment servers that it would run."""
    games: tuple[str, ...] | None
    """Ids of the games that it serves; None for every Atari game."""

    def serves(self, game: str) -> bool:
        """Whether the host serves a game.

        A host imports the module of a custom environment only if its own user named it.
        """
        return ":" not in game if self.games is None else game in self.games


class Offer(NamedTuple):
    """From the learner: the games of the run that the host can serve, and how they are observed."""

    games: tuple[str, ...]
    preprocessing: str
    frame_format: str
    frame_height: int
    frame_width: int
    full_action_space: bool


class Spaces(NamedTuple):
    """Observations and actions of a game."""

    game: str
    observation_shape: tuple[int, ...]
    num_actions: int


class Announcement(NamedTuple):
    """From a host: the games that were offered, as its environments are."""

    spaces: tuple[Spaces, ...]


class Place(NamedTuple):
    """What one environment server of a host serves."""

    number: int
    """Of the place among the learner's."""
    task: int
    """The index of the game among the learner's tasks."""
    game: str
    environments: int


class Lease(NamedTuple):
    """From the learner: the places that the host fills from now on."""

    places: tuple[Place, ...]
    seed: int
    step_timeout_s: float
    ping_s: float
    """Seconds between two pings, which both sides send."""
    silence_s: float
    """Seconds without a word after which either side takes the other for lost."""


class Refusal(NamedTuple):
    """From the learner: the host cannot join, now or at all."""

    reason: str
    is_final: bool


class Ready(NamedTuple):
    """From a host: its servers listen."""


class Ping(NamedTuple):
    """From either side: it is there."""


class Leave(NamedTuple):
    """From either side: it ends the lease in order."""


class Dial(NamedTuple):
    """From the learner: its actor pool has connected to a place. The host is to do the same."""

    place: int
    token: str
    """For :class:`Data`."""


class Data(NamedTuple):
    """From a host, first on a connection of its own: bytes of a server follow."""

    token: str


KINDS = {
    kind.__name__.lower(): kind
    for kind in (Hello, Offer, Announcement, Lease, Refusal, Ready, Ping, Leave, Dial, Data)
}


class MessageError(ValueError):
    """A line is no message, or not one that was expected."""


def encode(message: NamedTuple) -> bytes:
    """Returns a message as a line, with its end.

    >>> encode(Data("abc")).decode().rstrip()
    '{"data": {"token": "abc"}}'
    """
    return json.dumps({type(message).__name__.lower(): _to_json(message)}).encode() + b"\n"


def decode(line: bytes) -> Any:
    """Returns the message of a line. Nothing that the other side can write makes it run code.

    Args:
        line: without its end.

    Raises:
        MessageError: it is no message.

    >>> decode(b'{"data": {"token": "abc"}}')
    Data(token='abc')
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MessageError("a line is not JSON") from error
    if not isinstance(document, dict) or len(document) != 1:
        raise MessageError("a line is no message")
    ((name, content),) = document.items()
    if name not in KINDS:
        raise MessageError("a line is a message of an unknown kind")
    return _read(KINDS[name], content, name)


def _to_json(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name: _to_json(item) for name, item in value._asdict().items()}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _read(hint: Any, value: Any, where: str) -> Any:
    """Returns ``value``, checked and converted to the type ``hint`` of a message's field."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None:
            return None
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if typing.get_origin(hint) is tuple:
        if isinstance(value, list) and len(value) <= MAX_ITEMS:
            return tuple(_read(typing.get_args(hint)[0], item, where) for item in value)
    elif hasattr(hint, "_fields"):
        if isinstance(value, Mapping) and set(value) == set(hint._fields):
            hints = typing.get_type_hints(hint)
            return hint(**{n: _read(hints[n], value[n], f"{where}.{n}") for n in hint._fields})
    elif hint is str:
        if isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable():
            return value
    elif isinstance(value, bool):
        if hint is bool:
            return value
    elif (
        hint in (int, float)
        and isinstance(value, int if hint is int else (int, float))
        and 0 <= value <= MAX_NUMBER
    ):
        return hint(value)
    raise MessageError(f"{where} is not what it should be")
