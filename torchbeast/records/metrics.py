"""Names and values of what a run logs: the columns of logs.csv, and the scalars.

Scalars are named as CleanRL and Stable-Baselines3 name theirs. Losses are means per agent step and
without the weights of the total loss. The columns of logs.csv hold the weighted sums over a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchbeast.core.stats import Episode
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
        per_game.append("entropy")
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
        "held_back_by": snapshot.bottleneck or "",
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
        cells["entropy"] = game.entropy
    if game.sigma is not None:
        cells.update(mu=game.mu, sigma=game.sigma)
    return {f"{field}/{game.name}": value for field, value in cells.items()}


def episode_scalars(episode: Episode, names: Sequence[str]) -> dict[str, float]:
    """Returns the scalars of one full game that ended."""
    name = names[episode.task]
    return {
        f"charts/episodic_return/{name}": episode.episode_return,
        f"charts/episodic_length/{name}": episode.episode_step,
    }


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
