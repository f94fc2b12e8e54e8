"""How alike two ResNet agents respond to the same frames: debiased linear CKA, layer by layer.

Centred kernel alignment (CKA, Kornblith et al. 2019, arXiv:1905.00414) compares the responses of
two layers to the same inputs. It does not change with the order of filters, with rotation or scale.
From unbiased estimates (Song et al. 2012; Nguyen et al. 2021, arXiv:2010.15327) it does not depend
on the number of inputs either.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from torchbeast.analysis.filter_agents import UNTRAINED, AgentCheckpoint, RunAgent
from torchbeast.analysis.filter_comp import Pair
from torchbeast.analysis.filters import LAYER_NAMES, Distance, find_layer, only_filters
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.models import Agent
from torchbeast.play.agents import Trained, allow, read_agent
from torchbeast.play.game_loop import PARALLEL_GAMES, GameLoop, open_games
from torchbeast.records import checkpoint

log = logging.getLogger("torchbeast")

FIRST_STEP = 40  # The first frames of all games are nearly the same.
STEPS_APART = 4  # Neighbouring frames are nearly the same.


def play_frames(trained: Trained, env_id: str, count: int) -> Tensor:
    """Returns ``count`` frames ``[N, C, H, W]`` of games that the agent plays, actions sampled."""
    frames: list[Tensor] = []
    with open_games(trained, env_id, PARALLEL_GAMES, seed=0) as envs:
        loop = GameLoop(trained, env_id, envs, greedy=False, seed=0)
        for _ in range(FIRST_STEP):
            loop.step()
        for _ in range(-(-count // PARALLEL_GAMES)):
            for _ in range(STEPS_APART):
                loop.step()
            frames.append(loop.inputs.frame[0])
    return torch.cat(frames)[:count]


def gram(responses: Tensor) -> np.ndarray:
    """Computes the inner products ``[N, N]`` of responses ``[N, ...]``, with a zero diagonal."""
    rows = responses.flatten(1).double()
    rows = rows - rows.mean(dim=0)  # The CKA stays the same, with less rounding.
    products = rows @ rows.T
    return products.fill_diagonal_(0).numpy()


def unbiased_hsic(a: np.ndarray, b: np.ndarray) -> float:
    """Estimates the Hilbert-Schmidt independence criterion: equation 5 of Song et al. 2012.

    Args:
        a: a kernel matrix ``[N, N]`` with a zero diagonal, ``N`` at least 4.
    """
    n = len(a)
    cross = (a.sum(axis=0) * b.sum(axis=0)).sum()
    total = (a * b).sum() + a.sum() * b.sum() / ((n - 1) * (n - 2)) - 2 * cross / (n - 2)
    return float(total / (n * (n - 3)))


def debiased_cka(a: np.ndarray, b: np.ndarray) -> float:
    """Computes the debiased CKA of two layers.

    Args:
        a: the :func:`gram` matrix ``[N, N]`` of one layer.
        b: that of the other layer.

    Returns:
        1 for equal features, about 0 for unrelated ones whatever ``N`` is, and 0 if one layer gives
        the same response to every input.
    """
    norm = unbiased_hsic(a, a) * unbiased_hsic(b, b)
    return unbiased_hsic(a, b) / math.sqrt(norm) if norm > 0 else 0.0


def grams(agent: Agent, frames: Tensor, task: int) -> dict[str, np.ndarray]:
    """Shows frames to an agent and computes :func:`gram` of every convolution's output.

    Args:
        agent: gets the frames as input.
        frames: uint8 ``[N, C, H, W]``.
        task: which of the agent's games they are of.

    Returns:
        The matrix of each layer, by name.
    """
    result: dict[str, np.ndarray] = {}

    def keep(name: str, _module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # At once: all outputs together take hundreds of megabytes, and the ReLU that follows works
        # in place.
        result[name] = gram(output)

    with torch.inference_mode(), contextlib.ExitStack() as hooks:
        for name in LAYER_NAMES:
            hook = functools.partial(keep, name)
            hooks.enter_context(find_layer(agent, name).register_forward_hook(hook))
        agent.encode_frames(frames, torch.full((len(frames),), task))
    return result


class Responses:
    """CKA of pairs of checkpoints, from their responses to the same frames of one game.

    The game is ``game``, else the first one of the first agent. The first agent that knows it plays
    it with its last checkpoint, once. Agents that do not know it see it with the mean picture and
    the scale of the player.
    """

    def __init__(self, agents: Sequence[RunAgent], num_frames: int, game: str | None) -> None:
        self._agents = {agent.name: agent for agent in agents}
        if game is None:
            tasks = read_agent(agents[0].newest).agent.config.tasks
            (game,) = allow(tasks[:1], "--cka_game")
        self.game = game
        knowing = (agent for agent in agents if short_name(game) in agent.games)
        player = next(knowing, agents[0])
        self._player = read_agent(player.newest, player.name)
        try:
            self._frames = play_frames(self._player, game, num_frames)
        except UsageError as error:
            raise UsageError(f"cka: {error}; choose a game with --cka_game") from error
        self._grams: dict[Path, dict[str, np.ndarray]] = {}
        self._left_out: set[str] = set()
        # One forward pass uses all cores already.
        self._lock = threading.Lock()

    def compare(self, pair: Pair) -> dict[str, Distance]:
        """Computes the similarity of each layer, by name."""
        with self._lock:
            a, b = map(self._respond, (pair.a, pair.b))
        values = {name: debiased_cka(a[name], b[name]) for name in a if name in b}
        return {name: Distance(v, v, v) for name, v in values.items()}

    def _respond(self, saved: AgentCheckpoint) -> dict[str, np.ndarray]:
        if saved.path not in self._grams:
            trained, player = self._read(saved), self._player
            is_untrained = self._agents[saved.agent].kind == UNTRAINED
            task = trained.task_or_first(self.game)
            self._grams[saved.path] = {}
            if tuple(trained.agent.config.observation_shape) != tuple(self._frames.shape[1:]):
                self._leave_out(saved.agent)
            else:
                if is_untrained or short_name(self.game) not in trained.games:
                    for name in ("frame_mean", "frame_scale"):
                        own, of_player = (getattr(x.agent, name) for x in (trained, player))
                        own[task] = of_player[player.task_or_first(self.game)]
                self._grams[saved.path] = grams(trained.agent, self._frames, task)
        return self._grams[saved.path]

    def _read(self, saved: AgentCheckpoint) -> Trained:
        """Reads the agent with the filters of a checkpoint, which may hold nothing else."""
        newest = self._agents[saved.agent].newest
        trained = read_agent(newest, saved.agent)
        if saved.path != newest:
            state = checkpoint.load(saved.path)["model_state_dict"]
            trained.agent.load_state_dict(only_filters(state), strict=False)
        return trained

    def _leave_out(self, agent: str) -> None:
        """Says once of an agent why it is not compared."""
        if agent not in self._left_out:
            self._left_out.add(agent)
            log.warning("%s sees other frames of %s: no cka", agent, self.game)
