"""Statistics of games, measured over random play, with which a new agent is initialised."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from torchbeast.core.types import EnvStep, ObservationConfig
from torchbeast.envs.environment import derive_seed, make_env
from torchbeast.envs.stream import EnvStream
from torchbeast.runtime.isolation import DEADLINE_S, run_isolated
from torchbeast.runtime.workers import seed_generators

# Steps whose frames are measured. Those before are left out: start-up pictures are partly blank.
FRAME_STEPS = range(100, 500, 4)
# Steps of play for frames alone, and for frames and returns.
NUM_FRAME_STEPS, NUM_RETURN_STEPS = 500, 1000


class RandomPlayConfig(NamedTuple):
    """How games are played at random, and how their rewards become returns."""

    observation: ObservationConfig
    full_action_space: bool
    seed: int
    discounting: float
    clip_rewards: bool
    num_steps: int = NUM_RETURN_STEPS


class GameStatistics(NamedTuple):
    """What was measured of one game."""

    frame_mean: np.ndarray
    """The mean picture, float32 ``[C, H, W]``."""

    frame_std: float
    """The spread of all pixels around the mean picture."""

    return_mean: float
    """Mean of the discounted returns; 0 where all are equal. The last ones are cut off."""

    return_std: float
    """Their standard deviation; 1 where all are equal."""


def measure_games(
    env_ids: tuple[str, ...],
    config: RandomPlayConfig,
    *,
    num_processes: int = 1,
    deadline_s: float = DEADLINE_S,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[GameStatistics]:
    """Measures each game over random play, in child processes.

    The result depends on the seed alone, not on the number of processes.

    Args:
        config: the same for all games, the seed included.
        num_processes: how many games are measured at a time.
        deadline_s: seconds after which a step counts as hung.
        on_progress: called with the number of measured games, at least once a second.

    Returns:
        The statistics of each game, in the order of ``env_ids``.

    Raises:
        UsageError: an environment cannot be had.
        RunError: an environment raised an exception, ended its process or hung.
    """
    tasks = {i: functools.partial(measure_game, i, config) for i in env_ids}
    results = run_isolated(
        tasks, num_processes=num_processes, deadline_s=deadline_s, on_progress=on_progress
    )
    return [results[env_id] for env_id in env_ids]


def measure_game(
    env_id: str, config: RandomPlayConfig, alive: Callable[[], None] = lambda: None
) -> GameStatistics:
    """Measures one game in this process over ``config.num_steps`` random steps.

    ``alive`` is called at each step.
    """
    seed_generators(derive_seed(config.seed))
    pictures, rewards, ends = [], [], []
    for step, row in enumerate(_play_at_random(env_id, config)):
        alive()
        if step in FRAME_STEPS:
            pictures.append(np.array(row.frame))  # A copy: environments may reuse their buffers.
        rewards.append(row.reward)
        ends.append(row.done or row.truncated)
    frames = np.stack(pictures)
    mean = frames.mean(axis=0, dtype=np.float32)
    std = math.sqrt(np.mean([np.square(frame - mean).mean() for frame in frames]))
    return GameStatistics(mean, std, *_describe_returns(rewards, ends, config))


def _describe_returns(
    rewards: list[float], ends: list[bool], config: RandomPlayConfig
) -> tuple[float, float]:
    """Mean and standard deviation of the steps' returns; 0 and 1 if all are equal."""
    following, returns = 0.0, []
    for reward, done in zip(reversed(rewards), reversed(ends), strict=True):
        if config.clip_rewards:
            reward = min(max(reward, -1.0), 1.0)
        following = reward + config.discounting * following * (not done)
        returns.append(following)
    mean, std = float(np.mean(returns)), float(np.std(returns))
    return (mean, std) if std > 0 else (0.0, 1.0)


def _play_at_random(env_id: str, config: RandomPlayConfig) -> Iterator[EnvStep]:
    env = make_env(
        env_id,
        **config.observation._asdict(),
        full_action_space=config.full_action_space,
        seed=config.seed,
    )
    with contextlib.closing(env):
        env.action_space.seed(config.seed)
        stream = EnvStream(env, task=0)
        stream.initial()
        for _ in range(config.num_steps):
            row = stream.step(env.action_space.sample())
            yield row
            if row.truncated:
                stream.step(0)  # Resets the environment: no step of the game.
