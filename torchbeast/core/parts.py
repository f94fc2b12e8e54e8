"""What is computed from a part of a batch, and how parts are put together.

All of it is sums (and rows of finished games), so parts of several threads, and whole batches of
several ranks, add up to what one computation on all rollouts would give.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchbeast.core.popart import TargetSums, add_sums
from torchbeast.core.step_stats import PartStats, join_parts
from torchbeast.core.update import Gradients, join_gradients
from torchbeast.runtime.ranks import Ranks


class Part(NamedTuple):
    """What is kept of a part of a batch, on the device."""

    gradients: Gradients
    stats: PartStats
    targets: TargetSums | None


def join(a: Part, b: Part) -> Part:
    """Both parts together; the gradients of ``a`` are changed in place."""
    targets = None
    if a.targets is not None and b.targets is not None:
        targets = add_sums(a.targets, b.targets)
    return Part(join_gradients(a.gradients, b.gradients), join_parts(a.stats, b.stats), targets)


def sum_over_ranks(part: Part, ranks: Ranks, flag: bool) -> tuple[Part, bool]:
    """The batches of all ranks together, and whether any rank raised its flag.

    Every rank must call it with a batch of as many rollouts, of the same agent. All get the same
    bits.

    Args:
        part: this rank's batch. Its tensors are changed in place.
        ranks: of the run.
        flag: this rank's.
    """
    if ranks.count == 1:
        return part, flag
    gradients, stats, targets = part
    flags = torch.tensor([float(flag)], dtype=torch.float64, device=stats.sums.device)
    ranks.sum_([*gradients.total, stats.sums, *(targets or ()), flags])
    stats = stats._replace(rows=torch.cat(ranks.gather(stats.rows), dim=1))
    by_task = _sum_by_task(gradients, stats, ranks) if gradients.by_task else {}
    return Part(gradients._replace(by_task=by_task), stats, targets), bool(flags.item())


def _sum_by_task(gradients: Gradients, stats: PartStats, ranks: Ranks) -> dict[int, list[Tensor]]:
    """Gradients of each task that any rank has steps of; one task at a time, to save memory."""
    sums = {}
    for task in torch.nonzero(stats.task_steps).flatten().tolist():
        own = gradients.by_task.get(task)
        tensors = [torch.zeros_like(g) for g in gradients.total] if own is None else own
        ranks.sum_(tensors)
        sums[task] = tensors
    return sums
