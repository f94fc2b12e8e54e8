"""The losses of IMPALA, and how a rollout becomes one number."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core import vtrace
from torchbeast.core.popart import PopArtLayer, TargetSums
from torchbeast.core.types import AgentOutput, EnvOutput


class LossConfig(NamedTuple):
    """Weights of the losses, discount, and whether rewards are clipped to [-1, 1]."""

    discounting: float = 0.99
    baseline_cost: float = 0.5
    entropy_cost: float = 0.0006
    clip_rewards: bool = True


class Losses(NamedTuple):
    """Losses of each transition, ``[T, B]``, and what PopArt learns from.

    Only ``per_step`` has a gradient. All losses are 0 where ``is_step`` is false.
    """

    per_step: Tensor
    """The weighted loss: the sum of the next three."""

    policy_gradient: Tensor

    baseline: Tensor

    entropy: Tensor
    """Negative: the entropy is maximised."""

    value_error: Tensor
    """Half the squared error of the normalised value, without weight."""

    policy_entropy: Tensor
    """The policy's entropy in nats, without weight."""

    vs: Tensor
    """The value target in units of return."""

    task: Tensor
    """int64"""

    is_step: Tensor
    """bool: false for the transitions that are no step of a game; see :class:`Transitions`."""

    targets: TargetSums | None = None
    """Sums of ``vs`` and rewards, which move PopArt's statistics; None without PopArt."""

    @property
    def total(self) -> Tensor:
        """The sum over all transitions, with gradient."""
        return self.per_step.sum()


def policy_gradient_loss(logits: Tensor, actions: Tensor, advantages: Tensor) -> Tensor:
    """Computes -log pi(action) * advantage, ``[T, B]``: logits ``[T, B, A]``, the others ``[T,
    B]``.
    """
    return -vtrace.action_log_probs(logits, actions) * advantages.detach()


def baseline_loss(errors: Tensor) -> Tensor:
    """Computes half the squares of errors ``[T, B]``."""
    return 0.5 * errors.square()


def entropy_loss(logits: Tensor) -> Tensor:
    """Computes the negative entropy ``[T, B]`` of softmax policies with logits ``[T, B, A]``."""
    log_policy = torch.log_softmax(logits, dim=-1)
    return torch.sum(log_policy.exp() * log_policy, dim=-1)


class Transitions(NamedTuple):
    """The ``T`` transitions of a rollout: each from time t - 1 (``_tm1``) to time t (``_t``)."""

    logits_tm1: Tensor
    """float32 ``[T, B, A]``, of the policy that learns."""

    behaviour_logits_tm1: Tensor
    """float32 ``[T, B, A]``, of the policy that acted."""

    a_tm1: Tensor
    """int64 ``[T, B]``, the action taken."""

    v_tm1: Tensor
    """float32 ``[T, B]``, in units of return, of the task's own value head."""

    normalized_v_tm1: Tensor
    """float32 ``[T, B]``, the same in PopArt's units."""

    task_tm1: Tensor
    """int64 ``[T, B]``"""

    reward_t: Tensor
    """float32 ``[T, B]``, what the game paid, clipped if the configuration says so."""

    r_t: Tensor
    """float32 ``[T, B]``, the same; the row's own value where ``is_step`` is false."""

    discount_t: Tensor
    """float32 ``[T, B]``, 0 where the episode ended."""

    is_step: Tensor
    """bool ``[T, B]``, false where the transition leads from a truncated episode's final row to the
    next episode, or from an environment that failed to the one that replaces it."""

    bootstrap_v: Tensor
    """float32 ``[B]``, the value after the last transition; without gradient."""


def rollout_losses(
    agent: Any,
    env: EnvOutput,
    actor: AgentOutput,
    initial_state: Any,
    config: LossConfig,
) -> Losses:
    """Computes the losses of rollouts under ``agent``.

    Args:
        agent: a ``torchbeast.models.Agent``.
        env: leaves ``[T + 1, B, ...]``.
        actor: likewise; of the behaviour policy.
        initial_state: the recurrent state before the first row.
        config: weights and discount.
    """
    # No sampling: the learner needs no actions, and inference threads share the random numbers.
    output, _ = agent(env, initial_state, sample=False)
    popart = agent.baseline if isinstance(agent.baseline, PopArtLayer) else None
    transitions = align(env, actor, output, config)
    returns = vtrace.from_logits(
        transitions.behaviour_logits_tm1,
        transitions.logits_tm1,
        transitions.a_tm1,
        transitions.discount_t,
        transitions.r_t,
        transitions.v_tm1.detach(),
        transitions.bootstrap_v,
    )
    return compute_losses(transitions, returns.vs, returns.pg_advantages, popart, config)


