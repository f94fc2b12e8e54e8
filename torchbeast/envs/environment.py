"""The one place where environments are made."""

from __future__ import annotations

from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np

from torchbeast.core.types import ObservationConfig, UsageError
from torchbeast.envs import games
from torchbeast.envs.mock import Mock
from torchbeast.envs.preprocessing import PROFILES, AtariPreprocessing
from torchbeast.runtime.alarm import Watched, alarm

# OpenCV would start a thread per core in every environment server.
cv2.setNumThreads(1)


DEFAULT_OBSERVATION = ObservationConfig()


def describe_environment(
    env_id: str, observation: ObservationConfig, full_action_space: bool
) -> str:
    """Describes what :func:`make_env` makes, so that a learner can compare it with a server's.

    >>> describe_environment("ALE/Pong-v5", ObservationConfig(), full_action_space=False)
    'Pong (deepmind, gray_stack, 84 x 84)'
    >>> describe_environment("my.module:Catch-v0", ObservationConfig(), full_action_space=False)
    'my.module:Catch-v0'
    """
    if games.is_custom(env_id):
        return env_id  # The rest has no effect there.
    size = f"{observation.frame_height} x {observation.frame_width}"
    parts = [observation.preprocessing, observation.frame_format, size]
    parts += ["all 18 actions"] if full_action_space else []
    return f"{games.short_name(env_id)} ({', '.join(parts)})"


def make_env(
    env_id: str,
    *,
    preprocessing: str = "deepmind",
    frame_format: str = "gray_stack",
    frame_height: int = 84,
    frame_width: int = 84,
    full_action_space: bool = False,
    full_games: bool = False,
    seed: int | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Makes an environment ready for the agent.

    Args:
        env_id: ``Pong``, ``PongNoFrameskip-v4``, ``ALE/Pong-v5`` (the same game here: the profile
            decides about frame skip and sticky actions), ``package.module:Id`` for a Gymnasium
            environment of the user's, or ``Mock``.
        preprocessing: a profile of ``preprocessing.PROFILES``; for games only, as the next three.
        frame_format: one of ``preprocessing.FRAME_FORMATS``.
        frame_height: rows of a picture; a game's own are 210.
        frame_width: columns of a picture; a game's own are 160.
        full_action_space: all 18 actions, whatever the profile says.
        full_games: end episodes with the game only, not at lost lives.
        seed: seeds the environment. The sequence of all its games depends on it.
        render_mode: as in Gymnasium.

    Returns:
        An environment with observations uint8 ``[C, H, W]`` for games, ``[4, 84, 84]`` by default,
        and whatever it has, with channels first, for others. ``info["game_over"]`` is False where
        only a life was lost.

    Raises:
        UsageError: there is no such environment, or it cannot be drawn.
    """
    env: gymnasium.Env
    env_id = games.find_game(env_id)
    if env_id == games.MOCK:
        env = Mock()
    elif games.is_atari(env_id):
        observation = ObservationConfig(preprocessing, frame_format, frame_height, frame_width)
        env = _make_atari(env_id, observation, full_action_space, full_games, render_mode)
    else:
        options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        games.import_custom(env_id)
        try:
            env = gymnasium.make(env_id, **options)
        except TypeError as error:
            if "unexpected keyword argument 'render_mode'" not in str(error):
                raise
            raise UsageError(
                f"'{env_id}' cannot be drawn: it takes no render_mode (docs/networks.md has an "
                "environment that does)"
            ) from error
        env = _move_channels_first(env)
    if seed is not None:
        env.reset(seed=seed)
    return env


def make_watched(
    env_id: str,
    observation: ObservationConfig,
    *,
    full_action_space: bool,
    seed: int,
    timeout_s: float,
) -> Watched:
    """Makes an environment that ends this process if it takes too long.

    Args:
        env_id: as in :func:`make_env`, like the others.
        timeout_s: the longest time that making it, or any call of it, may take, in seconds.
    """
    with alarm(timeout_s):
        env = make_env(
            env_id, **observation._asdict(), full_action_space=full_action_space, seed=seed
        )
    return Watched(env, timeout_s)


def _make_atari(
    env_id: str,
    observation: ObservationConfig,
    full_action_space: bool,
    full_games: bool,
    render_mode: str | None,
) -> gymnasium.Env:
    profile = PROFILES[observation.preprocessing]
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # No banner per process.
    env = gymnasium.make(
        env_id,
        render_mode=render_mode,
        frameskip=1,
        repeat_action_probability=profile.sticky_action_probability,
        disable_env_checker=True,
    )
    return AtariPreprocessing(env, observation, full_action_space, full_games)


def derive_seed(*entropy: int) -> int:
    """Derives a seed for one of many environments; other numbers give an unrelated one."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def _move_channels_first(env: gymnasium.Env) -> gymnasium.Env:
    """Turns pictures ``[H, W, C]`` into the ``[C, H, W]`` that networks here expect.

    They are recognized by their last axis, which is the shortest: channels are fewer than rows.
    """
    space = env.observation_space
    if (
        not isinstance(space, gymnasium.spaces.Box)
        or space.dtype != np.uint8
        or len(space.shape) != 3
        or space.shape[-1] >= min(space.shape[:2])
    ):
        return env

    def move(picture: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(picture, -1, 0))

    moved = gymnasium.spaces.Box(move(space.low), move(space.high), dtype=np.uint8)
    return gymnasium.wrappers.TransformObservation(env, move, moved)
