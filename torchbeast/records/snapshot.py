"""What is known of a run at one moment. The terminal, the tables and TensorBoard show this."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from torchbeast.core.step_stats import StepStats


class Limit(NamedTuple):
    """The stage that the other stages of a run wait for."""

    stage: str
    """learner, inference or environments."""

    advice: str
    """What would help, such as ``try more --cores``."""

    def __str__(self) -> str:
        return f"bottleneck: {self.stage}; {self.advice}"


class EvaluatedReturns(NamedTuple):
    """Scores of full games that an evaluation during training played."""

    step: int
    """Agent steps of the agent that played."""

    returns: tuple[float | None, ...]
    """Mean return of each game, in the order of the tasks; None for a game that was not played."""


class GameSnapshot(NamedTuple):
    """One game of a run."""

    name: str
    steps: int
    """Agent steps of this game that the agent learned from."""

    games: int
    """Full games that ended."""

    mean_return: float | None
    """Mean of the last full games' returns; None before the first game ended."""

    std_return: float | None
    human: float | None
    """``mean_return`` as a share of human play; None where no human score is published."""

    trend: float | None
    """How much the newer half of the last full games returned more than the older half."""

    grad_norm: float | None
    entropy: float | None
    """Of the policy, in nats; mean over the game's last steps that were learned from."""

    mu: float | None
    """PopArt's statistics; None without PopArt."""

    sigma: float | None
    silent_s: float | None
    """Seconds since the last steps of this game arrived, if that is unusually long."""

    evaluated: float | None
    """Mean return in the last evaluation."""

    evaluated_human: float | None
    """``evaluated`` as a share of human play."""


class Snapshot(NamedTuple):
    """A run at one moment."""

    steps: int
    """Agent steps learned from."""

    total_steps: int
    seconds: float
    """Duration of the run, earlier parts of a resumed run included."""

    sps: float
    """Agent steps per second, over about the last two minutes."""

    stalled_s: float | None
    """Seconds since the last steps of any game arrived, if that is unusually long."""

    last: StepStats | None
    """The last learner step; None before the first."""

    queues: dict[str, int]
    limit: Limit | None
    games: tuple[GameSnapshot, ...]
    evaluation_step: int | None
    """Agent steps of the agent that was evaluated last."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until ``total_steps`` at the present speed; None if nothing moves."""
        return max(0, self.total_steps - self.steps) / self.sps if self.sps > 0 else None

    @property
    def median_human(self) -> float | None:
        """The median of the games' ``human``; None if no game has one."""
        return _median([game.human for game in self.games])

    @property
    def median_evaluated_human(self) -> float | None:
        """The median of the games' ``evaluated_human``; None if no game has one."""
        return _median([game.evaluated_human for game in self.games])


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