def align(
    env: EnvOutput, actor: AgentOutput, output: AgentOutput, config: LossConfig
) -> Transitions:
    """Pairs what the agent computed at each row with what followed from it at the next row.

    Args:
        env: leaves ``[T + 1, B, ...]``.
        actor: of the behaviour policy; its row t was computed from the environment's row t - 1.
        output: of the policy that learns; its row t was computed from the environment's row t.
        config: discount and clipping.
    """
    task = env.task.long()
    one_head = output.baseline.shape[-1] == 1  # Which all tasks share.
    head = (torch.zeros_like(task) if one_head else task).unsqueeze(-1)
    v = output.baseline.gather(-1, head).squeeze(-1)
    normalized_v = output.normalized_baseline.gather(-1, head).squeeze(-1)
    v_tm1 = v[:-1]

    reward_t = env.reward[1:].clamp(-1, 1) if config.clip_rewards else env.reward[1:]
    is_final = env.truncated[:-1] & ~env.done[:-1]
    is_step = ~(is_final | (env.truncated[1:] & env.done[1:]))
    # A row whose return is its own value has that value as target: earlier steps bootstrap from it.
    r_t = torch.where(is_step, reward_t, v_tm1.detach())
    return Transitions(
        logits_tm1=output.policy_logits[:-1],
        behaviour_logits_tm1=actor.policy_logits[1:],
        a_tm1=actor.action[1:].squeeze(-1),
        v_tm1=v_tm1,
        normalized_v_tm1=normalized_v[:-1],
        task_tm1=task[:-1],
        reward_t=reward_t,
        r_t=r_t,
        discount_t=config.discounting * (~env.done[1:]).to(v.dtype),
        is_step=is_step,
        bootstrap_v=v[-1].detach(),
    )


def compute_losses(
    transitions: Transitions,
    vs_tm1: Tensor,
    pg_advantage_tm1: Tensor,
    popart: PopArtLayer | None,
    config: LossConfig,
) -> Losses:
    """Computes the weighted losses of aligned transitions.

    Args:
        transitions: of a rollout.
        vs_tm1: ``[T, B]``, V-trace's value targets in units of return.
        pg_advantage_tm1: ``[T, B]``, V-trace's advantages in units of return.
        popart: the layer whose statistics normalise targets and advantages, if any.
        config: weights of the losses.
    """
    targets, values, advantages = vs_tm1, transitions.normalized_v_tm1, pg_advantage_tm1
    sums = None
    if popart is not None:
        sums = popart.sum_own_targets(
            vs_tm1, transitions.task_tm1, transitions.reward_t, transitions.is_step
        )
        targets, values, advantages = normalize(transitions, vs_tm1, pg_advantage_tm1, popart, sums)
    logits = transitions.logits_tm1
    terms = (
        policy_gradient_loss(logits, transitions.a_tm1, advantages),
        baseline_loss(targets - values),
        entropy_loss(logits),
    )
    policy_gradient, value_error, negative_entropy = (
        torch.where(transitions.is_step, term, 0.0) for term in terms
    )
    baseline = config.baseline_cost * value_error
    entropy = config.entropy_cost * negative_entropy
    return Losses(
        per_step=policy_gradient + baseline + entropy,
        policy_gradient=policy_gradient.detach(),
        baseline=baseline.detach(),
        entropy=entropy.detach(),
        value_error=value_error.detach(),
        policy_entropy=-negative_entropy.detach(),
        vs=vs_tm1,
        task=transitions.task_tm1,
        is_step=transitions.is_step,
        targets=sums,
    )


def normalize(
    transitions: Transitions,
    vs_tm1: Tensor,
    pg_advantage_tm1: Tensor,
    popart: PopArtLayer,
    sums: TargetSums,
) -> tuple[Tensor, Tensor, Tensor]:
    """Puts targets, values and advantages ``[T, B]`` into PopArt's units.

    With a step per target the statistics are those that contain these targets already (``sums``):
    the first reward of a game is divided by a deviation that knows it. Values are converted from
    the old statistics to the new, so that no weight has to move before the gradient is known.

    With a step per batch the statistics are those from before, as in 2019.
    """
    old = popart.moments
    new = popart.moved(sums) if popart.beta_per == "target" else old
    task, dtype = transitions.task_tm1, vs_tm1.dtype
    mu, sigma, scale, shift = (
        statistic.to(dtype)[task]
        for statistic in (
            new.mu,
            new.sigma,
            old.sigma / new.sigma,
            (old.mu - new.mu) / new.sigma,
        )
    )
    values = transitions.normalized_v_tm1 * scale + shift
    return (vs_tm1 - mu) / sigma, values, pg_advantage_tm1 / sigma
