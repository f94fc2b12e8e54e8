"""V-trace, the off-policy correction of IMPALA (Espeholt et al. 2018, arXiv:1802.01561).

Shapes: ``T`` steps without the bootstrap row, batch ``B``, ``A`` actions; values may have a last
axis of ``K`` heads, to which everything else is broadcast. All in float32 (float64 stays float64).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTraceReturns(NamedTuple):
    """Targets; no gradient flows through them."""

    vs: Tensor  # [T, B] or [T, B, K], the value targets.
    pg_advantages: Tensor  # As vs; divided by sigma where there is one.


class VTraceFromLogitsReturns(NamedTuple):
    """Targets and what they were computed from."""

    vs: Tensor  # [T, B] or [T, B, K]
    pg_advantages: Tensor  # As vs.
    log_rhos: Tensor  # [T, B], logarithms of the importance weights.
    behavior_action_log_probs: Tensor  # [T, B]
    target_action_log_probs: Tensor  # [T, B]


def action_log_probs(policy_logits: Tensor, actions: Tensor) -> Tensor:
    """Log pi(action): logits ``[T, B, A]``, actions int64 ``[T, B]``; returns ``[T, B]``."""
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
    """V-trace for softmax policies.

    Args:
        behavior_policy_logits: ``[T, B, A]``, of the policy that acted.
        target_policy_logits: ``[T, B, A]``, of the policy that learns.
        actions: int64 ``[T, B]``, taken at each step.
        discounts: ``[T, B]``, gamma, or 0 where an episode ended with the step.
        rewards: ``[T, B]``, that followed each action.
        values: ``[T, B]`` or ``[T, B, K]``, in units of return.
        bootstrap_value: ``[B]`` or ``[B, K]``, the value after the last step.
        clip_rho_threshold: rho-bar; None for no clipping.
        clip_pg_rho_threshold: rho-bar of the policy gradient; None for no clipping.
        normalized_values: ``values`` in PopArt's units: ``(values - mu) / sigma``.
        mu: PopArt's mean, broadcastable to ``values``.
        sigma: PopArt's standard deviation, likewise.
    """
    log_policies = [
        action_log_probs(logits.detach().to(values.dtype), actions)
        for logits in (behavior_policy_logits, target_policy_logits)
    ]
    log_rhos = log_policies[1] - log_policies[0]
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
    return VTraceFromLogitsReturns(*returns, log_rhos, *log_policies)


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
    """V-trace from the logarithms of the importance weights ``[T, B]``; else as from_logits.

    Targets are equation (1) of the paper in the recursive form of its remark 1, advantages those of
    section 4.2. With ``sigma`` advantages are divided by it, as multi-task PopArt wants (Hessel et
    al. 2019): ``rho * ((reward + discount * v' - mu) / sigma - normalized_value)``.
    """
    _check_shapes(log_rhos, discounts, rewards, values, bootstrap_value)
    if values.dim() > log_rhos.dim():
        log_rhos, discounts, rewards = (x.unsqueeze(-1) for x in (log_rhos, discounts, rewards))

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
    if sigma is None:
        pg_advantages = clipped_pg_rhos * (q_values - values)
    else:
        assert mu is not None
        if normalized_values is None:
            normalized_values = (values - mu) / sigma
        pg_advantages = clipped_pg_rhos * ((q_values - mu) / sigma - normalized_values)
    return VTraceReturns(vs, pg_advantages)


def _check_shapes(
    log_rhos: Tensor, discounts: Tensor, rewards: Tensor, values: Tensor, bootstrap_value: Tensor
) -> None:
    if not log_rhos.shape == discounts.shape == rewards.shape:
        raise ValueError(
            "log_rhos, discounts and rewards must have one shape [T, B], got "
            f"{tuple(log_rhos.shape)}, {tuple(discounts.shape)}, {tuple(rewards.shape)}"
        )
    if values.shape[: log_rhos.dim()] != log_rhos.shape:
        raise ValueError(
            f"values must be [T, B] or [T, B, K], got {tuple(values.shape)} "
            f"for T, B = {tuple(log_rhos.shape)}"
        )
    if bootstrap_value.shape != values.shape[1:]:
        raise ValueError(
            f"bootstrap_value must be {tuple(values.shape[1:])}, got {tuple(bootstrap_value.shape)}"
        )
