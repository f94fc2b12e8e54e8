"""Playing full games with a trained agent: one code for every agent and program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from torchbeast.core import checkpoint
from torchbeast.core.types import AgentOutput, EnvOutput, UsageError
from torchbeast.envs import DEFAULT_OBSERVATION, ObservationConfig, make_env, parse_games
from torchbeast.envs.games import short_name
from torchbeast.evaluate.config import TrainedAgentConfig
from torchbeast.models import Agent
from torchbeast.models.loading import from_contents

# Games played side by side, in batches of one forward pass.
PARALLEL_GAMES = 8


class Trained(NamedTuple):
    """A trained agent and what is known about it."""

    agent: Agent
    xpid: str
    model_id: str  # The agent steps it was trained for, where the checkpoint says so.
    observation: ObservationConfig = DEFAULT_OBSERVATION

    def find_task(self, env_id: str) -> int:
        """The game's index among the agent's, whatever the spelling of its id; 0 for any other."""
        names = [short_name(task) for task in self.agent.config.tasks]
        name = short_name(env_id)
        return names.index(name) if name in names else 0


class Episode(NamedTuple):
    """One full game."""

    env: str
    episode_return: float
    episode_step: int


def load_trained(flags: TrainedAgentConfig) -> Trained:
    """The agent that ``--savedir``, ``--xpid`` and ``--intermediate_model_id`` name.

    A shipped agent is found by its name alone. Raises UsageError.
    """
    xpid = flags.xpid or "latest"
    path = checkpoint.find_checkpoint(flags.savedir, xpid, flags.intermediate_model_id)
    if xpid == "latest":
        xpid = path.parent.resolve().name
    return read_trained(path, xpid, flags.intermediate_model_id, flags.agent_type)


def read_trained(
    path: Path, xpid: str, model_id: str | int | None = None, agent_type: str | None = None
) -> Trained:
    """The agent in the checkpoint at ``path``. Raises UsageError."""
    contents = checkpoint.load(path)
    return Trained(
        from_contents(contents, path, agent_type),
        xpid,
        str(model_id or contents.get("steps", "model")),
        read_observation_config(contents),
    )


def read_observation_config(contents: dict[str, Any]) -> ObservationConfig:
    """Returns the observation settings in a checkpoint, with defaults for those it lacks.

    Earlier versions of this program saved fewer settings; those had the default values.
    """
    fields = {name: contents[name] for name in ObservationConfig._fields if name in contents}
    return ObservationConfig(**fields)


def choose_games(trained: Trained, env: str | None) -> tuple[str, ...]:
    """The games that ``--env`` names, else those that the agent knows."""
    return trained.agent.config.tasks if env is None else parse_games(env)


def choose_game(trained: Trained, env: str | None) -> str:
    """The game that ``--env`` names, else the only one that the agent knows. Raises UsageError."""
    games = choose_games(trained, env)
    if len(games) > 1:
        raise UsageError(f"--env: choose one of {', '.join(games)}")
    return games[0]


def make_games(
    trained: Trained, env_id: str, count: int = 1, *, seed: int = 0, render_mode: str | None = None
) -> list[gymnasium.Env]:
    """Environments of full games with the agent's preprocessing and actions.

    Raises UsageError if the game's pictures or actions are not what the agent knows.
    """
    config = trained.agent.config
    for full_action_space in (False, True):
        envs = [
            make_env(
                env_id,
                **trained.observation._asdict(),
                full_action_space=full_action_space,
                full_games=True,
                seed=seed + i,
                render_mode=render_mode,
            )
            for i in range(count)
        ]
        num_actions = int(envs[0].action_space.n)  # type: ignore[attr-defined]
        shape = envs[0].observation_space.shape
        if shape != tuple(config.observation_shape):
            raise UsageError(
                f"The agent looks at {tuple(config.observation_shape)}, {env_id} shows {shape}"
            )
        if num_actions == config.num_actions:
            return envs
        for env in envs:
            env.close()
    raise UsageError(
        f"The agent has {config.num_actions} actions, {env_id} has {num_actions}: "
        "it was not trained on a game with these"
    )


class GameLoop:
    """Full games side by side under one agent, a forward pass per step for all.

    ``inputs`` (leaves ``[1, B, ...]``) and ``state`` are what the agent is about to see;
    ``actions`` are played first, at the start of every game, instead of the agent's.
    """

    def __init__(
        self,
        trained: Trained,
        env_id: str,
        envs: list[gymnasium.Env],
        *,
        greedy: bool = True,
        seed: int = 0,
        actions: Sequence[int] = (),
    ) -> None:
        torch.manual_seed(seed)
        self._agent = trained.agent
        self._env_id = env_id
        self._envs = envs
        self._greedy = greedy
        self._actions = actions
        count = len(envs)
        self.state = self._agent.initial_state(count)
        self._frames = np.stack([env.reset()[0] for env in envs])
        self._rewards, self._dones = np.zeros(count, np.float32), np.ones(count, bool)
        self.steps, self.returns = np.zeros(count, np.int64), np.zeros(count)
        self.last_actions = np.zeros(count, np.int64)
        self._task = trained.find_task(env_id)

    @property
    def inputs(self) -> EnvOutput:
        def row(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
            return torch.from_numpy(array).to(dtype).unsqueeze(0)

        count = len(self._envs)
        return EnvOutput(
            frame=torch.from_numpy(self._frames).unsqueeze(0),
            reward=row(self._rewards, torch.float32),
            done=row(self._dones, torch.bool),
            task=torch.full((1, count), self._task, dtype=torch.int32),
            episode_step=row(self.steps, torch.int32),
            episode_return=row(self.returns, torch.float32),
            truncated=torch.zeros(1, count, dtype=torch.bool),
            game_over=row(self._dones, torch.bool),
            last_action=row(self.last_actions, torch.int64),
        )

    def step(self, playing: np.ndarray | None = None) -> list[tuple[int, Episode]]:
        """Steps the environments that are ``playing`` (bool ``[B]``; None: all).

        Returns the games that ended, with the index of their environment, where the next game has
        begun.
        """
        self.output: AgentOutput
        with torch.inference_mode():
            self.output, self.state = self._agent(self.inputs, self.state, sample=not self._greedy)
        self.last_actions = self.output.action[0, :, 0].numpy().copy()
        for given in np.flatnonzero(self.steps < len(self._actions)):
            self.last_actions[given] = self._actions[self.steps[given]]
        ended = []
        for i in range(len(self._envs)):
            if playing is None or playing[i]:
                episode = self._step_one(i)
                if episode is not None:
                    ended.append((i, episode))
        return ended

    def _step_one(self, i: int) -> Episode | None:
        self._frames[i], self._rewards[i], terminated, truncated, info = self._envs[i].step(
            int(self.last_actions[i])
        )
        self.steps[i] += 1
        self.returns[i] += self._rewards[i]
        self._dones[i] = (terminated or truncated) and info.get("game_over", True)
        if terminated or truncated:
            self._frames[i] = self._envs[i].reset()[0]
        if not self._dones[i]:
            return None
        episode = Episode(self._env_id, float(self.returns[i]), int(self.steps[i]))
        self.steps[i], self.returns[i] = 0, 0.0
        return episode


def play(
    trained: Trained,
    env_id: str,
    num_episodes: int,
    *,
    greedy: bool = True,
    seed: int = 0,
    actions: Sequence[int] = (),
) -> Iterator[Episode]:
    """Plays full games, several side by side, and yields them as they end.

    Exactly the first ``num_episodes`` games started are counted: otherwise short games, which end
    first, would count too often.
    """
    count = min(num_episodes, PARALLEL_GAMES)
    envs = make_games(trained, env_id, count, seed=seed)
    loop = GameLoop(trained, env_id, envs, greedy=greedy, seed=seed, actions=actions)
    playing = np.ones(count, bool)
    started = count
    while playing.any():
        for i, episode in loop.step(playing):
            yield episode
            playing[i] = started < num_episodes
            started += int(playing[i])
    for env in envs:
        env.close()


def watch_game(
    trained: Trained,
    env_id: str,
    look: Callable[[GameLoop], Any],
    *,
    seed: int,
    actions: Sequence[int],
    first_frame: int,
    num_frames: int,
) -> Iterator[tuple[int, np.ndarray, Any, GameLoop]]:
    """Step, picture, what ``look`` made of the loop before the step, and the loop after it.

    For ``num_frames`` steps of one game from ``first_frame`` on, or until it ends. UsageError if it
    ends before.
    """
    (env,) = make_games(trained, env_id, seed=seed, render_mode="rgb_array")
    loop = GameLoop(trained, env_id, [env], seed=seed, actions=actions)
    with contextlib.closing(env):
        for step in range(first_frame + num_frames):
            wanted = step >= first_frame
            if wanted:
                picture: Any = env.render()
                seen = look(loop)
            ended = loop.step()
            if wanted:
                yield step, picture, seen, loop
            elif ended:
                raise UsageError(
                    f"--first_frame {first_frame}: the game ends after {step + 1} steps"
                )
            if ended:
                return
