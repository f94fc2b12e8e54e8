"""Actions and pictures of games: what an agent must fit, and what ``--mode env_info`` lists."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import ale_py
import gymnasium
import numpy as np

from torchbeast.core.types import ObservationConfig, UsageError
from torchbeast.envs import games
from torchbeast.envs.environment import DEFAULT_OBSERVATION, make_env
from torchbeast.envs.games import games_by_name, is_atari, parse_games
from torchbeast.envs.preprocessing import FRAME_FORMATS, PROFILES
from torchbeast.envs.stream import check_observation
from torchbeast.runtime.isolation import DEADLINE_S, run_isolated

# Every game's when the full action space is used.
FULL_ACTIONS = tuple(action.name for action in map(ale_py.Action, range(18)))


class EnvSpec(NamedTuple):
    """What all environments of a run have in common, or one custom environment has."""

    num_actions: int
    observation_shape: tuple[int, ...]
    full_action_space: bool = False


def plan_envs(
    env_ids: tuple[str, ...],
    observation: ObservationConfig = DEFAULT_OBSERVATION,
    deadline_s: float = DEADLINE_S,
) -> EnvSpec:
    """Finds out what the agent must fit.

    Games whose action sets differ all get the full one. No Atari game is made for it, and custom
    environments are made in a child process.

    Args:
        observation: the preprocessing of Atari games.
        deadline_s: seconds after which a custom environment that is made counts as hung.

    Returns:
        What the games have in common.

    Raises:
        UsageError: an environment cannot be had, or they do not go together.
        RunError: a custom environment raised an exception, ended its process or hung.
    """
    custom = _describe_custom([i for i in env_ids if not games.is_atari(i)], deadline_s)
    atari = [i for i in env_ids if games.is_atari(i)]
    shapes = {env_id: spec.observation_shape for env_id, spec in custom.items()}
    shapes |= dict.fromkeys(atari, _atari_shape(observation))
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{env_id} {shape}" for env_id, shape in shapes.items())
        raise UsageError(f"These environments differ in their pictures: {listed}")
    for full_action_space in (False, True):
        actions = {tuple(range(spec.num_actions)) for spec in custom.values()}
        for env_id in atari:
            names = atari_actions(env_id, observation, full_action_space)
            actions.add(tuple(map(FULL_ACTIONS.index, names)))
            if len(actions) > 1:
                break  # The actions of the others change nothing.
        if len(actions) == 1:
            return EnvSpec(len(actions.pop()), shapes[env_ids[0]], full_action_space)
    hint = f"; beside Atari games the others need all {len(FULL_ACTIONS)} actions" if atari else ""
    raise UsageError(f"These environments differ in their actions: {', '.join(env_ids)}{hint}")


def atari_actions(
    env_id: str, observation: ObservationConfig = DEFAULT_OBSERVATION, full: bool = False
) -> tuple[str, ...]:
    """Returns the names of the actions of an Atari game, without making an environment.

    Args:
        observation: its preprocessing; some profiles have all 18 actions.
        full: all 18 actions, whatever the profile says.
    """
    if full or PROFILES[observation.preprocessing].full_action_space:
        return FULL_ACTIONS
    return _minimal_actions(gymnasium.spec(env_id).kwargs["game"])


@functools.cache
def _minimal_actions(rom: str) -> tuple[str, ...]:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    path = ale_py.roms.get_rom_path(rom)
    assert path is not None  # Its game is registered.
    ale.loadROM(path)
    return tuple(action.name for action in ale.getMinimalActionSet())


def _atari_shape(observation: ObservationConfig) -> tuple[int, ...]:
    frames = FRAME_FORMATS[observation.frame_format]
    channels = frames.num_pictures * (3 if frames.colour else 1)
    return (channels, observation.frame_height, observation.frame_width)


def _describe_custom(env_ids: list[str], deadline_s: float) -> dict[str, EnvSpec]:
    # The program's own environment needs no separate process.
    specs = {i: describe_custom(i) for i in env_ids if i == games.MOCK}
    tasks = {i: functools.partial(describe_custom, i) for i in env_ids if i not in specs}
    return {**specs, **run_isolated(tasks, deadline_s=deadline_s)}


def check_actions(env_id: str, env: gymnasium.Env) -> int:
    """Returns the number of an environment's actions. Raises UsageError if no agent fits them."""
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        raise UsageError(f"'{env_id}' has no discrete actions: {env.action_space}")
    if env.action_space.start != 0:
        raise UsageError(
            f"'{env_id}' has actions from {env.action_space.start} on; agents take them from 0 "
            "on: convert them with gymnasium.wrappers.TransformAction"
        )
    return int(env.action_space.n)


def describe_custom(env_id: str, alive: Callable[[], None] = lambda: None) -> EnvSpec:
    """Describes a custom environment by making it in this process.

    Args:
        alive: for :func:`run_isolated`; never called.

    Returns:
        Its actions and pictures.

    Raises:
        UsageError: there is no such environment, or no agent fits it.
    """
    env = make_env(env_id)
    with contextlib.closing(env):
        num_actions = check_actions(env_id, env)
        shape = env.observation_space.shape
        if not shape or len(shape) != 3:
            raise UsageError(f"'{env_id}' has no picture [C, H, W] to look at: shape {shape}")
        dtype = env.observation_space.dtype
        if dtype != np.uint8:
            raise UsageError(
                f"'{env_id}' has pictures of {dtype}; agents take uint8 from 0 to 255: convert "
                "them with gymnasium.wrappers.TransformObservation"
            )
        check_first_observation(env_id, env)
        return EnvSpec(num_actions, tuple(shape))


def check_first_observation(env_id: str, env: gymnasium.Env) -> None:
    """Raises UsageError if ``reset`` returns something else than the observation space says."""
    frame, space = env.reset()[0], env.observation_space
    assert isinstance(space, gymnasium.spaces.Box)
    try:
        check_observation(frame, space)
    except ValueError as error:
        raise UsageError(f"'{env_id}': {error}") from error


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
    ids = tuple(games_by_name().values()) if env is None else parse_games(env)
    return {env_id: action_names(env_id) for env_id in ids}
