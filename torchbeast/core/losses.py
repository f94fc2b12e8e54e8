"""The losses of IMPALA, and how a rollout becomes one number."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core import vtrace
from torchbeast.core.popart import Moments, PopArtLayer, TargetSums
from torchbeast.core.types import AgentOutput, EnvOutput, LossConfig


class Losses(NamedTuple):
    """The loss of a rollout, its terms for each transition, and what PopArt learns from.

    Only ``total`` has a gradient. The terms are ``[T, B]``, and 0 where ``is_step`` is false.
    """

    total: Tensor
    """The loss: the sum of the next two and the negative of the third, each with its weight, over
    all transitions."""

    pg_loss: Tensor
    """Minus the log-probability of the action, times the advantage."""

    value_loss: Tensor
    """Half the squared error of the normalised value, without weight."""

    policy_entropy: Tensor
    """The policy's entropy in nats, without weight."""

    vs: Tensor
    """The value target in units of return."""

    task: Tensor
    """int64: the game of the transition."""

    is_step: Tensor
    """bool: false where the transition leads from a truncated episode's final row to the next
    episode, or from an environment that failed to the one that replaces it."""

    target_sums: TargetSums | None = None
    """Sums of ``vs`` and rewards, which move PopArt's statistics; None without PopArt."""

    moments: Moments | None = None
    """PopArt's statistics that normalise the loss; None without PopArt."""


def own_head(values: Tensor, task: Tensor) -> Tensor:
    """Takes each row's own value head: values ``[T, B, K]``, tasks int64 ``[T, B]``; one head is
    that of all tasks. Returns ``[T, B]``.
    """
    if values.shape[-1] == 1:
        return values.squeeze(-1)
    return values.gather(-1, task.unsqueeze(-1)).squeeze(-1)


def rollout_losses(
    agent: Any, env: EnvOutput, actor: AgentOutput, initial_state: Any, config: LossConfig
) -> Losses:
    """Computes the losses of rollouts under ``agent``, from its forward pass to the last term.

    Names end with the time of what they hold: a transition leads from t - 1 (``_tm1``) to t
    (``_t``).

    Args:
        env: leaves ``[T + 1, B, ...]``.
        actor: of the policy that acted, likewise; its row t chose the action that led to row t.
            Only its actions and logits are read.
        initial_state: the recurrent state before the first row.
    """
    # No sampling: the learner needs no actions, and inference threads share the random numbers.
    output, _ = agent(env, initial_state, sample=False)

    # The learner's row t is what it says of the observation at t. Reward, end of the episode and
    # the action behind it are in the environment's and the actor's row t + 1.
    task = env.task.long()
    v, normalized_v = own_head(output.baseline, task), own_head(output.normalized_baseline, task)
    task_tm1, logits_tm1, normalized_v_tm1 = task[:-1], output.policy_logits[:-1], normalized_v[:-1]
    v_tm1, bootstrap_v = v[:-1].detach(), v[-1].detach()
    a_tm1 = actor.action[1:].squeeze(-1)
    reward_t = env.reward[1:].clamp(-1, 1) if config.clip_rewards else env.reward[1:]
    discount_t = config.discounting * (~env.done[1:]).to(v.dtype)

    # The final row of a truncated episode is truncated, not done: what leads out of it is no step.
    # The first row after an environment failed is both: nor is what leads into it.
    is_final_tm1 = env.truncated[:-1] & ~env.done[:-1]
    is_after_failure_t = env.truncated[1:] & env.done[1:]
    is_step = ~(is_final_tm1 | is_after_failure_t)
    # Where there is no step the next row is done: its discount is 0. With the row's own value as
    # its reward, its value target is that value, and the step before it bootstraps from it.
    r_t = torch.where(is_step, reward_t, v_tm1)

    vs, advantages, *_ = vtrace.from_logits(
        actor.policy_logits[1:], logits_tm1, a_tm1, discount_t, r_t, v_tm1, bootstrap_v
    )

    sums, moments, value_targets, values = None, None, vs, normalized_v_tm1
    if isinstance(agent.baseline, PopArtLayer):
        sums = agent.baseline.sum_own_targets(vs, task_tm1, reward_t, is_step)
        moments = agent.baseline.loss_moments(sums)
        value_targets, values, advantages = agent.baseline.normalize(
            moments, task_tm1, vs, normalized_v_tm1, advantages
        )

    log_policy = torch.log_softmax(logits_tm1, dim=-1)
    log_pi_a = log_policy.gather(-1, a_tm1.unsqueeze(-1)).squeeze(-1)

    def mask(term: Tensor) -> Tensor:
        return torch.where(is_step, term, 0.0)

    pg_loss = mask(-log_pi_a * advantages)
    value_loss = mask(0.5 * (value_targets - values).square())
    entropy = mask(-(log_policy.exp() * log_policy).sum(-1))
    per_step = pg_loss + config.baseline_cost * value_loss - config.entropy_cost * entropy
    return Losses(
        total=per_step.sum(),
        pg_loss=pg_loss.detach(),
        value_loss=value_loss.detach(),
        policy_entropy=entropy.detach(),
        vs=vs,
        task=task_tm1,
        is_step=is_step,
        target_sums=sums,
        moments=moments,
    )
