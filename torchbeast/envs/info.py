"""``--mode env_info``: lists the games and their actions."""

from __future__ import annotations

import contextlib

import gymnasium

from torchbeast.envs.environment import make_env
from torchbeast.envs.games import games_by_name, is_atari, parse_games
from torchbeast.envs.specs import atari_actions, check_actions


def action_names(env_id: str) -> list[str]:
    """Returns the names of an agent's actions 0, 1, ... in a game."""
    if is_atari(env_id):
        return list(atari_actions(env_id))
    with contextlib.closing(make_env(env_id)) as env:
        check_actions(env_id, env)
        return name_actions(env)


def name_actions(env: gymnasium.Env) -> list[str]:
    """Returns the names of the actions of an environment of :func:`make_env`."""
    count = int(env.action_space.n)  # type: ignore[attr-defined]
    return [getattr(a, "name", str(a)) for a in getattr(env, "actions", range(count))]


def actions_of_games(env: str | None = None) -> dict[str, list[str]]:
    """Returns the action names of the games that ``--env`` names (None: of all), by id."""
    return {game: action_names(game) for game in _choose(env)}


def print_games(env: str | None = None) -> None:
    """Prints a line per game that ``--env`` names (None: all of them): its id and its actions."""
    games = _choose(env)
    width = max(map(len, games))
    for game in games:
        names = action_names(game)
        print(f"{game:{width}}  {len(names):2}  {' '.join(names)}", flush=True)


def _choose(env: str | None) -> tuple[str, ...]:
    return tuple(games_by_name().values()) if env is None else parse_games(env)
