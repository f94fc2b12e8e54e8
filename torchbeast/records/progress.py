"""Collects what a run has learned from while it trains."""

from __future__ import annotations

import collections
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from torchbeast.core.stats import StepStats
from torchbeast.records.arrivals import Arrivals
from torchbeast.records.snapshot import (
    EvaluatedReturns,
    GameSnapshot,
    Limit,
    Snapshot,
)
from torchbeast.runtime.text import human_time

# Full games that a mean return is taken over.
WINDOW = 100
# Full games without which there is no trend.
MIN_TREND_GAMES = 10
# The speed is that of the last two and a half minutes.
POINT_INTERVAL_S = 5.0
NUM_POINTS = 30


class Progress:
    """Collects learner steps and scores, and says at any moment how a run stands.

    Learner threads call :meth:`record`, any thread :meth:`evaluated`, one other thread the rest.
    """

    def __init__(
        self,
        names: Sequence[str],
        total_steps: int,
        human_normalized: Callable[[int, float], float | None] = lambda task, value: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts to count.

        Args:
            names: the games' names, by task.
            total_steps: agent steps that the run learns from in all.
            human_normalized: returns a game's return as a share of human play, from the task and
                the return; None where no human score is published.
            clock: the present time in seconds.
        """
        self._names = list(names)
        self._total_steps = total_steps
        self._human_normalized = human_normalized
        self._clock = clock
        self._lock = threading.Lock()
        self._last: StepStats | None = None
        self._returns = [collections.deque[float](maxlen=WINDOW) for _ in names]
        self._games = [0] * len(names)
        self._task_steps = [0] * len(names)
        # By task, the last that were measured.
        self._grad_norms: dict[int, float] = {}
        self._entropies: dict[int, float] = {}
        self._arrivals = Arrivals(len(names))
        self._evaluation: EvaluatedReturns | None = None
        self._start = clock()
        self._points = collections.deque([(self._start, 0)], maxlen=NUM_POINTS)

    def seconds(self) -> float:
        """Returns how long the run has trained, in seconds; earlier parts of a resumed run
        included.
        """
        return self._clock() - self._start

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run continues to count from, as plain values."""
        with self._lock:
            return {
                "seconds": self.seconds(),
                "returns": [list(returns) for returns in self._returns],
                "games": list(self._games),
            }

    def load_state_dict(self, state: dict[str, Any], task_steps: Sequence[int]) -> None:
        """Restores what state_dict returned.

        Args:
            state: what an earlier version did not save in it starts at 0.
            task_steps: agent steps of each game that the run has taken.
        """
        now = self._clock()
        self._start = now - state.get("seconds", 0.0)
        self._points = collections.deque([(now, sum(task_steps))], maxlen=NUM_POINTS)
        for returns, saved in zip(self._returns, state.get("returns", []), strict=False):
            # Earlier versions saved returns that were not finite.
            returns.extend(value for value in saved if math.isfinite(value))
        self._games = list(state.get("games", self._games))
        self._task_steps = list(task_steps)

    def record(self, stats: StepStats) -> None:
        """Takes in one learner step."""
        with self._lock:
            self._last = stats
            self._arrivals.record(stats.task_steps, self._clock())
            for game in stats.games:
                self._returns[game.task].append(game.episode_return)
                self._games[game.task] += 1
            for task, steps in enumerate(stats.task_steps):
                self._task_steps[task] += steps
            self._grad_norms.update(stats.task_grad_norms)
            self._entropies.update(stats.task_entropies)

    def evaluated(self, evaluation: EvaluatedReturns) -> None:
        """Takes in the scores of an evaluation during training, for all later snapshots."""
        with self._lock:
            self._evaluation = evaluation

    def snapshot(
        self,
        queues: dict[str, int],
        limit: Limit | None = None,
        popart: Sequence[tuple[float, float]] | None = None,
    ) -> Snapshot:
        """Says how the run stands.

        Args:
            queues: sizes of the queues.
            limit: the bottleneck, if it is known.
            popart: ``(mu, sigma)`` of each game, with PopArt.
        """
        with self._lock:
            now = self._clock()
            steps = self._last.steps if self._last else self._points[-1][1]
            return Snapshot(
                steps=steps,
                total_steps=self._total_steps,
                seconds=now - self._start,
                sps=self._measure_speed(now, steps),
                stalled_s=self._arrivals.stall(now),
                last=self._last,
                queues=queues,
                limit=limit,
                games=tuple(
                    self._game(task, now, *(popart[task] if popart else (None, None)))
                    for task in range(len(self._names))
                ),
                evaluation_step=self._evaluation.step if self._evaluation else None,
            )

    def warnings(self) -> list[str]:
        """Returns warnings about games that send no steps. Nothing is repeated."""
        with self._lock:
            now = self._clock()
            silent = self._arrivals.newly_silent(now)
            stall = self._arrivals.newly_stalled(now)
        lines = [
            f"No steps of {self._names[task]} for {human_time(seconds)} while other games go on: "
            "its environments may hang"
            for task, seconds in silent.items()
        ]
        return lines if stall is None else [*lines, f"No steps of any game for {human_time(stall)}"]

    def summary(self) -> list[str]:
        """Formats each game's name and mean full-game return, in one line."""
        lines = []
        with self._lock:
            for name, returns in zip(self._names, self._returns, strict=True):
                mean = _mean(returns)
                lines.append(
                    f"{name}: no game finished"
                    if mean is None
                    else f"{name}: mean return {mean:.2f} over the last {len(returns)} full games"
                )
        return lines

    def _measure_speed(self, now: float, steps: int) -> float:
        then, before = self._points[0]
        if now - self._points[-1][0] >= POINT_INTERVAL_S:
            self._points.append((now, steps))
        return (steps - before) / (now - then) if now > then else 0.0

    def _game(self, task: int, now: float, mu: float | None, sigma: float | None) -> GameSnapshot:
        returns = list(self._returns[task])
        mean = _mean(returns)
        evaluated = self._evaluation.returns[task] if self._evaluation else None
        return GameSnapshot(
            name=self._names[task],
            steps=self._task_steps[task],
            games=self._games[task],
            mean_return=mean,
            std_return=_deviation(returns, mean),
            human=self._normalize(task, mean),
            trend=_trend(returns),
            grad_norm=self._grad_norms.get(task),
            entropy=self._entropies.get(task),
            mu=mu,
            sigma=sigma,
            silent_s=self._arrivals.silence(task, now),
            evaluated=evaluated,
            evaluated_human=self._normalize(task, evaluated),
        )

    def _normalize(self, task: int, value: float | None) -> float | None:
        return None if value is None else self._human_normalized(task, value)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _deviation(values: Sequence[float], mean: float | None) -> float | None:
    # statistics.pstdev is exact, and several times as slow.
    if mean is None:
        return None
    return math.sqrt(statistics.fmean((value - mean) ** 2 for value in values))


def _trend(returns: Sequence[float]) -> float | None:
    """The mean of the newer half less that of the older half; None for few returns."""
    if len(returns) < MIN_TREND_GAMES:
        return None
    half = len(returns) // 2
    return statistics.fmean(returns[-half:]) - statistics.fmean(returns[:half])
