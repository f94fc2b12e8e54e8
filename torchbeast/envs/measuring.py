"""What a new agent is told about its games before it learns: measured over random play."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from torchbeast.envs.environment import ObservationConfig, make_env


def measure_frames(
    env_ids: tuple[str, ...], observation: ObservationConfig, *, full_action_space: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each game's mean picture ``[K, C, H, W]``, and its pixels' spread around it ``[K]``; float32.

    The first hundred steps of a game are left out, since start-up pictures are partly blank.
    """
    skip, count, every = 100, 100, 4
    means, stds = [], []
    for env_id in env_ids:
        played = _play_at_random(env_id, observation, skip + count * every, full_action_space, seed)
        frames = np.stack([x for x, _, _ in itertools.islice(played, skip, None, every)])
        mean = frames.mean(axis=0, dtype=np.float32)
        means.append(mean)
        stds.append(np.sqrt(np.square(frames - mean).mean()))
    return np.stack(means), np.asarray(stds, np.float32)


def measure_returns(
    env_ids: tuple[str, ...],
    observation: ObservationConfig,
    *,
    full_action_space: bool,
    seed: int,
    discounting: float,
    clip_rewards: bool,
) -> list[tuple[float, float]]:
    """Mean and standard deviation of each game's discounted returns.

    Without any reward in a thousand steps: 0 and 1, which say nothing.
    """
    moments = []
    for env_id in env_ids:
        following, returns = 0.0, []
        played = _play_at_random(env_id, observation, 1000, full_action_space, seed)
        for reward, done in reversed([(reward, done) for _, reward, done in played]):
            if clip_rewards:
                reward = min(max(reward, -1.0), 1.0)
            following = reward + discounting * following * (not done)
            returns.append(following)
        mean, std = float(np.mean(returns)), float(np.std(returns))
        moments.append((mean, std) if std > 0 else (0.0, 1.0))
    return moments


def _play_at_random(
    env_id: str, observation: ObservationConfig, num_steps: int, full_action_space: bool, seed: int
) -> Iterator[tuple[np.ndarray, float, bool]]:
    """Frame, reward and whether an episode ended, of every step."""
    env = make_env(env_id, **observation._asdict(), full_action_space=full_action_space, seed=seed)
    env.action_space.seed(seed)
    env.reset()
    for _ in range(num_steps):
        frame, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            frame, _ = env.reset()
        yield frame, float(reward), bool(terminated or truncated)
    env.close()
