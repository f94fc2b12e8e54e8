"""Names and values of what a run logs: the columns of logs.csv, and the scalars.

Scalars are named as CleanRL and Stable-Baselines3 name theirs. Losses are means per agent step and
without the weights of the total loss. The columns of logs.csv hold the weighted sums over a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from torchbeast.core.stats import FinishedGame
from torchbeast.records.progress import Snapshot

# Columns of logs.csv that are fields of StepStats.
STATS_FIELDS = [
    "learner_steps",
    "total_loss",
    "pg_loss",
    "baseline_loss",
    "entropy_loss",
    "grad_norm",
    "learning_rate",
    "policy_lag",
    "skipped_updates",
]
LOG_FIELDS = [
    "step",
    "seconds",
    "sps",
    *STATS_FIELDS,
    "learner_queue",
    "inference_queue",
    "held_back_by",
]


def log_fields(names: Sequence[str], use_popart: bool) -> list[str]:
    """Returns the columns of logs.csv for games ``names``."""
    columns = _game_columns(len(names), use_popart)
    return LOG_FIELDS + [f"{column}/{name}" for column in columns for name in names]


def _game_columns(num_games: int, use_popart: bool) -> dict[str, str]:
    """The columns that logs.csv has of each game, and their fields of ``GameSnapshot``."""
    columns = {
        "steps": "steps",
        "games": "games",
        "mean_episode_return": "mean_return",
        "std_episode_return": "std_return",
    }
    if num_games > 1:
        columns["entropy"] = "entropy"
    if use_popart:
        columns |= {"mu": "mu", "sigma": "sigma"}
    return columns


def log_row(snapshot: Snapshot) -> dict[str, Any]:
    """Returns a row of logs.csv. The snapshot must have a learner step."""
    assert snapshot.last is not None
    row = {
        "step": snapshot.steps,
        "seconds": f"{snapshot.seconds:.1f}",
        "sps": f"{snapshot.sps:.1f}",
        **{name: getattr(snapshot.last, name) for name in STATS_FIELDS},
        "learner_queue": snapshot.queues["learner"],
        "inference_queue": snapshot.queues["inference"],
        "held_back_by": snapshot.bottleneck or "",
    }
    for game in snapshot.games:
        columns = _game_columns(len(snapshot.games), game.sigma is not None)
        row |= {f"{column}/{game.name}": getattr(game, field) for column, field in columns.items()}
    return row


def episode_scalars(ended: Sequence[FinishedGame], names: Sequence[str]) -> dict[str, float]:
    """Returns the scalars of full games that ended: means for each game."""
    scalars: dict[str, float] = {}
    for task in sorted({game.task for game in ended}):
        games = [game for game in ended if game.task == task]
        scalars[f"charts/episodic_return/{names[task]}"] = fmean(g.episode_return for g in games)
        scalars[f"charts/episodic_length/{names[task]}"] = fmean(g.episode_step for g in games)
    return scalars


def snapshot_scalars(snapshot: Snapshot) -> dict[str, float]:
    """Returns the scalars of a report, without those of the games that ended. The snapshot must
    have a learner step.
    """
    last = snapshot.last
    assert last is not None
    scalars: dict[str, float | None] = {
        "charts/SPS": snapshot.sps,
        "charts/learning_rate": last.learning_rate,
        "charts/policy_lag": last.policy_lag,
        "charts/human_normalized_median": snapshot.median_human,
        "losses/policy_loss": last.pg_loss / max(sum(last.task_steps), 1),
        "losses/value_loss": last.value_loss,
        "losses/entropy": last.entropy,
        "losses/grad_norm": last.grad_norm,
        "losses/skipped_updates": last.skipped_updates,
        **{f"queues/{name}": size for name, size in snapshot.queues.items()},
    }
    for game in snapshot.games:
        scalars[f"charts/human_normalized/{game.name}"] = game.human
        if len(snapshot.games) > 1:
            scalars[f"losses/entropy/{game.name}"] = game.entropy
        scalars[f"popart/mu/{game.name}"] = game.mu
        scalars[f"popart/sigma/{game.name}"] = game.sigma
    return {name: value for name, value in scalars.items() if value is not None}
