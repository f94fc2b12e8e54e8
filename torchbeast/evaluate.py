"""Playing full games with a trained agent: one code for every agent and every program."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from torchbeast.core import checkpoint
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.envs import make_env, parse_games
from torchbeast.envs.games import short_name
from torchbeast.models import Agent
from torchbeast.models.loading import from_contents

# Games played side by side, in batches of one forward pass.
PARALLEL_GAMES = 8


class Episode(NamedTuple):
    """One full game."""

    env: str
    episode_return: float
    episode_step: int


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
    actions: Sequence[int] = (),
) -> Iterator[Episode]:
    """Plays full games, several side by side, and yields them as they end.

    ``actions`` are played first, at the start of every game, instead of the agent's.

    Exactly the first ``num_episodes`` games started are counted: otherwise short games, which end
    first, would count too often.
    """
    full = _needs_full_action_space(agent, env_id, preprocessing)
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
            output, state = agent(inputs, state, sample=not greedy)
        last_actions = output.action[0, :, 0].numpy().copy()
        for i in np.flatnonzero(steps < len(actions)):
            last_actions[i] = actions[steps[i]]
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
                f"The agent looks at {tuple(agent.config.observation_shape)}, "
                f"{env_id} shows {shape}"
            )
        if count == agent.config.num_actions:
            return full
    raise UsageError(
        f"The agent has {agent.config.num_actions} actions, {env_id} has {count}: "
        "it was not trained on a game with these"
    )


def read_actions(path: str, num_actions: int) -> list[int]:
    """The actions in a file of integers between white space. Raises UsageError."""
    try:
        actions = [int(word) for word in Path(path).expanduser().read_text().split()]
    except (OSError, ValueError) as error:
        raise UsageError(f"--actions {path}: {error}") from error
    if any(not 0 <= action < num_actions for action in actions):
        raise UsageError(f"--actions {path}: the agent's actions are 0 to {num_actions - 1}")
    return actions


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


def run_test(flags: argparse.Namespace) -> None:
    """``--mode test``: plays full games with a trained agent, by default on the games it knows.

    Prints a line per episode, ``xpid,model id,env,steps,return``, and a summary per game; with
    ``--json`` one JSON document instead. An agent with PopArt has no value head for other games,
    but its policy is one for all, so those can be played, too.
    """
    xpid = flags.xpid or "latest"
    path = checkpoint.model_path(flags.savedir, xpid, flags.intermediate_model_id)
    contents = checkpoint.load(path)
    agent = from_contents(contents, path)
    games = agent.config.tasks if flags.env is None else parse_games(flags.env)
    model_id = flags.intermediate_model_id or contents.get("steps", "model")
    options = {
        "preprocessing": contents.get("preprocessing", "deepmind"),
        "greedy": flags.greedy,
        "seed": flags.seed or 0,
    }
    actions = read_actions(flags.actions, agent.config.num_actions) if flags.actions else ()
    summaries = []
    for game in games:
        episodes = []
        for episode in play(agent, game, flags.num_episodes, actions=actions, **options):
            episodes.append(episode)
            if not flags.json:
                values = (xpid, model_id, game, episode.episode_step, f"{episode.episode_return:g}")
                print(*values, sep=",", flush=True)
        summaries.append(summarize(episodes))
    if flags.json:
        print(
            json.dumps({"xpid": xpid, "model": model_id, **options, "games": summaries}, indent=2)
        )
        return
    for summary in summaries:
        print(
            "{env}: mean return {mean:.2f}, standard deviation {std:.2f} "
            "over {episodes} full games ({min:g} to {max:g})".format(**summary)
        )
