"""An agent whose games share PopArt's statistics, for an arm of docs/popart.md.

Its value heads are those of ``--use_popart``, one for each game, but their targets are normalised
by one mean and one standard deviation: those of all games together. Train it from the directory
above this one with ``--use_popart --agent_type tools.shared_scale:SharedScale``.
"""

from __future__ import annotations

from typing import Any

import torch

from torchbeast.core.popart import PopArtLayer, TargetSums
from torchbeast.models.atari_net import AtariNet


class SharedScaleLayer(PopArtLayer):
    """PopArt's layer with equal statistics for all tasks."""

    def sum_own_targets(self, *args: Any, **options: Any) -> TargetSums:
        """Returns the sums over the targets of all tasks, once for each task."""
        sums = super().sum_own_targets(*args, **options)
        # They may be added because every task's sums are centred on the same mean.
        return TargetSums(*(x.sum().expand_as(x) for x in sums))

    def set_statistics(self, means_and_stds: list[tuple[float, float]]) -> None:
        """Sets the statistics of a new layer to those of equally many targets of each task."""
        mean, std = torch.tensor(means_and_stds, dtype=torch.float64).unbind(-1)
        variance = std.square().mean() + mean.var(correction=0)
        super().set_statistics([(mean.mean().item(), variance.sqrt().item())] * len(mean))


class SharedScale(AtariNet):
    """The shallow agent (``--agent_type atari``) with one scale for the values of all games."""

    def build_outputs(self, size: int) -> None:
        """Makes ``policy`` and ``baseline`` on ``size`` features."""
        super().build_outputs(size)
        config = self.config
        self.baseline = SharedScaleLayer(
            size, len(config.tasks), config.beta, config.beta_per, config.sigma_floor
        )
