"""Rollouts of random frames and rewards, and what an agent learns from them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torchbeast.core.losses import rollout_losses
from torchbeast.core.types import ENV_OUTPUT_TYPES, AgentOutput, EnvOutput, LossConfig
from torchbeast.models import Agent


def random_rollout(rows: int, batch: int, num_actions: int) -> tuple[EnvOutput, AgentOutput]:
    """Four gray frames of 84 x 84 and a reward in each row, of the first game; all else is 0.

    They are the same ones each time.
    """
    generator = torch.Generator().manual_seed(0)

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(rows, batch, *shape, dtype=dtype)

    shape = (rows, batch, 4, 84, 84)
    env = EnvOutput(
        frame=torch.randint(256, shape, dtype=torch.uint8, generator=generator),
        **{name: zeros(dtype=getattr(torch, kind)) for name, kind in ENV_OUTPUT_TYPES.items()},
    )
    actor = AgentOutput(zeros(1, dtype=torch.int64), zeros(num_actions), zeros(1), zeros(1))
    return env._replace(reward=torch.rand(rows, batch, generator=generator)), actor


class Learned(NamedTuple):
    """The loss of an agent and its gradient, on the CPU in float64."""

    loss: torch.Tensor
    gradient: torch.Tensor

    def errors(self, exact: Learned) -> tuple[float, float]:
        """How far both are from the exact ones, as shares of these."""
        return tuple(((a - b).norm() / b.norm()).item() for a, b in zip(self, exact, strict=True))


def learn(agent: Agent, env: EnvOutput, actor: AgentOutput) -> Learned:
    """The total loss of rollouts on the agent's device, and its gradient."""
    state = agent.initial_state(env.done.shape[1])
    total = rollout_losses(agent, env, actor, state, LossConfig()).total
    gradients = torch.autograd.grad(total, list(agent.parameters()), allow_unused=True)
    flat = [gradient.flatten().double().cpu() for gradient in gradients if gradient is not None]
    return Learned(total.detach().double().cpu(), torch.cat(flat))
