"""How alike two ResNet agents respond to the same frames: linear CKA, layer by layer.

Centred kernel alignment (CKA, Kornblith et al. 2019, arXiv:1905.00414) compares the responses of
two layers to the same inputs. It does not change with the order of filters, with rotation or scale.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from torchbeast.analysis.agents import RunAgent, Snapshot
from torchbeast.analysis.comparison import Pair
from torchbeast.analysis.excitation import find_layer
from torchbeast.analysis.filters import LAYER_NAMES, Distance
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.evaluate.playing import (
    PARALLEL_GAMES,
    GameLoop,
    Trained,
    make_games,
    read_trained,
)
from torchbeast.models import Agent
from torchbeast.models.recurrence import CoreState

log = logging.getLogger("torchbeast")

FIRST_STEP = 40  # The first frames of all games are nearly the same.
STEPS_APART = 4  # Neighbouring frames are nearly the same.


def centred_gram(activations: Tensor) -> Tensor:
    """Computes inner products ``[N, N]`` of the centred rows of ``[N, ...]``."""
    rows = activations.flatten(1)
    rows = rows - rows.mean(dim=0)
    return rows @ rows.T


def linear_cka(a: Tensor, b: Tensor) -> float:
    """Computes the similarity in [0, 1] of two layers' centred Gram matrices ``[N, N]`` over the
    same inputs.

    Equation 5 of the paper with linear kernels. It equals equation 3 and needs no matrix of
    features by features. A layer whose responses are all equal has similarity 0.
    """
    norm = a.norm() * b.norm()
    return float((a * b).sum() / norm) if norm > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class Moments:
    """An agent's inputs at moments of its games, in the order of time.

    Several games are played at the same time, so neighbouring moments are of different games.
    """

    inputs: EnvOutput
    """Leaves ``[1, N, ...]``."""
    state: CoreState
    """The recurrent state before each moment, leaves ``[L, N, H]``."""

    def __len__(self) -> int:
        return self.inputs.frame.shape[1]

    def split(self, size: int) -> Iterator[Moments]:
        """Yields parts of ``size`` moments; the last part may be smaller."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Moments(
                EnvOutput(*(leaf[:, part] for leaf in self.inputs)),
                tuple(leaf[:, part] for leaf in self.state),
            )


def play_moments(
    trained: Trained, env_id: str, count: int, *, seed: int = 0, steps_apart: int = STEPS_APART
) -> Moments:
    """Plays games side by side with sampled actions and keeps moments of them.

    Args:
        trained: the agent.
        env_id: the game.
        count: how many moments.
        seed: of the games and the actions.
        steps_apart: agent steps from one moment of a game to the next.
    """
    envs = make_games(trained, env_id, PARALLEL_GAMES, seed=seed)
    loop = GameLoop(trained, env_id, envs, greedy=False, seed=seed)
    seen: list[tuple[EnvOutput, CoreState]] = []
    for _ in range(FIRST_STEP):
        loop.step()
    for _ in range(-(-count // PARALLEL_GAMES)):
        for _ in range(steps_apart):
            loop.step()
        seen.append((loop.inputs, loop.state))
    for env in envs:
        env.close()
    inputs, states = zip(*seen, strict=True)
    return Moments(
        EnvOutput(*(torch.cat(leaves, dim=1)[:, :count] for leaves in zip(*inputs, strict=True))),
        tuple(torch.cat(leaves, dim=1)[:, :count] for leaves in zip(*states, strict=True)),
    )


def play_frames(trained: Trained, env_id: str, count: int, *, seed: int = 0) -> Tensor:
    """Returns ``count`` frames ``[N, C, H, W]`` of games that the agent plays, actions sampled."""
    return play_moments(trained, env_id, count, seed=seed).inputs.frame[0]


def grams(agent: Agent, frames: Tensor, task: int) -> dict[str, Tensor]:
    """Computes centred Gram matrices ``[N, N]`` of every convolution's output, by layer.

    ``task``: the agent's index of the game that the frames show.
    """
    result: dict[str, Tensor] = {}

    def keep(name: str, output: Tensor) -> None:
        # Computed now, not later: the outputs take hundreds of megabytes, and an activation
        # function that works in place would overwrite them.
        result[name] = centred_gram(output.float())

    hooks = [
        find_layer(agent, name).register_forward_hook(lambda _, __, out, n=name: keep(n, out))
        for name in LAYER_NAMES
    ]
    try:
        with torch.inference_mode():
            agent.encode_frames(frames, torch.full((len(frames),), task))
    finally:
        for hook in hooks:
            hook.remove()
    return result


class Responses:
    """CKA of pairs of checkpoints. Plays each game once and runs each checkpoint once per game.

    The frames of a game are the same for all pairs: the first agent that knows the game plays it
    with its last checkpoint. A pair gets frames of ``game``, else of the first game that both
    agents know, else of the first game of ``a``.
    """

    def __init__(self, agents: list[RunAgent], num_frames: int, game: str | None = None) -> None:
        self._newest = {agent.name: agent.checkpoints[max(agent.checkpoints)] for agent in agents}
        self._num_frames = num_frames
        self._game = game
        self._tasks: dict[str, tuple[str, ...]] = {}
        self._frames: dict[str, Tensor] = {}
        self._grams: dict[tuple[Path, str], dict[str, Tensor]] = {}
        # One forward pass uses all cores already.
        self._lock = threading.Lock()

    def __call__(self, pair: Pair) -> dict[str, Distance]:
        """The measure ``cka``, by layer. Raises UsageError if the game cannot be played."""
        with self._lock:
            game = self._game or self._choose_game(pair.a.agent, pair.b.agent)
            a, b = (self._respond(snapshot, game) for snapshot in (pair.a, pair.b))
        similarity = {name: linear_cka(a[name], b[name]) for name in a if name in b}
        return {name: Distance(value, value, value) for name, value in similarity.items()}

    def _choose_game(self, a: str, b: str) -> str:
        games = self._known(a)
        return next((game for game in games if game in self._known(b)), games[0])

    def _known(self, agent: str) -> tuple[str, ...]:
        if agent not in self._tasks:
            self._tasks[agent] = read_trained(self._newest[agent], agent).agent.config.tasks
        return self._tasks[agent]

    def _respond(self, snapshot: Snapshot, game: str) -> dict[str, Tensor]:
        key = (snapshot.path, game)
        if key not in self._grams:
            frames = self._show(game)
            trained = read_trained(snapshot.path, snapshot.agent)
            if tuple(trained.agent.config.observation_shape) == tuple(frames.shape[1:]):
                self._grams[key] = grams(trained.agent, frames, trained.find_task(game))
            else:
                log.warning("%s sees other frames of %s: no cka", snapshot.agent, game)
                self._grams[key] = {}
        return self._grams[key]

    def _show(self, game: str) -> Tensor:
        if game not in self._frames:
            names = list(self._newest)
            name = next((name for name in names if game in self._known(name)), names[0])
            player = read_trained(self._newest[name], name)
            try:
                self._frames[game] = play_frames(player, game, self._num_frames)
            except UsageError as error:
                raise UsageError(f"cka: {error}; choose a game with --cka_game") from error
        return self._frames[game]
