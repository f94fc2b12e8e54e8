"""Updates that are not finite: their description, and the rule by which a run has diverged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchbeast.core.types import RunError

if TYPE_CHECKING:
    from torchbeast.core.stats import BatchStats

# A run ends after so many updates in a row that are not finite.
MAX_SKIPPED_IN_A_ROW = 10
# How many parameters a message names.
MAX_NAMES = 3


def find_not_finite(tensors: Mapping[str, Any]) -> list[str]:
    """Finds the names of the tensors, or numbers, that are not finite everywhere."""
    return [
        name for name, value in tensors.items() if not torch.isfinite(torch.as_tensor(value)).all()
    ]


def is_finite(stats: BatchStats) -> bool:
    """Whether the weights may learn from a batch: its loss and the norm of its gradient are finite.

    A gradient that is not finite would spread to all weights, because all are clipped together.
    """
    return math.isfinite(stats.total_loss) and math.isfinite(stats.grad_norm)


def describe_fault(stats: BatchStats, tasks: Sequence[str], faulty_gradients: Sequence[str]) -> str:
    """Names what is not finite in a batch.

    Args:
        stats: of the batch.
        tasks: the games' names, by task.
        faulty_gradients: names of the parameters whose gradients are not finite.

    Returns:
        A text such as ``the loss of Pong; the gradients of policy.weight, policy.bias``.
    """
    faults = []
    games = [tasks[task] for task, count in enumerate(stats.faulty_steps) if count]
    if games:
        faults.append(f"the loss of {', '.join(games)}")
    if faulty_gradients:
        names = ", ".join(faulty_gradients[:MAX_NAMES])
        more = len(faulty_gradients) - MAX_NAMES
        faults.append(f"the gradients of {names}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(faults) or "the sum of the losses or the norm of the gradient"


class SkippedUpdates:
    """Counts the updates that were left out."""

    def __init__(self) -> None:
        self.total = 0
        """Since the first step of the run."""
        self._in_a_row = 0

    @property
    def is_diverged(self) -> bool:
        """Whether so many updates in a row were not finite that the run has to end."""
        return self._in_a_row >= MAX_SKIPPED_IN_A_ROW

    def record(self, fault: str | None, step: int) -> None:
        """Counts an update.

        Args:
            fault: what was not finite in it; None if the update was made.
            step: the agent step after it.

        Raises:
            RunError: too many in a row were not finite.
        """
        if fault is None:
            self._in_a_row = 0
            return
        self.total += 1
        self._in_a_row += 1
        if self.is_diverged:
            raise RunError(
                f"training diverged: {self._in_a_row} updates in a row were not finite, the last "
                f"at step {step:,} ({fault}); a lower --learning_rate may help"
            )
