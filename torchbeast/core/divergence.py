"""Values that are not finite, and the rule by which a run has diverged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchbeast.core.types import RunError

# A run ends after so many updates in a row that are not finite.
MAX_SKIPPED_IN_A_ROW = 10


def find_not_finite(tensors: Mapping[str, Any]) -> list[str]:
    """Finds the names of the tensors, or numbers, that are not finite everywhere."""
    return [
        name for name, value in tensors.items() if not torch.isfinite(torch.as_tensor(value)).all()
    ]


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
