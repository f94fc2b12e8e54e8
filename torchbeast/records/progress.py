"""How far a run is: steps, returns and speed, collected into a snapshot of one moment."""

from __future__ import annotations

import collections
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchbeast.core.stats import FinishedGame, StepStats


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

    entropy: float | None
    """The policy's entropy in nats; mean over the game's last steps that were learned from."""

    mu: float | None
    """PopArt's statistics; None without PopArt."""

    sigma: float | None
    evaluated_return: float | None
    """Mean return in the last evaluation."""


class Snapshot(NamedTuple):
    """A run at one moment."""

    steps: int
    """Agent steps learned from."""

    total_steps: int
    seconds: float
    """Duration of the run, earlier parts of a resumed run included."""

    sps: float
    """Agent steps per second, over the last two and a half minutes."""

    stalled_s: float | None
    """Seconds since the last steps of any game arrived, if that is unusually long."""

    last: StepStats | None
    """The last learner step; None before the first."""

    queues: dict[str, int]
    bottleneck: str | None
    games: tuple[GameSnapshot, ...]
    evaluation_step: int | None
    """Agent steps of the agent that was evaluated last."""

    median_evaluated_human: float | None
    """The median of its scores as shares of human play; None if no game has one."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until ``total_steps`` at the present speed; None if nothing moves."""
        return max(0, self.total_steps - self.steps) / self.sps if self.sps > 0 else None

    @property
    def median_human(self) -> float | None:
        """The median of the games' ``human``; None if no game has one."""
        known = [game.human for game in self.games if game.human is not None]
        return statistics.median(known) if known else None


# Seconds without steps after which that is displayed. Batches of a slow network may be that far
# apart.
SHOWN_AFTER_S = 60.0
# Full games that a mean return is taken over.
WINDOW = 100
# Full games without which there is no trend.
MIN_TREND_GAMES = 10
# The speed is that of the last two and a half minutes.
POINT_INTERVAL_S = 5.0
NUM_POINTS = 30


class Progress:
    """Collects learner steps and scores, and says at any moment how a run stands.

    Learner threads call :meth:`record`, any thread :meth:`record_evaluation` and :meth:`seconds`,
    one other thread the rest.
    """

    def __init__(
        self,
        names: Sequence[str],
        total_steps: int,
        human_normalized: Callable[[int, float], float | None],
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
        self._ended: list[FinishedGame] = []
        self._games = [0] * len(names)
        self._task_steps = [0] * len(names)
        self._entropies: dict[int, float] = {}  # By task, the last that were measured.
        self._arrived: float | None = None  # By the clock: when the last steps came.
        self._evaluation_step: int | None = None
        self._evaluated: Sequence[float | None] = [None] * len(names)
        self._median_evaluated_human: float | None = None
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
            if self._last is None:  # The speed leaves out the start of the program.
                self._points = collections.deque([(self._clock(), stats.steps)], maxlen=NUM_POINTS)
            self._last = stats
            self._arrived = self._clock()
            self._ended += stats.episodes
            for episode in stats.episodes:
                self._returns[episode.task].append(episode.episode_return)
                self._games[episode.task] += 1
            for task, steps in enumerate(stats.task_steps):
                self._task_steps[task] += steps
            self._entropies.update(stats.task_entropies)

    def take_ended(self) -> list[FinishedGame]:
        """Returns the full games that ended since the last call."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def record_evaluation(
        self, step: int, returns: Sequence[float | None], median_human: float | None
    ) -> None:
        """Takes in the scores of an evaluation during training, for all later snapshots.

        Args:
            step: agent steps of the agent that played.
            returns: mean return of full games of each task; None for a game that was not played.
            median_human: the median of these as shares of human play, if it is known.
        """
        with self._lock:
            self._evaluation_step, self._evaluated = step, returns
            self._median_evaluated_human = median_human

    def snapshot(
        self,
        queues: dict[str, int],
        bottleneck: str | None = None,
        popart: Sequence[tuple[float, float]] | None = None,
    ) -> Snapshot:
        """Says how the run stands.

        Args:
            bottleneck: what the run waits for, if it is known.
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
                stalled_s=self._stalled(now),
                last=self._last,
                queues=queues,
                bottleneck=bottleneck,
                games=tuple(
                    self._game(task, *(popart[task] if popart else (None, None)))
                    for task in range(len(self._names))
                ),
                evaluation_step=self._evaluation_step,
                median_evaluated_human=self._median_evaluated_human,
            )

    def summary(self) -> list[str]:
        """Returns a line for each game with its mean full-game return, and one for the others."""
        lines, unfinished = [], []
        with self._lock:
            for name, returns in zip(self._names, self._returns, strict=True):
                mean = _mean(returns)
                if mean is None:
                    unfinished.append(name)
                    continue
                lines.append(
                    f"{name}: mean return {mean:.2f} over the last {len(returns)} full games"
                )
        if unfinished:
            lines.append(f"No full game finished yet: {', '.join(unfinished)}")
        return lines

    def _stalled(self, now: float) -> float | None:
        pause = 0.0 if self._arrived is None else now - self._arrived
        return pause if pause >= SHOWN_AFTER_S else None

    def _measure_speed(self, now: float, steps: int) -> float:
        then, before = self._points[0]
        if now - self._points[-1][0] >= POINT_INTERVAL_S:
            self._points.append((now, steps))
        return (steps - before) / (now - then) if now > then else 0.0

    def _game(self, task: int, mu: float | None, sigma: float | None) -> GameSnapshot:
        returns = list(self._returns[task])
        mean = _mean(returns)
        return GameSnapshot(
            name=self._names[task],
            steps=self._task_steps[task],
            games=self._games[task],
            mean_return=mean,
            std_return=float(np.std(returns)) if returns else None,
            human=None if mean is None else self._human_normalized(task, mean),
            trend=_trend(returns),
            entropy=self._entropies.get(task),
            mu=mu,
            sigma=sigma,
            evaluated_return=self._evaluated[task],
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _trend(returns: Sequence[float]) -> float | None:
    """The mean of the newer half less that of the older half; None for few returns."""
    if len(returns) < MIN_TREND_GAMES:
        return None
    half = len(returns) // 2
    return statistics.fmean(returns[-half:]) - statistics.fmean(returns[:half])
