"""What a run says about itself while it trains."""

from __future__ import annotations

import collections
import statistics
import sys
import threading
import time
from typing import Any, NamedTuple

from torchbeast.core.learner import StepStats
from torchbeast.records.file_writer import FileWriter
from torchbeast.records.scores import Evaluation

# Games that the shown mean return is taken over.
WINDOW = 100
LOG_FIELDS = [
    "step",
    "seconds",
    "sps",
    "learner_steps",
    "total_loss",
    "pg_loss",
    "baseline_loss",
    "entropy_loss",
    "grad_norm",
    "learning_rate",
    "policy_lag",
    "learner_queue",
    "inference_queue",
    "held_back_by",
]


class Limit(NamedTuple):
    """The stage that holds a run back and the flag that helps."""

    stage: str
    flag: str

    def __str__(self) -> str:
        return f"held back by {self.stage} ({self.flag})"


def log_fields(names: list[str], use_popart: bool) -> list[str]:
    """The columns of logs.csv for games ``names``."""
    per_game = ["steps", "games", "mean_episode_return", "std_episode_return"]
    if len(names) > 1:
        per_game += ["grad_norm"]
    if use_popart:
        per_game += ["mu", "sigma"]
    return LOG_FIELDS + [f"{field}/{name}" for field in per_game for name in names]


def human_time(seconds: float) -> str:
    """A span of time as people write it.

    >>> human_time(42), human_time(3723), human_time(200000)
    ('42s', '1h02m', '55h33m')
    """
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m{int(seconds % 60):02d}s"
    return f"{int(seconds // 3600)}h{int(seconds % 3600 // 60):02d}m"


