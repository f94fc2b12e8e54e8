"""PopArt: value heads whose targets are normalised while their outputs are preserved.

van Hasselt et al. 2016 (arXiv:1602.07714); for several tasks Hessel et al. 2019 (arXiv:1809.04474).
``art`` adapts the statistics to the targets, ``pop`` rescales the head so that nothing it says
changes. ``K`` heads, one a task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SIGMA_MIN = 1e-4
SIGMA_MAX = 1e6


class Moments(NamedTuple):
    """Exponentially weighted statistics of each task's targets; float64 ``[K]``.

    The variance is kept instead of the second moment ``nu = variance + mu ** 2``: it moves by the
    same rule, and nothing is lost to ``nu - mu ** 2`` when ``mu`` is large.
    """

    mu: Tensor
    variance: Tensor

    @property
    def sigma(self) -> Tensor:
        return self.variance.sqrt().clamp(SIGMA_MIN, SIGMA_MAX)


def art(moments: Moments, targets: Tensor, mask: Tensor, beta: float) -> Moments:
    """Moves each task's statistics by ``beta`` toward those of its targets.

    Args:
        moments: as they are.
        targets: ``[..., K]``, each task's targets.
        mask: ``[..., K]``, 1 where a target is of that task. Tasks without targets do not move.
        beta: step size.
    """
    axes = tuple(range(targets.dim() - 1))
    mask = mask.to(torch.float64)
    targets = targets.to(torch.float64)
    count = mask.sum(axes)
    divisor = count.clamp(min=1.0)
    mean = (targets * mask).sum(axes) / divisor
    spread = ((targets - mean).square() * mask).sum(axes) / divisor
    step = beta * (count > 0).to(torch.float64)
    # nu' = (1 - beta) nu + beta E[target ^ 2] and mu' likewise, written for nu - mu ^ 2.
    variance = (
        (1 - step) * moments.variance
        + step * spread
        + step * (1 - step) * (mean - moments.mu).square()
    )
    return Moments(moments.mu + step * (mean - moments.mu), variance)


def pop(weight: Tensor, bias: Tensor, old: Moments, new: Moments) -> tuple[Tensor, Tensor]:
    """Weight ``[K, F]`` and bias ``[K]`` with which every unnormalised output stays the same."""
    scale = old.sigma / new.sigma
    new_bias = (old.sigma * bias.to(torch.float64) + old.mu - new.mu) / new.sigma
    new_weight = weight.to(torch.float64) * scale.unsqueeze(-1)
    return new_weight.to(weight.dtype), new_bias.to(bias.dtype)


class PopArtLayer(nn.Module):
    """A linear layer of one value head per task with PopArt.

    Buffers ``mu`` and ``sigma``, float64 ``[K]``. Parameters and arithmetic are float64, too: with
    statistics of 1e5 and outputs of 1, float32 would lose in the bias what ``pop`` promises to
    preserve. The layer is small.
    """

    mu: Tensor
    sigma: Tensor
    variance: Tensor

    def __init__(self, input_features: int, output_features: int, beta: float = 0.0003) -> None:
        super().__init__()
        self.beta = beta
        linear = nn.Linear(input_features, output_features)
        self.weight = nn.Parameter(linear.weight.detach().to(torch.float64))
        self.bias = nn.Parameter(linear.bias.detach().to(torch.float64))
        self.register_buffer("mu", torch.zeros(output_features, dtype=torch.float64))
        self.register_buffer("sigma", torch.ones(output_features, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(output_features, dtype=torch.float64))

    def set_statistics(self, moments: list[tuple[float, float]]) -> None:
        """Makes mean and standard deviation, one pair per task, those to begin with."""
        mean, std = torch.tensor(moments, dtype=torch.float64).unbind(-1)
        self.mu.copy_(mean)
        self.variance.copy_(std.square())
        self.sigma.copy_(Moments(self.mu, self.variance).sigma)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """``[N, F]`` to (output, normalized_output), both ``[N, K]``, in the type of the input."""
        normalized = nn.functional.linear(inputs.to(torch.float64), self.weight, self.bias)
        output = normalized * self.sigma + self.mu
        return output.to(inputs.dtype), normalized.to(inputs.dtype)

    @torch.no_grad()
    def update_parameters(self, vs: Tensor, task: Tensor) -> None:
        """Adapts statistics and parameters to targets ``[T, B, K]`` of tasks one-hot ``[T, B, K]``.

        ``vs`` is in units of return.
        """
        if vs.shape != task.shape or vs.shape[-1] != self.mu.shape[0]:
            raise ValueError(
                f"vs and task must both be [T, B, {self.mu.shape[0]}], "
                f"got {tuple(vs.shape)} and {tuple(task.shape)}"
            )
        old = Moments(self.mu, self.variance)
        new = art(old, vs, task, self.beta)
        weight, bias = pop(self.weight, self.bias, old, new)
        self.weight.copy_(weight)
        self.bias.copy_(bias)
        sigma = new.sigma
        self.mu.copy_(new.mu)
        self.variance.copy_(new.variance)
        self.sigma.copy_(sigma)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # Checkpoints of 2019 have mu and sigma only.
        if prefix + "sigma" in state_dict and prefix + "variance" not in state_dict:
            sigma = state_dict[prefix + "sigma"].to(torch.float64)
            state_dict[prefix + "variance"] = sigma.square()
        super()._load_from_state_dict(state_dict, prefix, *args)
