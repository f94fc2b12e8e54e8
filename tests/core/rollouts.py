"""Rollouts of two games with random contents, and the agent that fits them."""

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
