"""V-trace, the off-policy correction of IMPALA (Espeholt et al. 2018, arXiv:1802.01561).

Shapes: ``T`` steps without the bootstrap row, batch ``B``, ``A`` actions. Values ``[T, B, ...]``
may have more axes, for example one of ``K`` heads; everything else is broadcast to them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchbeast.core.types import ShapeError


class VTraceReturns(NamedTuple):
    """Targets; no gradient flows through them."""

    vs: Tensor
    """``[T, B, ...]``, the value targets."""

    pg_advantages: Tensor
    """``[T, B, ...]``, divided by sigma where there is one."""


class VTraceFromLogitsReturns(NamedTuple):
    """Targets and what they were computed from."""

    vs: Tensor
    """``[T, B, ...]``, the value targets."""

    pg_advantages: Tensor
    """``[T, B, ...]``, divided by sigma where there is one."""

    log_rhos: Tensor
    """``[T, B]``, logarithms of the importance weights."""

    behavior_action_log_probs: Tensor
    """``[T, B]``"""

    target_action_log_probs: Tensor
    """``[T, B]``"""


def action_log_probs(policy_logits: Tensor, actions: Tensor) -> Tensor:
    """Computes log pi(action): logits ``[T, B, A]``, actions int64 ``[T, B]``.

    Returns ``[T, B]``. Raises ShapeError if the shapes contradict each other.
    """
    if policy_logits.shape[:-1] != actions.shape:
        raise ShapeError(
            f"logits {tuple(policy_logits.shape)} must be [T, B, A] for actions [T, B], got "
            f"actions {tuple(actions.shape)}"
        )
    log_policy = torch.log_softmax(policy_logits, dim=-1)
    return log_policy.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def from_logits(
    behavior_policy_logits: Tensor,
    target_policy_logits: Tensor,
    actions: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
    *,
    normalized_values: Tensor | None = None,
    mu: Tensor | None = None,
    sigma: Tensor | None = None,
) -> VTraceFromLogitsReturns:
    """Computes V-trace for softmax policies, with c-bar = 1 and lambda = 1.

    Args:
        behavior_policy_logits: ``[T, B, A]``, of the policy that acted.
        target_policy_logits: ``[T, B, A]``, of the policy that learns.
        actions: int64 ``[T, B]``, taken at each step.
        discounts: ``[T, B]``, gamma, or 0 where an episode ended with the step.
        rewards: ``[T, B]``, that followed each action.
        values: ``[T, B, ...]``, in units of return.
        bootstrap_value: ``[B, ...]``, the value after the last step.
        clip_rho_threshold: rho-bar; None for no clipping.
        clip_pg_rho_threshold: rho-bar in the policy gradient (section 4.2); None for no clipping.
        normalized_values: ``values`` in PopArt's units: ``(values - mu) / sigma``.
        mu: PopArt's mean, broadcastable to ``values``.
        sigma: PopArt's standard deviation, likewise.

    Raises:
        ShapeError: shapes contradict each other. It is a ValueError and a RuntimeError.
        ValueError: one of ``mu`` and ``sigma`` is given without the other.
    """
    behavior, target = (
        action_log_probs(logits.detach().to(values.dtype), actions)
        for logits in (behavior_policy_logits, target_policy_logits)
    )
    log_rhos = target - behavior
    returns = from_importance_weights(
        log_rhos,
        discounts,
        rewards,
        values,
        bootstrap_value,
        clip_rho_threshold,
        clip_pg_rho_threshold,
        normalized_values=normalized_values,
        mu=mu,
        sigma=sigma,
    )
    return VTraceFromLogitsReturns(*returns, log_rhos, behavior, target)


@torch.no_grad()
def from_importance_weights(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
    *,
    normalized_values: Tensor | None = None,
    mu: Tensor | None = None,
    sigma: Tensor | None = None,
) -> VTraceReturns:
    """Computes V-trace from the logarithms of the importance weights; else as from_logits.

    ``log_rhos``, ``discounts`` and ``rewards`` are ``[T, B]``, or of the rank of ``values``. Their
    trailing axes are broadcast: ``[T, B]`` and ``[T, B, 1]`` go with values ``[T, B, K]``.

    Targets are equation (1) of the paper in the recursive form of its remark 1, advantages those of
    section 4.2. With ``sigma`` advantages are divided by it, as multi-task PopArt wants (Hessel et
    al. 2019): ``rho * ((reward + discount * v' - mu) / sigma - normalized_value)``.
    """
    _check_bootstrap(values, bootstrap_value)
    if (mu is None) != (sigma is None) or (sigma is None and normalized_values is not None):
        raise ValueError("mu, sigma and normalized_values belong together: mu or sigma is missing")
    if normalized_values is not None and normalized_values.shape != values.shape:
        raise ShapeError(
            f"normalized_values {tuple(normalized_values.shape)} must have the shape of values "
            f"{tuple(values.shape)}"
        )
    log_rhos = _broadcast("log_rhos", log_rhos, values)
    discounts = _broadcast("discounts", discounts, values)
    rewards = _broadcast("rewards", rewards, values)

    rhos = torch.exp(log_rhos)
    clipped_rhos = rhos if clip_rho_threshold is None else rhos.clamp(max=clip_rho_threshold)
    cs = rhos.clamp(max=1.0)
    values_next = torch.cat([values[1:], bootstrap_value.unsqueeze(0)])
    deltas = clipped_rhos * (rewards + discounts * values_next - values)

    correction = torch.zeros_like(bootstrap_value)
    corrections = []
    for delta, discount, c in zip(
        deltas.flip(0).unbind(), discounts.flip(0).unbind(), cs.flip(0).unbind(), strict=True
    ):
        correction = delta + discount * c * correction
        corrections.append(correction)
    vs = values + torch.stack(corrections[::-1])

    vs_next = torch.cat([vs[1:], bootstrap_value.unsqueeze(0)])
    clipped_pg_rhos = (
        rhos if clip_pg_rho_threshold is None else rhos.clamp(max=clip_pg_rho_threshold)
    )
    q_values = rewards + discounts * vs_next
    if sigma is None or mu is None:
        pg_advantages = clipped_pg_rhos * (q_values - values)
    else:
        if normalized_values is None:
            normalized_values = (values - mu) / sigma
        pg_advantages = clipped_pg_rhos * ((q_values - mu) / sigma - normalized_values)
    return VTraceReturns(vs, pg_advantages)


def _check_bootstrap(values: Tensor, bootstrap_value: Tensor) -> None:
    """Raises ShapeError unless ``bootstrap_value`` is one more step of ``values``."""
    if values.dim() < 2:
        raise ShapeError(f"values must be [T, B, ...], got {tuple(values.shape)}")
    if bootstrap_value.dim() != values.dim() - 1:
        raise ShapeError(
            "bootstrap_value and a step of values must have the same number of dimensions, got "
            f"{tuple(bootstrap_value.shape)} and {tuple(values.shape[1:])}"
        )
    if bootstrap_value.shape != values.shape[1:]:
        raise ShapeError(
            f"bootstrap_value must be {tuple(values.shape[1:])}, got {tuple(bootstrap_value.shape)}"
        )


def _broadcast(name: str, tensor: Tensor, values: Tensor) -> Tensor:
    """``tensor`` with trailing axes that broadcast to those of ``values``. Raises ShapeError."""
    shape = tensor.shape
    if tensor.dim() == 2:
        tensor = tensor.view(*shape, *[1] * (values.dim() - 2))
    if tensor.dim() != values.dim():
        raise ShapeError(
            f"{name} must be [T, B] or have the same number of dimensions as values, got "
            f"{tuple(shape)} and {tuple(values.shape)}"
        )
    trailing = zip(tensor.shape[2:], values.shape[2:], strict=True)
    if shape[:2] != values.shape[:2] or any(mine not in (1, n) for mine, n in trailing):
        raise ShapeError(
            f"{name} {tuple(shape)} cannot be broadcast to values {tuple(values.shape)}"
        )
    return tensor
