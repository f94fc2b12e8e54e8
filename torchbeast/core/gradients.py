"""Statistics of each layer's gradient: what ``--track_gradients`` writes down."""

from __future__ import annotations

import torch
from torch import Tensor

STATISTICS = ("norm", "mean", "std", "max_abs")


def describe_gradients(module: torch.nn.Module) -> dict[str, float]:
    """``<layer>/<statistic>`` of every parameter that has a gradient."""
    return {
        f"{name}/{statistic}": value
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
        for statistic, value in describe(parameter.grad).items()
    }


def describe(gradient: Tensor) -> dict[str, float]:
    """Norm, mean, standard deviation and largest absolute value."""
    g = gradient.detach().float()
    values = torch.stack([g.norm(), g.mean(), g.std(correction=0), g.abs().max()]).tolist()
    return dict(zip(STATISTICS, values, strict=True))
