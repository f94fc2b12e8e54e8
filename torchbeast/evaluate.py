"""Playing full games with a trained agent: one code for every agent and every program."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.envs import make_env
from torchbeast.envs.games import short_name
from torchbeast.models import Agent

# Games played side by side, in batches of one forward pass.
PARALLEL_GAMES = 8


class Episode(NamedTuple):
    """One full game."""

    env: str
    episode_return: float
    episode_step: int


def choose_games(agent: Agent, env: str | None) -> tuple[str, ...]:
    """The games to play: those of ``--env``, by default the agent's own.

    An agent without PopArt may try any game; one with PopArt has no value head for others, but its
    policy is the same for all, so they are played, too.
    """
    from torchbeast.envs import parse_games

    return agent.config.tasks if env is None else parse_games(env)


def find_task(agent: Agent, env_id: str) -> int:
    """The index of the game's value head, whatever the spelling of its id; 0 if it has none."""
    names = [short_name(task) for task in agent.config.tasks]
    name = short_name(env_id)
    return names.index(name) if name in names else 0


def play(
    agent: Agent,
    env_id: str,
    num_episodes: int,
    *,
    preprocessing: str = "deepmind",
    greedy: bool = True,
    seed: int = 0,
) -> Iterator[Episode]:
    """Plays full games, several side by side, and yields them as they end.

    Exactly the first ``num_episodes`` games started are counted: otherwise short games, which end
    first, would count too often.
    """
    full = _needs_full_action_space(agent, env_id, preprocessing)
    agent.train(not greedy)  # In training mode actions are sampled.
    torch.manual_seed(seed)
    num_envs = min(num_episodes, PARALLEL_GAMES)
    envs = [
        make_env(
            env_id,
            preprocessing=preprocessing,
            full_action_space=full,
            full_games=True,
            seed=seed + i,
        )
        for i in range(num_envs)
    ]
    task = find_task(agent, env_id)
    frames = np.stack([env.reset()[0] for env in envs])
    rewards, dones = np.zeros(num_envs, np.float32), np.ones(num_envs, bool)
    steps, returns = np.zeros(num_envs, np.int64), np.zeros(num_envs)
    last_actions = np.zeros(num_envs, np.int64)
    playing = np.ones(num_envs, bool)
    started = num_envs
    state = agent.initial_state(num_envs)
    while playing.any():
        inputs = _batch(frames, rewards, dones, task, steps, returns, last_actions)
        with torch.inference_mode():
            output, state = agent(inputs, state)
        last_actions = output.action[0, :, 0].numpy().copy()
        for i in np.flatnonzero(playing):
            frames[i], rewards[i], terminated, truncated, info = envs[i].step(int(last_actions[i]))
            steps[i] += 1
            returns[i] += rewards[i]
            dones[i] = (terminated or truncated) and info.get("game_over", True)
            if terminated or truncated:
                frames[i] = envs[i].reset()[0]
            if dones[i]:
                yield Episode(env_id, float(returns[i]), int(steps[i]))
                steps[i], returns[i] = 0, 0.0
                playing[i] = started < num_episodes
                started += int(playing[i])
    for env in envs:
        env.close()


def _batch(
    frames: np.ndarray,
    rewards: np.ndarray,
    dones: np.ndarray,
    task: int,
    steps: np.ndarray,
    returns: np.ndarray,
    last_actions: np.ndarray,
) -> EnvOutput:
    """One row ``[1, B, ...]`` of records."""

    def row(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(array).to(dtype).unsqueeze(0)

    return EnvOutput(
        frame=torch.from_numpy(frames).unsqueeze(0),
        reward=row(rewards, torch.float32),
        done=row(dones, torch.bool),
        task=torch.full((1, len(frames)), task, dtype=torch.int32),
        episode_step=row(steps, torch.int32),
        episode_return=row(returns, torch.float32),
        truncated=torch.zeros(1, len(frames), dtype=torch.bool),
        game_over=row(dones, torch.bool),
        last_action=row(last_actions, torch.int64),
    )


def _needs_full_action_space(agent: Agent, env_id: str, preprocessing: str) -> bool:
    """Whether the agent's actions are the full set. UsageError if they fit the game in no way."""
    for full in (False, True):
        env = make_env(env_id, preprocessing=preprocessing, full_action_space=full)
        count = int(env.action_space.n)  # type: ignore[attr-defined]
        shape = env.observation_space.shape
        env.close()
        if shape != tuple(agent.config.observation_shape):
            raise UsageError(
                f"The agent looks at {tuple(agent.config.observation_shape)}, {env_id} shows {shape}"
            )
        if count == agent.config.num_actions:
            return full
    raise UsageError(
        f"The agent has {agent.config.num_actions} actions, {env_id} has {count}: "
        "it was not trained on a game with these"
    )


def summarize(episodes: list[Episode]) -> dict[str, Any]:
    """Statistics of one game's full-game returns."""
    returns = [episode.episode_return for episode in episodes]
    return {
        "env": episodes[0].env,
        "episodes": len(returns),
        "mean": statistics.fmean(returns),
        "std": statistics.pstdev(returns),
        "min": min(returns),
        "max": max(returns),
        "mean_steps": statistics.fmean(e.episode_step for e in episodes),
    }


def run_test(
    agent: Agent,
    games: tuple[str, ...],
    num_episodes: int,
    *,
    label: str,
    preprocessing: str,
    greedy: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Tests on each game; prints a line per episode ``label,env,steps,return`` and a summary.

    With ``as_json`` prints one JSON document instead.
    """
    summaries = []
    for game in games:
        episodes = []
        for episode in play(
            agent, game, num_episodes, preprocessing=preprocessing, greedy=greedy, seed=seed
        ):
            episodes.append(episode)
            if not as_json:
                print(
                    f"{label},{game},{episode.episode_step},{episode.episode_return:g}", flush=True
                )
        summaries.append(summarize(episodes))
    if as_json:
        returns = {"agent": label, "greedy": greedy, "preprocessing": preprocessing}
        print(json.dumps({**returns, "games": summaries}, indent=2))
        return
    for summary in summaries:
        print(
            "{env}: mean return {mean:.2f}, standard deviation {std:.2f} "
            "over {episodes} full games ({min:g} to {max:g})".format(**summary)
        )
