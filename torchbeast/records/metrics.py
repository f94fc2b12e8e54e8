"""Names and values of what a run logs: the columns of logs.csv, and the scalars.

Scalars are named as CleanRL and Stable-Baselines3 name theirs. Losses are means per agent step and
without the weights of the total loss. The columns of logs.csv hold the weighted sums over a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchbeast.core.stats import Episode, StepStats
from torchbeast.records.progress import GameSnapshot, Snapshot

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
    per_game = ["steps", "games", "mean_episode_return", "std_episode_return"]
    if len(names) > 1:
        per_game += ["grad_norm", "entropy"]
    if use_popart:
        per_game += ["mu", "sigma"]
    return LOG_FIELDS + [f"{field}/{name}" for field in per_game for name in names]


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
        "held_back_by": snapshot.bottleneck.stage if snapshot.bottleneck else "",
    }
    for game in snapshot.games:
        row.update(_log_cells(game, is_one_of_several=len(snapshot.games) > 1))
    return row


def _log_cells(game: GameSnapshot, *, is_one_of_several: bool) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "steps": game.steps,
        "games": game.games,
        "mean_episode_return": game.mean_return,
        "std_episode_return": game.std_return,
    }
    if is_one_of_several:
        cells.update(grad_norm=game.grad_norm, entropy=game.entropy)
    if game.sigma is not None:
        cells.update(mu=game.mu, sigma=game.sigma)
    return {f"{field}/{game.name}": value for field, value in cells.items()}


def step_scalars(stats: StepStats, names: Sequence[str]) -> dict[str, float]:
    """Returns the scalars of one learner step, without those of the games that ended in it."""
    batch_steps = max(sum(stats.task_steps), 1)
    scalars = {
        "charts/learning_rate": stats.learning_rate,
        "charts/policy_lag": stats.policy_lag,
        "losses/policy_loss": stats.pg_loss / batch_steps,
        "losses/value_loss": stats.value_loss,
        "losses/entropy": stats.entropy,
        "losses/grad_norm": stats.grad_norm,
        "losses/skipped_updates": stats.skipped_updates,
    }
    for task, norm in stats.task_grad_norms.items():
        scalars[f"losses/grad_norm/{names[task]}"] = norm
    if len(names) > 1:
        for task, entropy in stats.task_entropies.items():
            scalars[f"losses/entropy/{names[task]}"] = entropy
    return scalars


def episode_scalars(episode: Episode, names: Sequence[str]) -> dict[str, float]:
    """Returns the scalars of one full game that ended."""
    name = names[episode.task]
    return {
        f"charts/episodic_return/{name}": episode.episode_return,
        f"charts/episodic_length/{name}": episode.episode_step,
    }


def snapshot_scalars(snapshot: Snapshot) -> dict[str, float]:
    """Returns the scalars of a report: speed, queues, human-normalised scores, PopArt's
    statistics.
    """
    scalars: dict[str, float | None] = {
        "charts/SPS": snapshot.sps,
        **{f"queues/{name}": size for name, size in snapshot.queues.items()},
        "charts/human_normalized_median": snapshot.median_human,
    }
    for game in snapshot.games:
        scalars[f"charts/human_normalized/{game.name}"] = game.human
        scalars[f"popart/mu/{game.name}"] = game.mu
        scalars[f"popart/sigma/{game.name}"] = game.sigma
    return {name: value for name, value in scalars.items() if value is not None}
