"""PopArt: value heads whose targets are normalised while their outputs are preserved.

van Hasselt et al. 2016 (arXiv:1602.07714); for several tasks Hessel et al. 2019 (arXiv:1809.04474).
``sum_targets`` reduces targets to sums that can be added over parts of a batch, threads and
machines; ``art`` moves the statistics toward them; ``pop`` rescales the head so that no output
changes. All three are pure functions. ``K`` heads, one per task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SIGMA_MIN = 1e-4
SIGMA_MAX = 1e6
# How large rewards count as before a task's first reward.
UNKNOWN_MAGNITUDE = 1.0
# What --beta is the step size of.
BETA_PER = ("target", "batch")


class Moments(NamedTuple):
    """Exponentially weighted statistics of each task's targets and rewards; float64 ``[K]``.

    The variance is kept instead of the second moment ``nu = variance + mu ** 2``: it moves by the
    same rule, and nothing is lost to ``nu - mu ** 2`` when ``mu`` is large.
    """

    mu: Tensor
    variance: Tensor

    reward_magnitude: Tensor
    """Mean magnitude of the rewards that were not 0; 0 before the first."""

    sigma: Tensor
    """What normalises: the square root of the variance, within the bounds of
    :func:`bounded_sigma`. Kept, because a run may be resumed with another ``--sigma_floor``, and
    its outputs must not change before :func:`pop`."""


class TargetSums(NamedTuple):
    """Sums over the targets of each task, float64 ``[K]``.

    Sums over different targets may be added if they are centred on the same mean. Centring keeps
    small spreads of large targets exact.
    """

    number: Tensor
    """How many targets."""

    centred: Tensor
    """Sum of ``target - mu``, with ``mu`` of the statistics before the batch."""

    squared: Tensor
    """Sum of ``(target - mu) ** 2``."""

    rewards: Tensor
    """How many rewards that are not 0."""

    magnitudes: Tensor
    """Sum of the magnitudes of the rewards."""


def sum_targets(
    moments: Moments, targets: Tensor, mask: Tensor, rewards: Tensor | None = None
) -> TargetSums:
    """Sums each task's targets.

    Args:
        moments: the statistics before the batch.
        targets: ``[..., K]``, each task's targets.
        mask: ``[..., K]``, 1 where a target is of that task.
        rewards: ``[..., K]``, the reward of each target's step; None if they are not known.
    """
    axes = tuple(range(targets.dim() - 1))
    own = mask.bool()
    # Not a product with the mask: where it is 0 a target may be anything, infinity included.
    centred = torch.where(own, targets.to(torch.float64) - moments.mu, 0.0)
    number = own.to(torch.float64).sum(axes)
    if rewards is None:
        paid = magnitudes = torch.zeros_like(number)
    else:
        size = torch.where(own, rewards.to(torch.float64).abs(), 0.0)
        paid, magnitudes = (size > 0).to(torch.float64).sum(axes), size.sum(axes)
    return TargetSums(number, centred.sum(axes), centred.square().sum(axes), paid, magnitudes)


def add_sums(a: TargetSums, b: TargetSums) -> TargetSums:
    """Adds the sums over two sets of targets."""
    return TargetSums(*(x + y for x, y in zip(a, b, strict=True)))


def step_size(beta: float, beta_per: str, number: Tensor) -> Tensor:
    """Computes how far ``number`` targets of a task move its statistics toward theirs.

    Args:
        beta: ``--beta``.
        beta_per: "target": each target moves them by ``beta``, so all by
            ``1 - (1 - beta) ** number``. "batch": all targets of a batch together by ``beta``.
        number: ``[K]``, how many targets each task has.
    """
    if beta_per == "target":
        return 1.0 - (1.0 - beta) ** number
    return beta * (number > 0).to(number.dtype)


def bounded_sigma(variance: Tensor, reward_magnitude: Tensor, floor: float) -> Tensor:
    """Computes the standard deviation that normalises each task; float64 ``[K]``.

    It stays within [1e-4, 1e6] and above ``floor`` times the magnitude of the task's rewards.
    Without that bound a task that pays nothing for long has hardly any spread left: the noise of
    its values is scaled up until its gradient drowns those of the other tasks. With it no
    reward of mean size is more than ``1 / floor`` in normalised units.

    Args:
        variance: ``[K]``, of the targets.
        reward_magnitude: ``[K]``, see :class:`Moments`.
        floor: ``--sigma_floor``; 0 for no bound.
    """
    known = reward_magnitude > 0
    lowest = floor * torch.where(known, reward_magnitude, UNKNOWN_MAGNITUDE)
    return variance.sqrt().clamp(min=lowest).clamp(SIGMA_MIN, SIGMA_MAX)


def art(moments: Moments, sums: TargetSums, beta: float, beta_per: str, floor: float) -> Moments:
    """Moves each task's statistics toward those of its targets.

    Args:
        moments: the statistics that ``sums`` are centred on.
        sums: of the targets. Tasks without targets do not move.
        beta: step size, see :func:`step_size`.
        beta_per: what has this step size, likewise.
        floor: lowest sigma, see :func:`bounded_sigma`.
    """
    step, number = step_size(beta, beta_per, sums.number), sums.number.clamp(min=1.0)
    shift = step * sums.centred / number
    # nu' = (1 - step) nu + step E[target ** 2], written for variance = nu - mu ** 2.
    variance = (1 - step) * moments.variance + step * sums.squared / number - shift.square()
    variance = variance.clamp(min=0.0)

    # The first batch with rewards sets the magnitude: there is nothing to move from.
    step = torch.where(moments.reward_magnitude > 0, step_size(beta, beta_per, sums.rewards), 1.0)
    mean = sums.magnitudes / sums.rewards.clamp(min=1.0)
    moved = moments.reward_magnitude + step * (mean - moments.reward_magnitude)
    magnitude = torch.where(sums.rewards > 0, moved, moments.reward_magnitude)

    sigma = bounded_sigma(variance, magnitude, floor)
    return Moments(
        moments.mu + shift,
        variance,
        magnitude,
        torch.where(sums.number > 0, sigma, moments.sigma),
    )


def pop(weight: Tensor, bias: Tensor, old: Moments, new: Moments) -> tuple[Tensor, Tensor]:
    """Computes weight ``[K, F]`` and bias ``[K]`` with which every unnormalised output stays the
    same.
    """
    scale = old.sigma / new.sigma
    new_bias = (old.sigma * bias.to(torch.float64) + old.mu - new.mu) / new.sigma
    new_weight = weight.to(torch.float64) * scale.unsqueeze(-1)
    return new_weight.to(weight.dtype), new_bias.to(bias.dtype)


class PopArtLayer(nn.Module):
    """A linear layer of one value head per task with PopArt.

    A learner step calls ``forward``; with V-trace's targets ``sum_own_targets``,
    ``loss_moments`` and ``normalize``; after the backward pass ``rescale_gradients``; and with the
    sums of the whole batch ``moved`` and ``adopt``.

    Buffers: the fields of :class:`Moments`. Parameters and arithmetic are float64, too: with
    statistics of 1e5 and outputs of 1, float32 would lose in the bias what ``pop`` promises to
    preserve. The layer is small.
    """

    mu: Tensor
    sigma: Tensor
    variance: Tensor
    reward_magnitude: Tensor

    def __init__(
        self,
        input_features: int,
        output_features: int,
        beta: float = 0.00001,
        beta_per: str = "target",
        sigma_floor: float = 0.0,
    ) -> None:
        """Initialises the layer like ``nn.Linear``, with mean 0 and standard deviation 1.

        Args:
            input_features: ``F``.
            output_features: ``K``.
            beta: step size of the statistics.
            beta_per: what moves them by ``beta``, "target" or "batch" (see :func:`step_size`), and
                when (see :attr:`moves_first`).
            sigma_floor: lowest sigma, as a share of the mean magnitude of the task's rewards; 0
                where the sums of targets come without rewards.
        """
        super().__init__()
        if beta_per not in BETA_PER:
            raise ValueError(f"beta_per must be one of {', '.join(BETA_PER)}, not {beta_per!r}")
        self.beta = beta
        self.beta_per = beta_per
        self.sigma_floor = sigma_floor
        linear = nn.Linear(input_features, output_features)
        self.weight = nn.Parameter(linear.weight.detach().to(torch.float64))
        self.bias = nn.Parameter(linear.bias.detach().to(torch.float64))
        self.register_buffer("mu", torch.zeros(output_features, dtype=torch.float64))
        self.register_buffer("sigma", torch.ones(output_features, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(output_features, dtype=torch.float64))
        self.register_buffer("reward_magnitude", torch.zeros(output_features, dtype=torch.float64))

    @property
    def moments(self) -> Moments:
        """The statistics as they are: the buffers themselves, no copies."""
        return Moments(self.mu, self.variance, self.reward_magnitude, self.sigma)

    def set_statistics(self, means_and_stds: list[tuple[float, float]]) -> None:
        """Sets the statistics of a new layer: mean and standard deviation, one pair per task."""
        pairs = torch.tensor(means_and_stds, dtype=torch.float64, device=self.mu.device)
        mean, std = pairs.unbind(-1)
        variance, unknown = std.square(), torch.zeros_like(mean)
        sigma = bounded_sigma(variance, unknown, self.sigma_floor)
        self._set_moments(Moments(mean, variance, unknown, sigma))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Computes (output, normalized_output), both ``[N, K]``, of ``[N, F]``, in the type of the
        input.
        """
        normalized = nn.functional.linear(inputs.to(torch.float64), self.weight, self.bias)
        output = normalized * self.sigma + self.mu
        return output.to(inputs.dtype), normalized.to(inputs.dtype)

    def sum_own_targets(
        self,
        targets: Tensor,
        task: Tensor,
        rewards: Tensor | None = None,
        is_step: Tensor | None = None,
    ) -> TargetSums:
        """Sums targets ``[...]`` in units of return, of tasks int64 ``[...]``.

        ``rewards`` ``[...]`` are those of the same steps, if they are known. Only targets where
        ``is_step`` bool ``[...]`` is true count; by default all.
        """
        mask = task.unsqueeze(-1) == torch.arange(len(self.mu), device=task.device)
        if is_step is not None:
            mask &= is_step.unsqueeze(-1)
        rewards = None if rewards is None else rewards.unsqueeze(-1)
        return sum_targets(self.moments, targets.unsqueeze(-1), mask, rewards)

    def moved(self, sums: TargetSums) -> Moments:
        """Returns the statistics after targets with these sums. The layer is not changed."""
        return art(self.moments, sums, self.beta, self.beta_per, self.sigma_floor)

    @property
    def moves_first(self) -> bool:
        """Whether the statistics move before a batch is learned from, not after it, as in 2019."""
        return self.beta_per == "target"

    def loss_moments(self, sums: TargetSums) -> Moments:
        """Returns the statistics that normalise targets with these sums in a loss.

        With a step per target they contain these targets already: the first reward of a game is
        divided by a deviation that knows it.
        """
        return self.moved(sums) if self.moves_first else self.moments

    def normalize(
        self, new: Moments, task: Tensor, targets: Tensor, values: Tensor, advantages: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Puts the targets, values and advantages of a loss into normalised units, ``[T, B]``.

        Values are converted from the present statistics, so that no weight has to move before the
        gradient is known.

        Args:
            new: the statistics of the loss: :meth:`loss_moments`.
            task: int64, whose statistics each step has.
            targets: in units of return.
            values: normalised by the present statistics, as from :meth:`forward`.
            advantages: in units of return.
        """
        old = self.moments
        scale, shift = old.sigma / new.sigma, (old.mu - new.mu) / new.sigma
        # In float64: rounded to float32, a mu of 30,000 is off by 0.001.
        mu, sigma, scale, shift = (x[task] for x in (new.mu, new.sigma, scale, shift))
        normalized = (targets - mu) / sigma, values * scale + shift, advantages / sigma
        targets, values, advantages = (x.to(targets.dtype) for x in normalized)
        return targets, values, advantages

    @torch.no_grad()
    def adopt(self, new: Moments) -> None:
        """Makes ``new`` the layer's statistics and preserves every output.

        Gradients of the parameters stay as they are: see :meth:`rescale_gradients`.
        """
        weight, bias = pop(self.weight, self.bias, self.moments, new)
        self.weight.copy_(weight)
        self.bias.copy_(bias)
        self._set_moments(new)

    @torch.no_grad()
    def rescale_gradients(self, weight: Tensor, bias: Tensor, new: Moments) -> None:
        """Changes gradients of the parameters to those of what ``adopt(new)`` makes of them.

        Args:
            weight: gradient with respect to the weight, changed in place.
            bias: gradient with respect to the bias, changed in place.
            new: statistics that have not been adopted yet.
        """
        factor = new.sigma / self.sigma
        weight.mul_(factor.unsqueeze(-1))
        bias.mul_(factor)

    @torch.no_grad()
    def update_parameters(self, vs: Tensor, task: Tensor) -> None:
        """Moves the statistics toward targets and rescales the parameters: no output changes.

        Args:
            vs: ``[T, B, K]``, the V-trace targets, in units of return.
            task: ``[T, B, K]``, one-hot: which task each step is of.

        Raises:
            ValueError: the shapes differ from each other or from the number of tasks.
        """
        if vs.shape != task.shape or vs.shape[-1] != self.mu.shape[0]:
            raise ValueError(
                f"vs and task must both be [T, B, {self.mu.shape[0]}], "
                f"got {tuple(vs.shape)} and {tuple(task.shape)}"
            )
        self.adopt(self.moved(sum_targets(self.moments, vs, task)))

    def _set_moments(self, new: Moments) -> None:
        for buffer, value in zip(self.moments, new, strict=True):
            buffer.copy_(value)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # Checkpoints of 2019 have mu and sigma only.
        if prefix + "sigma" in state_dict:
            sigma = state_dict[prefix + "sigma"].to(torch.float64)
            state_dict.setdefault(prefix + "variance", sigma.square())
            state_dict.setdefault(prefix + "reward_magnitude", torch.zeros_like(sigma))
        super()._load_from_state_dict(state_dict, prefix, *args)
