"""Maps that say of what: scores of an agent's outputs under masks.

- ``policy``: half the squared change of the logits (Greydanus et al. 2018, equation 2).
- ``value``: half the squared change of the game's own value (equation 3), in units of sigma with
  PopArt and of returns without.
- ``task:GAME``: the same for the value head of another game.
- ``action:NAME``: how much less likely an action becomes while the ratios of the others stay
  (SARFA, Puri et al. 2020, arXiv:1912.12191).
- ``advantage``: half the squared change of the chosen action's preference over the policy's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import entr, log_softmax, softmax

from torchbeast.analysis.saliency.perturbation import Outputs
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name

POLICY, VALUE, ACTION, ADVANTAGE, TASK = "policy", "value", "action", "advantage", "task"
CHOSEN = "action:chosen"
# Outputs for equal pictures in batches of other sizes differ by some units in the last place.
ROUNDING = 16 * float(np.finfo(np.float32).eps)


class Subject(NamedTuple):
    """What an agent and a game are called in the names of scores."""

    action_names: tuple[str, ...]
    tasks: tuple[str, ...]
    head: int  # Index of the game's own value head.
    has_heads: bool  # One value head per task.


@dataclass(frozen=True)
class Score:
    """A function from outputs under masks to a map.

    ``index`` is the action of ``action:NAME`` or the value head of ``value`` and ``task:GAME``;
    None is the chosen action.
    """

    name: str
    kind: str
    unit: str  # Of the map's numbers.
    index: int | None = None

    @property
    def scale(self) -> tuple[str, str]:
        """Name and unit: maps that differ in these cannot be compared."""
        return self.name, self.unit

    def __call__(self, outputs: Outputs, action: int) -> np.ndarray:
        """The map float32 ``[rows, columns]``, nowhere negative.

        Args:
            outputs: of one observation.
            action: the action that was chosen there.
        """
        if self.kind == POLICY:
            return half_squared_change(outputs.logits, outputs.masked_logits)
        if self.kind == ADVANTAGE:
            return half_squared_change(
                *(
                    preference(logits, action)[..., None]
                    for logits in (outputs.logits, outputs.masked_logits)
                )
            )
        if self.kind == ACTION:
            chosen = action if self.index is None else self.index
            return specific_change(outputs.logits, outputs.masked_logits, chosen)
        head = slice(self.index, None if self.index is None else self.index + 1)
        return half_squared_change(
            outputs.normalized_values[head], outputs.masked_normalized_values[..., head]
        )


def half_squared_change(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Computes half the squared distance of vectors ``[..., N]`` to ``[N]``; 0 where it is
    rounding.
    """
    square = np.square(after - before).sum(axis=-1)
    noise = ROUNDING**2 * np.square(before).sum()
    return np.where(square > noise, 0.5 * square, 0.0).astype(np.float32)


def preference(logits: np.ndarray, action: int) -> np.ndarray:
    """Computes the action's logit minus the policy's mean logit; logits ``[..., A]``."""
    return logits[..., action] - (softmax(logits, axis=-1) * logits).sum(axis=-1)


def specific_change(before: np.ndarray, after: np.ndarray, action: int) -> np.ndarray:
    """Computes SARFA's score of an action.

    The harmonic mean of the drop of the action's probability and of ``1 / (1 + D)``, where D is the
    Kullback-Leibler divergence of the other actions' renormalised probabilities.

    Args:
        before: logits ``[A]``.
        after: logits ``[..., A]``.
        action: index.

    Returns:
        float32 ``[...]`` in [0, 1].
    """
    before, after = before.astype(np.float64), after.astype(np.float64)
    drop = softmax(before)[action] - softmax(after, axis=-1)[..., action]
    drop = np.where(drop > ROUNDING, drop, 0.0)
    others = np.arange(len(before)) != action
    log_p, log_q = log_softmax(after[..., others], axis=-1), log_softmax(before[others])
    p = np.exp(log_p)
    divergence = -(entr(p).sum(axis=-1) + (p * log_q).sum(axis=-1))
    specific = 1.0 / (1.0 + np.maximum(divergence, 0.0))
    return (2 * drop * specific / (drop + specific)).astype(np.float32)


def parse_scores(texts: Sequence[str], subject: Subject) -> tuple[Score, ...]:
    """Parses the scores that ``--score`` names.

    Raises UsageError for what the agent does not have.
    """
    return tuple(_parse_score(text, subject) for text in dict.fromkeys(texts))


def _parse_score(text: str, subject: Subject) -> Score:
    kind, colon, name = text.partition(":")
    if text == VALUE:
        unit = "sigma²/2" if subject.has_heads else "returns²/2"
        return Score(text, VALUE, unit, subject.head)
    if text in (POLICY, ADVANTAGE):
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
            return Score(f"task:{short_name(subject.tasks[head])}", kind, "sigma²/2", head)
        known = ", ".join(short_name(task) for task in subject.tasks)
        raise UsageError(f"--score {text}: the agent knows {known}")
    raise UsageError(
        f"--score {text}: choose policy, value, action, action:NAME, advantage or task:GAME"
    )
