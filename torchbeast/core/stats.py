"""What is recorded of a learner step. It stays on the device until it is read, once per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchbeast.core.losses import Losses
from torchbeast.core.types import EnvOutput


class Episode(NamedTuple):
    """A full game that was played to its end in a rollout."""

    task: int
    episode_return: float
    episode_step: int


@dataclass(frozen=True, kw_only=True)
class BatchStats:
    """The numbers of a batch, on the host."""

    total_loss: float
    pg_loss: float
    baseline_loss: float
    entropy_loss: float

    value_loss: float
    """Half the squared error of the normalised values; mean per agent step, without weight."""

    entropy: float
    """Entropy of the policy in nats; mean per agent step."""

    policy_lag: float
    """Learner steps between the weights that acted and those that learned; mean over the batch."""

    grad_norm: float
    episodes: list[Episode]
    """Those that ended in the batch."""

    task_steps: list[int]
    """Agent steps in this batch, by task."""

    task_entropies: dict[int, float]
    """As ``entropy``, of the tasks in this batch."""


@dataclass(frozen=True, kw_only=True)
class StepStats(BatchStats):
    """One learner step: the numbers of its batch, and how far the run is."""

    steps: int
    """Agent steps learned from so far."""

    learner_steps: int
    learning_rate: float

    skipped_updates: int = 0
    """Learner steps so far that left the weights as they were: see ``fault``."""

    fault: str | None = None
    """What was not finite in this batch, so that the weights did not learn from it."""


# Of PartStats: sums that are not by task.
NUM_SUMS = 6
# Numbers by task: steps, entropy.
NUM_TASK_SUMS = 2


class PartStats(NamedTuple):
    """What is recorded of a part of a batch. All on the device."""

    sums: Tensor
    """float64 ``[6 + 2 K]``: losses (total, policy gradient, baseline, entropy), value error,
    policy lag times steps; by task: steps, entropies."""

    rows: Tensor
    """float64 ``[4, N]``: of each row, whether an episode ended there, and the fields of
    ``Episode``."""

    @property
    def task_steps(self) -> Tensor:
        """Agent steps by task, ``[K]``."""
        return self.sums[NUM_SUMS:].chunk(NUM_TASK_SUMS)[0]


def collect_part(
    losses: Losses, env: EnvOutput, policy_version: Tensor | None, version: int, num_tasks: int
) -> PartStats:
    """Collects statistics of a part without waiting for the device.

    Args:
        losses: of the part.
        env: of its rollouts, leaves ``[T + 1, B, ...]``. The first row belongs to the rollout
            before.
        policy_version: int ``[T + 1, B]``, the learner step whose weights acted, if known.
        version: the learner step whose weights learn.
        num_tasks: of the agent.
    """
    task, is_step = losses.task, losses.is_step
    if policy_version is None:
        lag = losses.vs.new_zeros(())
    else:
        lag = ((version - policy_version[1:].to(torch.float64)) * is_step).sum()
    per_step = losses.per_step.detach()
    terms = (losses.policy_gradient, losses.baseline, losses.entropy, losses.value_error)
    values = (per_step.sum(), *(term.sum() for term in terms), lag)
    # Not bincount, which waits for the device.
    is_task = task.flatten().unsqueeze(-1) == torch.arange(num_tasks, device=task.device)
    is_task &= is_step.flatten().unsqueeze(-1)
    # Not a product: an entropy that is not finite stays with its task.
    entropies = torch.where(is_task, losses.policy_entropy.flatten().unsqueeze(-1), 0.0)
    by_task = (is_task, entropies)
    ends = (env.game_over, env.task, env.episode_return, env.episode_step)
    return PartStats(
        torch.cat(
            [
                torch.stack([x.to(torch.float64) for x in values]),
                *(x.sum(0, dtype=torch.float64) for x in by_task),
            ]
        ),
        torch.stack([x[1:].flatten().to(torch.float64) for x in ends]),
    )


def join_parts(a: PartStats, b: PartStats) -> PartStats:
    """Joins the statistics of two parts."""
    return PartStats(a.sums + b.sums, torch.cat([a.rows, b.rows], dim=1))


def read_stats(part: PartStats, norm: Tensor) -> BatchStats:
    """Copies a whole batch's statistics and the norm of its gradient to the host, in one copy."""
    pieces = (part.sums, norm.detach().to(torch.float64).reshape(1), part.rows.flatten())
    sums, norms, rows = torch.cat(pieces).cpu().split([len(piece) for piece in pieces])
    total, policy_gradient, baseline, entropy_loss, value_error, lag = sums[:NUM_SUMS].tolist()
    counts, entropies = (x.tolist() for x in sums[NUM_SUMS:].chunk(NUM_TASK_SUMS))
    task_steps = [int(count) for count in counts]
    batch_steps = max(sum(task_steps), 1)
    return BatchStats(
        total_loss=total,
        pg_loss=policy_gradient,
        baseline_loss=baseline,
        entropy_loss=entropy_loss,
        value_loss=value_error / batch_steps,
        entropy=sum(entropies) / batch_steps,
        policy_lag=lag / batch_steps,
        grad_norm=norms.item(),
        episodes=_finished_episodes(rows.view(4, -1)),
        task_steps=task_steps,
        task_entropies={
            task: entropy / steps
            for task, (entropy, steps) in enumerate(zip(entropies, task_steps, strict=True))
            if steps > 0
        },
    )


def _finished_episodes(rows: Tensor) -> list[Episode]:
    """The episodes that ended in ``rows`` of PartStats."""
    ended = rows[:, rows[0] > 0].T.tolist()
    return [Episode(int(task), score, int(steps)) for _, task, score, steps in ended]
