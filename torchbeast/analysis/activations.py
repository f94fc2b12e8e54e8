"""How alike two ResNet agents respond to the same frames: linear CKA, layer by layer.

Centred kernel alignment (CKA, Kornblith et al. 2019, arXiv:1905.00414) compares the responses of
two layers to the same inputs. It does not change with the order of filters, with rotation or scale.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from torchbeast.analysis.agents import RunAgent, Snapshot
from torchbeast.analysis.comparison import Pair
from torchbeast.analysis.excitation import find_layer
from torchbeast.analysis.filters import LAYER_NAMES, Distance
from torchbeast.analysis.moments import play_frames
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.evaluate.trained import allow, read_trained
from torchbeast.models import Agent

log = logging.getLogger("torchbeast")

T = TypeVar("T")


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


def respond(
    agent: Agent,
    layers: Mapping[str, nn.Module],
    frames: Tensor,
    task: int,
    reduce: Callable[[Tensor], T],
) -> dict[str, T]:
    """Shows frames to an agent and reduces what its layers compute.

    Args:
        agent: gets the frames as input.
        layers: modules of its encoder, by name.
        frames: uint8 ``[N, C, H, W]``.
        task: which of the agent's games they are of.
        reduce: is called with the output ``[N, ...]`` of each layer, at once: all outputs together
            take hundreds of megabytes, and ReLUs that follow may work in place.

    Returns:
        What ``reduce`` returned, by layer.
    """
    result: dict[str, T] = {}

    def keep(name: str, output: Tensor) -> None:
        result[name] = reduce(output)

    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: keep(name, out))
        for name, module in layers.items()
    ]
    try:
        with torch.inference_mode():
            agent.encode_frames(frames, torch.full((len(frames),), task))
    finally:
        for hook in hooks:
            hook.remove()
    return result


def grams(agent: Agent, frames: Tensor, task: int) -> dict[str, Tensor]:
    """Computes :func:`centred_gram` of every convolution's output, as :func:`respond` does."""
    layers = {name: find_layer(agent, name) for name in LAYER_NAMES}
    return respond(agent, layers, frames, task, lambda output: centred_gram(output.float()))


class Responses:
    """CKA of pairs of checkpoints. Plays each game once and runs each checkpoint once per game.

    The frames of a game are the same for all pairs: the first agent that knows the game plays it
    with its last checkpoint. A pair gets frames of ``game``, else of the first game that both
    agents know, else of the first game of ``a``. An agent of several games that does not know the
    game is left out.
    """

    def __init__(self, agents: list[RunAgent], num_frames: int, game: str | None = None) -> None:
        self._newest = {agent.name: agent.checkpoints[max(agent.checkpoints)] for agent in agents}
        self._num_frames = num_frames
        self._game = game
        self._tasks: dict[str, tuple[str, ...]] = {}
        # By the game's short name: spellings of one game are the same.
        self._frames: dict[str, Tensor] = {}
        self._grams: dict[tuple[Path, str], dict[str, Tensor]] = {}
        self._left_out: set[tuple[str, str]] = set()
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
        games, others = self._known(a), set(map(short_name, self._known(b)))
        game = next((game for game in games if short_name(game) in others), games[0])
        return allow((game,), "--cka_game")[0]

    def _known(self, agent: str) -> tuple[str, ...]:
        if agent not in self._tasks:
            self._tasks[agent] = read_trained(self._newest[agent], agent).agent.config.tasks
        return self._tasks[agent]

    def _respond(self, snapshot: Snapshot, game: str) -> dict[str, Tensor]:
        key = (snapshot.path, short_name(game))
        if key not in self._grams:
            frames = self._show(game)
            trained = read_trained(snapshot.path, snapshot.agent)
            self._grams[key] = {}
            # It has a mean picture for each of its games, and none for another one.
            if len(trained.games) > 1 and short_name(game) not in trained.games:
                self._leave_out(snapshot.agent, game, "does not know")
            elif tuple(trained.agent.config.observation_shape) != tuple(frames.shape[1:]):
                self._leave_out(snapshot.agent, game, "sees other frames of")
            else:
                self._grams[key] = grams(trained.agent, frames, trained.find_task(game))
        return self._grams[key]

    def _leave_out(self, agent: str, game: str, reason: str) -> None:
        """Says once of an agent why it is not compared on a game."""
        if (agent, game) not in self._left_out:
            self._left_out.add((agent, game))
            log.warning("%s %s %s: no cka", agent, reason, game)

    def _show(self, game: str) -> Tensor:
        name = short_name(game)
        if name not in self._frames:
            agents = list(self._newest)
            knowing = (agent for agent in agents if name in map(short_name, self._known(agent)))
            chosen = next(knowing, agents[0])
            player = read_trained(self._newest[chosen], chosen)
            try:
                self._frames[name] = play_frames(player, game, self._num_frames)
            except UsageError as error:
                raise UsageError(f"cka: {error}; choose a game with --cka_game") from error
        return self._frames[name]
