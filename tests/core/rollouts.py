"""Rollouts of two games, the agent that fits them, and V-trace term by term."""

import math

import torch

from torchbeast.core.types import AgentOutput, EnvOutput
from torchbeast.models import AgentConfig

CONFIG = AgentConfig(
    agent_type="atari", observation_shape=(2, 36, 36), num_actions=3, tasks=("A-v0", "B-v0")
)
T = 4


def make_rollout(seed, batch=1, task=0):
    generator = torch.Generator().manual_seed(seed)
    rows = T + 1
    draw = lambda *shape: torch.rand(*shape, generator=generator)  # noqa: E731
    done = draw(rows, batch) < 0.2
    env = EnvOutput(
        frame=(draw(rows, batch, 2, 36, 36) * 255).to(torch.uint8),
        reward=draw(rows, batch) * 2 - 1,
        done=done,
        task=torch.full((rows, batch), task, dtype=torch.int32),
        episode_step=torch.arange(rows, dtype=torch.int32).view(-1, 1).expand(rows, batch),
        episode_return=draw(rows, batch),
        truncated=torch.zeros(rows, batch, dtype=torch.bool),
        game_over=done,
        last_action=torch.randint(3, (rows, batch), generator=generator),
    )
    logits = draw(rows, batch, 3)
    action = torch.randint(3, (rows, batch, 1), generator=generator)
    return env, AgentOutput(action, logits, logits[..., :1], logits[..., :1])


def reference_vtrace(log_rhos, discounts, rewards, values, bootstrap, rho_bar, pg_rho_bar):
    """Equation (1) and section 4.2 of the paper, term by term; floats of one batch entry."""
    steps = len(log_rhos)

    def clip(x, bound):
        return x if bound is None else min(x, bound)

    rho = [math.exp(x) for x in log_rhos]
    following = [*values[1:], bootstrap]
    vs = []
    for s in range(steps):
        total = values[s]
        for t in range(s, steps):
            weight = 1.0
            for i in range(s, t):
                weight *= discounts[i] * min(1.0, rho[i])
            delta = clip(rho[t], rho_bar) * (rewards[t] + discounts[t] * following[t] - values[t])
            total += weight * delta
        vs.append(total)
    vs_next = [*vs[1:], bootstrap]
    advantages = [
        clip(rho[s], pg_rho_bar) * (rewards[s] + discounts[s] * vs_next[s] - values[s])
        for s in range(steps)
    ]
    return vs, advantages
