"""Statistics of each layer's gradient during training: ``--track_gradients``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

STATISTICS = ("norm", "mean", "std", "max_abs")


class GradientTracker:
    """Appends rows to ``gradients.csv`` and hands out TensorBoard scalars.

    Nothing is kept in memory. ``every``: learner steps between rows.
    """

    def __init__(self, path: Path, every: int = 20) -> None:
        self._path = path
        self._every = every

    def track(self, module: torch.nn.Module, learner_step: int, step: int) -> dict[str, float]:
        """The scalars ``gradients/<layer>/<statistic>``; empty if it is not yet time.

        Call when gradients are summed over the batch and not yet clipped.
        """
        if learner_step % self._every:
            return {}
        scalars = {
            f"gradients/{name}/{statistic}": value
            for name, parameter in module.named_parameters()
            if parameter.grad is not None
            for statistic, value in describe(parameter.grad).items()
        }
        self._append({"step": step, **{k.split("/", 1)[1]: v for k, v in scalars.items()}})
        return scalars

    def _append(self, row: dict[str, Any]) -> None:
        new = not self._path.exists() or self._path.stat().st_size == 0
        with open(self._path, "a", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)


def describe(gradient: Tensor) -> dict[str, float]:
    """Norm, mean, standard deviation and largest absolute value."""
    g = gradient.detach().float()
    values = torch.stack([g.norm(), g.mean(), g.std(correction=0), g.abs().max()]).tolist()
    return dict(zip(STATISTICS, values, strict=True))
