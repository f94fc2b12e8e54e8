"""Playing full games with a trained agent: one code for every agent and program."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np
import torch

from torchbeast.core.types import ENV_OUTPUT_TYPES, EnvOutput, UsageError
from torchbeast.envs import EnvStream, make_env
from torchbeast.envs.games import find_game, is_atari, is_custom, short_name
from torchbeast.envs.specs import (
    FULL_ACTIONS,
    check_actions,
    check_first_observation,
    name_actions,
)
from torchbeast.play.agents import Trained
from torchbeast.runtime.text import first_line
from torchbeast.runtime.workers import seed_generators

log = logging.getLogger("torchbeast")

# Games played side by side, in batches of one forward pass.
PARALLEL_GAMES = 8
# A game of a custom environment ends here at the latest; one of the emulator after as many steps.
MAX_GAME_STEPS = 27_000


class PlayedGame(NamedTuple):
    """One full game."""

    env: str
    episode_return: float
    episode_step: int

    def print_line(self, trained: Trained) -> None:
        """Prints ``xpid,model id,env,steps,return`` of the agent that played it."""
        values = (self.env, self.episode_step, f"{self.episode_return:g}")
        print(trained.xpid, trained.model_id, *values, sep=",", flush=True)


@functools.cache  # Once is enough.
def _report_limit(env_id: str, limit: int) -> None:
    log.warning(
        "%s: a game that is not over after %s steps ends there, with the return it has",
        env_id,
        f"{limit:,}",
    )


@contextlib.contextmanager
def open_games(
    trained: Trained, env_id: str, count: int = 1, *, seed: int = 0, render_mode: str | None = None
) -> Iterator[list[gymnasium.Env]]:
    """Makes environments with the agent's preprocessing and actions, and closes them in the end.

    Their episodes end where those of training do, so that the agent's memory is reset likewise.
    Raises UsageError if the game's pictures or actions are not what the agent knows.
    """
    config = trained.agent.config
    with contextlib.ExitStack() as stack:
        envs = []
        for i in range(count):
            env = make_env(
                env_id,
                **trained.observation._asdict(),
                full_action_space=config.num_actions == len(FULL_ACTIONS),
                seed=seed + i,
                render_mode=render_mode,
            )
            stack.callback(env.close)
            envs.append(env)
        num_actions = check_actions(env_id, envs[0])
        if num_actions != config.num_actions:
            known = (game if is_custom(game) else short_name(game) for game in config.tasks)
            raise UsageError(
                f"{trained.xpid} has {config.num_actions} actions, {env_id} has {num_actions}: "
                f"choose a game that it knows: {', '.join(known)}"
            )
        shape = envs[0].observation_space.shape
        if shape != tuple(config.observation_shape):
            raise UsageError(
                "The agent was trained on observations of shape "
                f"{tuple(config.observation_shape)}, {env_id} has {shape}"
            )
        if is_custom(find_game(env_id)):
            check_first_observation(env_id, envs[0])
        yield envs


class GameLoop:
    """Full games side by side under one agent, a forward pass per step for all.

    ``inputs`` (leaves ``[1, B, ...]``) and ``state`` are what the agent is about to see;
    ``actions`` are played first, at the start of every game, instead of the agent's. A game
    continues over its lives, and the agent's memory is reset where it was in training. A game of a
    custom environment ends after ``MAX_GAME_STEPS``, or after its own limit if that is more.
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
        seed_generators(seed % 2**32)
        self._agent = trained.agent
        self._env_id = env_id
        self._greedy = greedy
        self._actions = actions
        self._task = trained.task_or_first(env_id)
        self._streams = [EnvStream(env, self._task) for env in envs]
        self._rows = [stream.initial() for stream in self._streams]
        own = envs[0].spec.max_episode_steps if envs[0].spec is not None else None
        is_limited = not is_atari(find_game(env_id))  # An emulator limits its games itself.
        self._limit = max(MAX_GAME_STEPS, own or 0) if is_limited else math.inf
        self.state = self._agent.initial_state(len(envs))
        self.last_actions = np.zeros(len(envs), np.int64)

    @property
    def inputs(self) -> EnvOutput:
        """The agent's inputs of the next step, ``[1, B, ...]``."""
        numbers = {
            name: torch.tensor(
                [[getattr(row, name) for row in self._rows]], dtype=getattr(torch, t)
            )
            for name, t in ENV_OUTPUT_TYPES.items()
        }
        frames = torch.from_numpy(np.stack([row.frame for row in self._rows]))
        return EnvOutput(frame=frames.unsqueeze(0), **numbers)

    def step(self, playing: np.ndarray | None = None) -> list[tuple[int, PlayedGame]]:
        """Steps the environments that are ``playing`` (bool ``[B]``; None: all).

        Returns the games that ended, with the index of their environment, where the next game has
        begun.
        """
        with torch.inference_mode():
            output, self.state = self._agent(self.inputs, self.state, sample=not self._greedy)
        self.last_actions = output.action[0, :, 0].numpy().copy()
        for i, row in enumerate(self._rows):
            steps = 0 if row.game_over else row.episode_step
            if steps < len(self._actions):
                self.last_actions[i] = self._actions[steps]
        ended = []
        for i, stream in enumerate(self._streams):
            if playing is not None and not playing[i]:
                continue
            row = stream.step(int(self.last_actions[i]))
            if row.truncated:  # Nobody learns from the final observation: on to the next episode.
                row = stream.step(int(self.last_actions[i]))
            self._rows[i] = row
            is_endless = not row.game_over and row.episode_step >= self._limit
            if is_endless:
                _report_limit(self._env_id, row.episode_step)
                self._streams[i] = EnvStream(stream.env, self._task)
                self._rows[i] = self._streams[i].initial()
            if row.game_over or is_endless:
                ended.append((i, PlayedGame(self._env_id, row.episode_return, row.episode_step)))
        return ended


