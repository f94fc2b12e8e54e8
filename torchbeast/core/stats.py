"""What is recorded of a learner step. It stays on the device until it is read, once per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchbeast.core.losses import Losses
from torchbeast.core.types import EnvOutput, LossConfig


class FinishedGame(NamedTuple):
    """A full game that was played to its end in a rollout."""

    task: int
    episode_return: float
    episode_step: int


@dataclass(frozen=True, kw_only=True)
class StepStats:
    """One learner step: the numbers of its batch, and how far the run is."""

    total_loss: float
    """Sum over the batch of what the gradient is of; the next three are its terms."""

    pg_loss: float
    baseline_loss: float
    """``value_loss`` with its weight, summed."""

    entropy_loss: float
    """Minus the entropy with its weight, summed."""

    value_loss: float
    """Half the squared error of the normalised values; mean per agent step, without weight."""

    entropy: float
    """Entropy of the policy in nats; mean per agent step."""

    policy_lag: float
    """Learner steps between the weights that acted and those that learned; mean over the batch."""

    grad_norm: float
    episodes: list[FinishedGame]
    """Those that ended in the batch."""

    task_steps: list[int]
    """Agent steps in this batch, by task."""

    task_entropies: dict[int, float]
    """As ``entropy``, of the tasks in this batch."""

    steps: int = 0
    """Agent steps learned from so far."""

    learner_steps: int = 0
    learning_rate: float = 0.0

    skipped_updates: int = 0
    """Learner steps so far that left the weights as they were: see ``fault``."""

    fault: str | None = None
    """What was not finite in this batch, so that the weights did not learn from it."""


class PartStats(NamedTuple):
    """Sums over the steps of a part of a batch, in the end over a batch of all ranks; float64, on
    the device.
    """

    total_loss: Tensor
    pg_loss: Tensor

    value_loss: Tensor
    """Without weight."""

    policy_lag: Tensor

    task_steps: Tensor
    """``[G]``, of G games."""

    task_entropy: Tensor
    """``[G]``"""

    ends: Tensor
    """``[4, N]``: of each row, whether a game ended there, and the fields of ``FinishedGame``. Of
    several parts they are concatenated."""


def collect_part(
    losses: Losses, env: EnvOutput, policy_version: Tensor | None, version: int, num_tasks: int
) -> PartStats:
    """Collects statistics of a part without waiting for the device.

    Args:
        env: of its rollouts, leaves ``[T + 1, B, ...]``. The first row belongs to the rollout
            before.
        policy_version: int ``[T + 1, B]``, the learner step whose weights acted, if known.
        version: the learner step whose weights learn.
    """
    is_step, task = losses.is_step.unsqueeze(-1), losses.task.unsqueeze(-1)
    # Not bincount, which waits for the device.
    is_task = is_step & (task == torch.arange(num_tasks, device=task.device))
    # Not a product: an entropy that is not finite stays with its task.
    task_entropy = torch.where(is_task, losses.policy_entropy.unsqueeze(-1), 0.0)
    lag = torch.zeros_like(losses.vs)
    if policy_version is not None:
        lag = (version - policy_version[1:].to(torch.float64)) * losses.is_step
    ends = (env.game_over, env.task, env.episode_return, env.episode_step)
    return PartStats(
        total_loss=losses.total.detach().to(torch.float64),
        pg_loss=losses.pg_loss.sum().to(torch.float64),
        value_loss=losses.value_loss.sum().to(torch.float64),
        policy_lag=lag.sum().to(torch.float64),
        task_steps=is_task.sum((0, 1), dtype=torch.float64),
        task_entropy=task_entropy.sum((0, 1), dtype=torch.float64),
        ends=torch.stack([x[1:].flatten().to(torch.float64) for x in ends]),
    )


def join_parts(a: PartStats, b: PartStats) -> PartStats:
    """Joins the statistics of two parts."""
    sums = map(torch.add, a[:-1], b[:-1])
    return PartStats._make([*sums, torch.cat([a.ends, b.ends], dim=1)])


def read_stats(part: PartStats, norm: Tensor, loss: LossConfig) -> StepStats:
    """Copies a whole batch's statistics and the norm of its gradient to the host, in one copy.

    ``loss`` has the weights of the loss terms.
    """
    tensors = (*part, norm.detach())
    flat = torch.cat([x.flatten().to(torch.float64) for x in tensors]).cpu()
    pieces = flat.split([x.numel() for x in tensors])
    *sums, norm = (piece.view(x.shape) for piece, x in zip(pieces, tensors, strict=True))
    batch = PartStats(*sums)
    task_steps = [int(steps) for steps in batch.task_steps.tolist()]
    entropies = batch.task_entropy.tolist()
    num_steps = max(sum(task_steps), 1)
    value_loss = batch.value_loss.item()
    ended = batch.ends[:, batch.ends[0] > 0].T.tolist()
    return StepStats(
        total_loss=batch.total_loss.item(),
        pg_loss=batch.pg_loss.item(),
        baseline_loss=loss.baseline_cost * value_loss,
        entropy_loss=-loss.entropy_cost * sum(entropies),
        value_loss=value_loss / num_steps,
        entropy=sum(entropies) / num_steps,
        policy_lag=batch.policy_lag.item() / num_steps,
        grad_norm=norm.item(),
        episodes=[FinishedGame(int(task), score, int(steps)) for _, task, score, steps in ended],
        task_steps=task_steps,
        task_entropies={k: entropies[k] / n for k, n in enumerate(task_steps) if n > 0},
    )
