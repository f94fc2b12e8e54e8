"""Inputs of agents."""

import torch

from torchbeast.core.types import EnvOutput

SIX_TASKS = ("A", "B", "C", "D", "E", "F")


def make_inputs(config, steps=5, batch=3):
    generator = torch.Generator().manual_seed(0)
    done = torch.rand(steps, batch, generator=generator) < 0.3
    frame = torch.randint(256, (steps, batch, *config.observation_shape), generator=generator)
    return EnvOutput(
        frame=frame.to(torch.uint8),
        reward=torch.randn(steps, batch, generator=generator) * 3,
        done=done,
        task=torch.zeros(steps, batch, dtype=torch.int32),
        episode_step=None,
        episode_return=None,
        truncated=None,
        game_over=None,
        last_action=torch.randint(config.num_actions, (steps, batch), generator=generator),
    )
