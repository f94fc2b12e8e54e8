"""The losses of IMPALA, summed over time and batch, and how a rollout becomes one number."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core import vtrace
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import AgentOutput, EnvOutput


class LossConfig(NamedTuple):
    """What is weighed how."""

    discounting: float = 0.99
    baseline_cost: float = 0.5
    entropy_cost: float = 0.0006
    clip_rewards: bool = True


class Losses(NamedTuple):
    """Sums over ``T`` and ``B``, and what PopArt learns from."""

    total: Tensor
    policy_gradient: Tensor
    baseline: Tensor
    entropy: Tensor  # Negative, weighed by entropy_cost like the others are by theirs.
    vs: Tensor  # [T, B], value targets in units of return.
    task: Tensor  # int64 [T, B]


def policy_gradient_loss(logits: Tensor, actions: Tensor, advantages: Tensor) -> Tensor:
    """-sum(log pi(action) * advantage): logits ``[T, B, A]``, the others ``[T, B]``."""
    return -torch.sum(vtrace.action_log_probs(logits, actions) * advantages.detach())


def baseline_loss(errors: Tensor) -> Tensor:
    """Half the sum of squares of ``[T, B]``."""
    return 0.5 * torch.sum(errors.square())


def entropy_loss(logits: Tensor) -> Tensor:
    """The negative entropy of softmax policies ``[T, B, A]``, summed over ``T`` and ``B``."""
    log_policy = torch.log_softmax(logits, dim=-1)
    return torch.sum(log_policy.exp() * log_policy)


def rollout_losses(
    agent: Any, env: EnvOutput, actor: AgentOutput, initial_state: Any, config: LossConfig
) -> Losses:
    """The losses of a rollout under ``agent``.

    Args:
        agent: a ``torchbeast.models.Agent``.
        env: leaves ``[T + 1, B, ...]``.
        actor: likewise; of the behaviour policy.
        initial_state: the recurrent state before the first row.
        config: weights and discount.
    """
    # No sampling: the learner needs no actions, and inference threads share the random numbers.
    output, _ = agent(env, initial_state, sample=False)
    _, policy_logits, baseline, normalized_baseline = output

    # The learner's output at row t meets what followed from it at row t + 1. The last row's value
    # is the bootstrap.
    logits = policy_logits[:-1]
    actions = actor.action[1:].squeeze(-1)
    rewards = env.reward[1:].clamp(-1, 1) if config.clip_rewards else env.reward[1:]
    done, truncated = env.done[1:], env.truncated[1:]
    task = env.task[:-1].long()
    popart = agent.baseline if isinstance(agent.baseline, PopArtLayer) else None
    own = (torch.zeros_like(task) if popart is None else task).unsqueeze(-1)
    values = baseline[:-1].gather(-1, own).squeeze(-1)
    bootstrap_value = baseline[-1].gather(-1, own[-1]).squeeze(-1).detach()
    normalized_values = normalized_baseline[:-1].gather(-1, own).squeeze(-1)

    # What came after a truncated step is not in the rollout. The step teaches nothing then: with
    # its own value as return its target is that value, and earlier steps bootstrap from it.
    discounts = config.discounting * (~done).to(values.dtype)
    rewards = torch.where(truncated, values.detach(), rewards)

    mu = sigma = None
    if popart is not None:
        mu, sigma = (s.to(values.dtype)[task] for s in (popart.mu, popart.sigma))
    returns = vtrace.from_logits(
        actor.policy_logits[1:],
        logits,
        actions,
        discounts,
        rewards,
        values.detach(),
        bootstrap_value,
        normalized_values=normalized_values.detach(),
        mu=mu,
        sigma=sigma,
    )
    targets = returns.vs if sigma is None or mu is None else (returns.vs - mu) / sigma
    pg_loss = policy_gradient_loss(logits, actions, returns.pg_advantages)
    value_loss = config.baseline_cost * baseline_loss(targets - normalized_values)
    entropy = config.entropy_cost * entropy_loss(logits)
    total = pg_loss + value_loss + entropy
    return Losses(total, pg_loss.detach(), value_loss.detach(), entropy.detach(), returns.vs, task)