def play(
    trained: Trained,
    env_id: str,
    num_episodes: int,
    *,
    greedy: bool = True,
    seed: int = 0,
    actions: Sequence[int] = (),
    after_step: Callable[[], object] = lambda: None,
) -> Iterator[PlayedGame]:
    """Plays full games, several side by side, and yields them as they end.

    Exactly the first ``num_episodes`` games started are counted: otherwise short games, which end
    first, would count too often. ``after_step`` is called after each step; what it raises ends the
    games.
    """
    count = min(num_episodes, PARALLEL_GAMES)
    with open_games(trained, env_id, count, seed=seed) as envs:
        loop = GameLoop(trained, env_id, envs, greedy=greedy, seed=seed, actions=actions)
        playing = np.ones(count, bool)
        started = count
        while playing.any():
            for i, episode in loop.step(playing):
                yield episode
                playing[i] = started < num_episodes
                started += int(playing[i])
            after_step()


def draw_game(env: gymnasium.Env) -> np.ndarray:
    """Returns the game's picture, in colour, uint8 ``[H, W, 3]``.

    Raises:
        UsageError: the environment draws none, though it takes a ``render_mode``.
    """
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    try:
        picture = np.array(env.render())  # A copy: environments may reuse their buffers.
    except Exception as error:
        raise UsageError(f"'{name}' cannot be drawn: {first_line(error)}") from error
    if picture.ndim != 3 or picture.shape[-1] != 3 or picture.dtype != np.uint8:
        raise UsageError(
            f"'{name}' cannot be drawn: its render() returns no picture uint8 [H, W, 3]"
        )
    return picture


class WatchedStep(NamedTuple):
    """One step of a game: what was seen before it, and the action."""

    step: int
    picture: np.ndarray  # uint8 [H, W, 3], in colour.
    inputs: EnvOutput  # What the agent saw, leaves [1, 1, ...].
    state: tuple[torch.Tensor, ...]  # Its recurrent state before.
    action: int


def watch_game(
    trained: Trained,
    env_id: str,
    *,
    seed: int = 0,
    actions: Sequence[int] = (),
    first_frame: int = 0,
    num_frames: int,
) -> Iterator[WatchedStep]:
    """Yields ``num_frames`` steps of one game from ``first_frame`` on, or until it ends.

    Raises UsageError if it ends before ``first_frame``.
    """
    with open_games(trained, env_id, seed=seed, render_mode="rgb_array") as (env,):
        loop = GameLoop(trained, env_id, [env], seed=seed, actions=actions)
        for step in range(first_frame + num_frames):
            wanted = step >= first_frame
            if wanted:
                picture, inputs, state = draw_game(env), loop.inputs, loop.state
            ended = loop.step()
            if wanted:
                yield WatchedStep(step, picture, inputs, state, int(loop.last_actions[0]))
            elif ended:
                raise UsageError(
                    f"--first_frame {first_frame}: the game ends after {step + 1} steps"
                )
            if ended:
                return


def agent_action_names(trained: Trained, env_id: str) -> list[str]:
    """Returns the names of the agent's actions in a game, such as NOOP and FIRE."""
    with open_games(trained, env_id) as (env,):
        return name_actions(env)


def translate_actions(
    actions: Sequence[int], env_id: str, source: Trained, target: Trained
) -> list[int]:
    """Translates one agent's actions in a game to another's: some know all 18, some the game's own.

    Raises UsageError if the other lacks one.
    """
    if source.agent.config.num_actions == target.agent.config.num_actions:
        return list(actions)
    names, others = (agent_action_names(trained, env_id) for trained in (source, target))
    missing = sorted({names[action] for action in actions} - set(others))
    if missing:
        raise UsageError(f"{target.xpid} has no action {missing[0]}, which {source.xpid} plays")
    return [others.index(names[action]) for action in actions]


def read_actions(path: str | None, num_actions: int) -> list[int]:
    """Reads the actions in a file of integers between white space. Raises UsageError.

    In files of 2019 an action may also be a tensor of one number: ``tensor([[[3]]])``.
    """
    if path is None:
        return []
    try:
        text = Path(path).expanduser().read_text()
        text = re.sub(r"tensor\(\[*\s*(-?\d+)\s*\]*[^)]*\)", r"\1", text)
        actions = [int(word) for word in text.split()]
    except OSError as error:
        raise UsageError(f"--actions {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--actions {path}: it must hold integers only: {error}") from error
    if any(not 0 <= action < num_actions for action in actions):
        raise UsageError(f"--actions {path}: the agent's actions are 0 to {num_actions - 1}")
    return actions
