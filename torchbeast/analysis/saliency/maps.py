"""Saliency maps of an agent: which output a map is of, and the maps of a game frame by frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.overlays import Grid
from torchbeast.analysis.saliency.perturbation import Outputs, Perturbation, SaliencyConfig
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.envs.games import short_name
from torchbeast.play.agents import Trained, check_game, choose_game, read_agent
from torchbeast.play.game_loop import agent_action_names, watch_game

POLICY, VALUE, ACTION, TASK = "policy", "value", "action", "task"
CHOSEN = "action:chosen"
# Outputs for equal pictures in batches of other sizes differ by some units in the last place.
ROUNDING = 16 * float(np.finfo(np.float32).eps)


class Subject(NamedTuple):
    """What an agent and a game are called in the names of scores."""

    action_names: tuple[str, ...]
    tasks: tuple[str, ...]
    head: int  # Index of the game's own value head.
    has_heads: bool  # One value head per task.
    value_unit: str  # The unit of a map of values.


@dataclass(frozen=True)
class Score:
    """A function from outputs under masks to a map.

    ``index`` is the action of ``action:NAME`` or the value head of ``value`` and ``task:GAME``;
    None is the chosen action.
    """

    name: str
    kind: str
    unit: str  # The unit of the map's numbers.
    index: int | None = None

    @property
    def scale(self) -> tuple[str, str]:
        """Name and unit: maps that differ in these cannot be compared."""
        return self.name, self.unit

    def __call__(self, outputs: Outputs, action: int) -> np.ndarray:
        """The map float32 ``[rows, columns]``, nowhere negative.

        Args:
            action: the action that was chosen there.
        """
        heads = (
            (outputs.logits, outputs.normalized_values),
            (outputs.masked_logits, outputs.masked_normalized_values),
        )
        before, after = (tuple(map(torch.from_numpy, arrays)) for arrays in heads)
        return self.change(before, after, action).numpy()

    def change(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...], action: int) -> Tensor:
        """Computes the score of changed outputs, float32 ``[...]``; gradients flow through it.

        Args:
            before: logits ``[A]`` and normalised values ``[K]`` of an observation.
            after: the same, ``[..., A]`` and ``[..., K]``, of changed ones.
            action: the action that was chosen.
        """
        (logits, values), (changed_logits, changed_values) = before, after
        if self.kind == POLICY:
            return half_squared_change(logits, changed_logits)
        if self.kind == ACTION:
            chosen = action if self.index is None else self.index
            return specific_change(logits, changed_logits, chosen)
        assert self.index is not None  # A value score names its head.
        head = slice(self.index, self.index + 1)
        return half_squared_change(values[head], changed_values[..., head])


def half_squared_change(before: Tensor, after: Tensor) -> Tensor:
    """Computes half the squared distance of vectors ``[..., N]`` to ``[N]``; 0 where it is
    rounding.
    """
    square = (after - before).square().sum(dim=-1)
    noise = ROUNDING**2 * before.square().sum()
    return torch.where(square > noise, 0.5 * square, 0.0)


def specific_change(before: Tensor, after: Tensor, action: int) -> Tensor:
    """Computes SARFA's score of an action.

    The harmonic mean of the drop of the action's probability and of ``1 / (1 + D)``, where D is the
    Kullback-Leibler divergence of the other actions' renormalised probabilities.

    Args:
        before: logits ``[A]``.
        after: logits ``[..., A]``.

    Returns:
        float32 ``[...]`` in [0, 1].
    """
    before, after = before.double(), after.double()
    drop = before.softmax(dim=-1)[action] - after.softmax(dim=-1)[..., action]
    drop = torch.where(drop > ROUNDING, drop, 0.0)
    others = torch.arange(len(before), device=before.device) != action
    log_p, log_q = (x[..., others].log_softmax(dim=-1) for x in (after, before))
    divergence = (log_p.exp() * (log_p - log_q)).sum(dim=-1)
    specific = 1.0 / (1.0 + divergence.clamp(min=0.0))
    return (2 * drop * specific / (drop + specific)).float()


def parse_scores(texts: Sequence[str], subject: Subject) -> tuple[Score, ...]:
    """Parses the scores that ``--score`` names.

    Raises UsageError for what the agent does not have.
    """
    # Two texts may name one score.
    return tuple(dict.fromkeys(_parse_score(text, subject) for text in texts))


def _parse_score(text: str, subject: Subject) -> Score:
    kind, colon, name = text.partition(":")
    if text == VALUE:
        return Score(text, VALUE, subject.value_unit, subject.head)
    if text == POLICY:
        return Score(text, kind, "logits²/2")
    if text in (ACTION, CHOSEN):
        return Score(CHOSEN, kind, "SARFA")
    if kind == ACTION and colon:
        names = [known.lower() for known in subject.action_names]
        if name.lower() in names:
            return Score(f"action:{name.upper()}", kind, "SARFA", names.index(name.lower()))
        raise UsageError(f"--score {text}: the actions are {', '.join(subject.action_names)}")
    if kind == TASK and colon:
        if not subject.has_heads:
            raise UsageError(f"--score {text}: the agent has one value head for all; use value")
        games = [short_name(task).lower() for task in subject.tasks]
        if short_name(name).lower() in games:
            head = games.index(short_name(name).lower())
            return Score(f"task:{short_name(subject.tasks[head])}", kind, subject.value_unit, head)
        known = ", ".join(short_name(task) for task in subject.tasks)
        raise UsageError(f"--score {text}: the agent knows {known}")
    raise UsageError(f"--score {text}: choose policy, value, action, action:NAME or task:GAME")


@dataclass(frozen=True)
class Step:
    """One step of a game, and what the agent computed there with and without masks."""

    step: int  # Agent steps since the game began.
    picture: np.ndarray  # uint8 [H, W, 3], what the game shows.
    inputs: EnvOutput  # What the agent saw, leaves [1, 1, ...].
    state: tuple[Tensor, ...]  # Its recurrent state before.
    action: int  # The action played.
    outputs: Outputs
    subject: Subject
    grid: Grid

    @property
    def policy(self) -> np.ndarray:
        """The map of the score ``policy``, float32 ``[rows, columns]``."""
        return self.score(POLICY)

    @property
    def value(self) -> np.ndarray:
        """The map of the score ``value``, float32 ``[rows, columns]``."""
        return self.score(VALUE)

    def score(self, name: str) -> np.ndarray:
        """Returns the map of any score, such as ``action:FIRE``.

        Raises UsageError for an unknown one.
        """
        (score,) = parse_scores([name], self.subject)
        return score(self.outputs, self.action)


class Explainer:
    """Plays a game with a trained agent and yields its steps with their outputs under masks.

    Raises:
        UsageError: the agent knows several games and not this one, so that it has no value head and
            no mean picture for it.
    """

    def __init__(self, trained: Trained, game: str, config: SaliencyConfig) -> None:
        agent = trained.agent
        names = tuple(agent_action_names(trained, game))
        check_game(trained, game)
        agent.compute_dtype = config.dtype  # So that it plays as it is explained.
        self.trained, self.game, self.config = trained, game, config
        has_heads = agent.config.use_popart or agent.config.num_heads > 1
        self.subject = Subject(
            names,
            agent.config.tasks,
            trained.head(game),
            has_heads,
            "sigma²/2" if agent.config.use_popart else "returns²/2",
        )
        self.perturbation = Perturbation(agent, config)

    def describe(self) -> dict[str, Any]:
        """Describes how the maps were made, as plain values."""
        popart = self.trained.agent.baseline
        statistics = {}
        if isinstance(popart, PopArtLayer):
            statistics = {"mu": popart.mu.numpy(), "sigma": popart.sigma.numpy()}
        return {
            "xpid": self.trained.xpid,
            "model": self.trained.model_id,
            "env": self.game,
            "density": self.config.density,
            "radius": self.config.radius,
            "precision": str(self.config.dtype).removeprefix("torch."),
            **statistics,
        }

    def watch(self, **options: Any) -> Iterator[Step]:
        """Yields the steps of one game; ``options`` are those of :func:`watch_game`."""
        for watched in watch_game(self.trained, self.game, **options):
            outputs = self.perturbation(watched.inputs, watched.state)
            yield Step(*watched, outputs, self.subject, self.perturbation.grid)


def saliency(
    path: str | Path,
    game: str | None = None,
    *,
    first_frame: int = 0,
    num_frames: int = 100,
    seed: int = 0,
    config: SaliencyConfig | None = None,
    agent_type: str | None = None,
) -> Iterator[Step]:
    """Plays a game with a trained agent and yields its saliency at every step.

    Args:
        path: a run's directory or a checkpoint.
        game: the game's id; by default the only one that the agent knows.
        first_frame: the first step wanted.
        num_frames: how many.
        seed: of the game.
        config: how maps are made.
        agent_type: the only custom class that may be imported, ``package.module:Class``.

    Raises:
        UsageError: there is no such agent or it does not know the game.
    """
    trained = read_agent(path, agent_type=agent_type)
    explainer = Explainer(trained, choose_game(trained, game), config or SaliencyConfig())
    yield from explainer.watch(first_frame=first_frame, num_frames=num_frames, seed=seed)
