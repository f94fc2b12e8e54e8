"""Which games there are and what ``--env`` means.

A task's index is its game's place in the list that :func:`parse_games` returns.
"""

from __future__ import annotations

import collections
import difflib
import functools
import importlib
import re

import gymnasium

from torchbeast.core.types import UsageError
from torchbeast.runtime.text import explain_import

# Constant frames, for tests and benchmarks; see mock.py.
MOCK = "Mock"

THREE = ("AirRaidNoFrameskip-v4", "CarnivalNoFrameskip-v4", "DemonAttackNoFrameskip-v4")
SIX = (
    *THREE,
    "NameThisGameNoFrameskip-v4",
    "PongNoFrameskip-v4",
    "SpaceInvadersNoFrameskip-v4",
)
GROUPS = {"three": THREE, "six": SIX}


@functools.cache
def _atari_ids() -> frozenset[str]:
    """Every image id of the installed ale-py, in both spellings."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return frozenset(
        env_id
        for env_id, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("ale_py")
        and spec.kwargs.get("obs_type", "rgb") == "rgb"
        and (env_id.endswith("NoFrameskip-v4") or env_id.startswith("ALE/"))
    )


def all_games() -> tuple[str, ...]:
    """Lists every game of the installed ale-py that has a ``NoFrameskip-v4`` id, by name."""
    return tuple(sorted(i for i in _atari_ids() if i.endswith("NoFrameskip-v4")))


def literature_games() -> tuple[str, ...]:
    """Lists the 57 games that have published scores of a human."""
    from torchbeast.envs.human_scores import PUBLISHED  # It imports this module.

    return tuple(map(find_game, PUBLISHED))  # Surround has the prefix ALE.


# Groups for which ale-py is looked at.
LISTED = {"all": all_games, "atari57": literature_games}


@functools.cache
def games_by_name() -> dict[str, str]:
    """Returns the id of every Atari game by its short name in lower case.

    A game without a ``NoFrameskip-v4`` id, like Tetris, has one like ``ALE/Tetris-v5``.
    """
    ids = sorted(_atari_ids(), key=lambda i: (i.endswith("NoFrameskip-v4"), i))
    by_name = {short_name(i).lower(): i for i in ids}
    return dict(sorted(by_name.items()))


def is_atari(env_id: str) -> bool:
    """Whether ``env_id`` is one of ale-py's games."""
    return env_id in _atari_ids()


def is_custom(env_id: str) -> bool:
    """Whether ``env_id`` is a custom environment, ``package.module:Id``, whose code is imported."""
    return ":" in env_id


def short_name(env_id: str) -> str:
    """Returns a game's name without namespace and version.

    A custom environment keeps its version, if that is not 0: other versions are other games.

    >>> [short_name(i) for i in ("PongNoFrameskip-v4", "ALE/Pong-v5", "my.module:Catch-v0")]
    ['Pong', 'Pong', 'Catch']
    >>> [short_name(i) for i in ("my.module:Catch-v1", "my.module:Maze-visual")]
    ['Catch-v1', 'Maze-visual']
    """
    name = env_id.split(":")[-1].split("/")[-1]
    version = "-v0" if is_custom(env_id) else r"-v\d+"
    return re.sub(f"{version}$", "", name).removesuffix("NoFrameskip")


def parse_games(env: str) -> tuple[str, ...]:
    """Parses the task list that ``--env`` names: games and groups of games, separated by commas.

    Args:
        env: each name is a game's id, its name alone (``Pong`` is ``PongNoFrameskip-v4``), an
            environment of the user's (``package.module:Id``), or a group: three, six, atari57, all.

    Returns:
        The games' ids, in the given order.

    Raises:
        UsageError: an unknown name, for which near misses are named, or a repeated game. Custom
            environments are looked for where they are made.

    >>> parse_games("Pong,ALE/Breakout-v5")
    ('PongNoFrameskip-v4', 'ALE/Breakout-v5')
    >>> len(parse_games("six,Breakout")), len(parse_games("atari57"))
    (7, 57)
    """
    games: list[str] = []
    for name in (part.strip() for part in env.split(",")):
        listed = LISTED.get(name.lower())
        games += listed() if listed else GROUPS.get(name.lower()) or [find_game(name)]
    counts = collections.Counter(map(short_name, games))
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise UsageError(f"--env names a game twice, or two that share a name: {repeated[0]}")
    return tuple(games)


def find_game(name: str) -> str:
    """Finds the id of the game that a name means. Raises UsageError for an unknown one.

    The id of a custom environment is returned as it is: see :func:`import_custom`.

    >>> find_game("pong"), find_game("ALE/Pong-v5")
    ('PongNoFrameskip-v4', 'ALE/Pong-v5')
    """
    if not name:
        raise UsageError("--env has an empty name: is a comma too many, or a variable empty?")
    atari = name.removeprefix("ale_py:")  # Gymnasium's way to say which package has a game.
    if name == MOCK or atari in _atari_ids():
        return atari
    if is_custom(name) and name.isprintable():  # Its code is imported where it is made.
        return name
    ids = games_by_name()
    if name.lower() in ids:
        return ids[name.lower()]
    # Gymnasium's older variants of a game: PongDeterministic-v4, Pong-ram-v0.
    plain = re.sub(r"(Deterministic|-ram|-ramDeterministic)$", "", short_name(name))
    near = difflib.get_close_matches(plain.lower(), ids, n=3, cutoff=0.6)
    hint = (
        f"did you mean {' or '.join(short_name(ids[match]) for match in near)}?"
        if near
        else "games are named like Pong, PongNoFrameskip-v4 or ALE/Pong-v5, groups three, six, "
        "atari57, all; an environment of your own, whose observations are pictures, is "
        "package.module:Id"
    )
    raise UsageError(f"Unknown game '{name}': {hint}")


def import_custom(env_id: str) -> None:
    """Imports the module of a custom environment. Raises UsageError if it is not there."""
    module, _, name = env_id.partition(":")
    try:
        importlib.import_module(module)
        gymnasium.spec(name)
    except Exception as error:  # A module may raise anything.
        raise UsageError(f"Cannot find environment '{env_id}': {explain_import(error)}") from error
