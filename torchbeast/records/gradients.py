"""Statistics of each layer's gradient: what ``--track_gradients`` writes down."""

from __future__ import annotations

import torch
from torch import Tensor

STATISTICS = ("norm", "mean", "std", "max_abs")


def describe_gradients(module: torch.nn.Module) -> dict[str, float]:
    """Computes ``<layer>/<statistic>`` of every parameter that has a gradient; one copy from the
    device.
    """
    described = {
        name: describe(parameter.grad)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    if not described:
        return {}
    rows = torch.stack(list(described.values())).tolist()
    return {
        f"{name}/{statistic}": value
        for name, row in zip(described, rows, strict=True)
        for statistic, value in zip(STATISTICS, row, strict=True)
    }


def describe(gradient: Tensor) -> Tensor:
    """Computes the ``STATISTICS`` of a gradient: norm, mean, standard deviation and largest
    absolute value.
    """
    g = gradient.detach().float()
    return torch.stack([g.norm(), g.mean(), g.std(correction=0), g.abs().max()])