class Progress:
    """Collects learner steps; writes records, TensorBoard scalars and the progress line.

    ``record`` is called by learner threads, the rest by one other.
    """

    def __init__(self, writer: FileWriter, names: list[str], total_steps: int) -> None:
        self._writer = writer
        self._names = names
        self._total_steps = total_steps
        self._lock = threading.Lock()
        self._last: StepStats | None = None
        self._returns = [collections.deque[float](maxlen=WINDOW) for _ in names]
        self._games = [0] * len(names)
        self._task_steps = [0] * len(names)
        self._grad_norms: dict[int, float] = {}  # By task, the last that were measured.
        self._start = time.monotonic()
        self._points = collections.deque([(self._start, 0)], maxlen=30)
        self._logged_step = 0
        self._line_width = 0
        self.evaluation: Evaluation | None = None
        """The newest one of this run since it was started or resumed."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run counts on from, as plain values."""
        with self._lock:
            return {
                "seconds": time.monotonic() - self._start,
                "returns": [list(returns) for returns in self._returns],
                "games": list(self._games),
                "task_steps": list(self._task_steps),
            }

    def load_state_dict(self, state: dict[str, Any], step: int) -> None:
        """The inverse, at ``step``. What an earlier version did not save begins anew."""
        now = time.monotonic()
        self._start = now - state.get("seconds", 0.0)
        self._points = collections.deque([(now, step)], maxlen=30)
        self._logged_step = step
        for returns, saved in zip(self._returns, state.get("returns", []), strict=False):
            returns.extend(saved)
        self._games = list(state.get("games", self._games))
        self._task_steps = list(state.get("task_steps", self._task_steps))

    def record(self, stats: StepStats) -> None:
        """Takes in one learner step."""
        with self._lock:
            self._last = stats
            for game in stats.games:
                self._returns[game.task].append(game.episode_return)
                self._games[game.task] += 1
            for task, steps in enumerate(stats.task_steps):
                self._task_steps[task] += steps
            self._grad_norms.update(stats.task_grad_norms)
        scalars = {
            "charts/learning_rate": stats.learning_rate,
            "losses/policy_loss": stats.pg_loss,
            "losses/value_loss": stats.baseline_loss,
            "losses/entropy": stats.entropy_loss,
            "losses/grad_norm": stats.grad_norm,
            "charts/policy_lag": stats.policy_lag,
        }
        for task, norm in stats.task_grad_norms.items():
            scalars[f"losses/grad_norm/{self._names[task]}"] = norm
        self._writer.scalars(scalars, stats.steps)
        for game in stats.games:
            name = self._names[game.task]
            self._writer.scalars(
                {f"charts/episodic_return/{name}": game.episode_return}, stats.steps
            )

    def record_evaluation(self, evaluation: Evaluation) -> None:
        """Takes in the newest evaluation, for ``evaluation``."""
        self.evaluation = evaluation

    def mean_return(self, task: int) -> float | None:
        """Of the last full games; None before the first has finished."""
        returns = self._returns[task]
        return sum(returns) / len(returns) if returns else None

    def report(
        self, queues: dict[str, int], limit: Limit | None = None, popart: Any = None
    ) -> None:
        """Writes a row of logs.csv and the progress line."""
        with self._lock:
            stats = self._last
            means = [self.mean_return(i) for i in range(len(self._names))]
            spreads = [statistics.pstdev(r) if r else None for r in self._returns]
            games, task_steps = list(self._games), list(self._task_steps)
            grad_norms = dict(self._grad_norms)
        now = time.monotonic()
        steps = stats.steps if stats else self._points[-1][1]
        self._points.append((now, steps))
        (then, before) = self._points[0]
        sps = (steps - before) / (now - then) if now > then else 0.0
        self._show(steps, sps, means, stats, limit)
        if stats is None or steps == self._logged_step:
            return
        self._logged_step = steps
        row = {
            "step": steps,
            "seconds": f"{now - self._start:.1f}",
            "sps": f"{sps:.1f}",
            **{name: getattr(stats, name) for name in LOG_FIELDS[3:11]},
            "learner_queue": queues["learner"],
            "inference_queue": queues["inference"],
            "held_back_by": limit.stage if limit else "",
        }
        for i, name in enumerate(self._names):
            row[f"steps/{name}"] = task_steps[i]
            row[f"games/{name}"] = games[i]
            row[f"mean_episode_return/{name}"] = means[i]
            row[f"std_episode_return/{name}"] = spreads[i]
            if len(self._names) > 1:
                row[f"grad_norm/{name}"] = grad_norms.get(i)
        scalars = {"charts/SPS": sps}
        scalars.update({f"queues/{name}": size for name, size in queues.items()})
        if popart is not None:
            for i, name in enumerate(self._names):
                row[f"mu/{name}"], row[f"sigma/{name}"] = (
                    float(popart.mu[i]),
                    float(popart.sigma[i]),
                )
                scalars[f"popart/mu/{name}"] = row[f"mu/{name}"]
                scalars[f"popart/sigma/{name}"] = row[f"sigma/{name}"]
        self._writer.log(row)
        self._writer.scalars(scalars, steps)

    def _show(
        self,
        steps: int,
        sps: float,
        means: list[float | None],
        stats: StepStats | None,
        limit: Limit | None,
    ) -> None:
        left = human_time(max(0, self._total_steps - steps) / sps) if sps > 0 else "?"
        returns = "  ".join(
            f"{name} {'no game finished yet' if mean is None else f'{mean:.1f}'}"
            for name, mean in zip(self._names, means, strict=True)
        )
        loss = f"{stats.total_loss:.1f}" if stats else "-"
        line = (
            f"{steps:,} of {self._total_steps:,} steps  {sps:.0f} steps/s  {left} left  "
            f"loss {loss}  {returns}" + (f"  {limit}" if limit else "")
        )
        if sys.stderr.isatty():
            width = _terminal_width() - 1
            print("\r" + line[:width].ljust(min(self._line_width, width)), end="", file=sys.stderr)
            self._line_width = min(len(line), width)
        else:
            print(line, file=sys.stderr)
        sys.stderr.flush()

    def finish(self) -> list[str]:
        """Ends the progress line; one line per game: its name and mean full-game return."""
        if sys.stderr.isatty() and self._line_width:
            print(file=sys.stderr)
        lines = []
        for i, name in enumerate(self._names):
            mean = self.mean_return(i)
            count = len(self._returns[i])
            lines.append(
                f"{name}: no game finished"
                if mean is None
                else f"{name}: mean return {mean:.2f} over the last {count} full games"
            )
        return lines


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size().columns
