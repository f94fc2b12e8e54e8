"""What a new agent begins with."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from torchbeast.core.popart import PopArtLayer
from torchbeast.envs import measure_frames, measure_returns
from torchbeast.models import Agent
from torchbeast.training.setup import Setup


def begin(agent: Agent, flags: argparse.Namespace, setup: Setup) -> None:
    """Gives a new agent its weights, and statistics of its games from random play."""
    options: dict[str, Any] = {
        "full_action_space": setup.spec.full_action_space,
        "seed": setup.seed,
    }
    if not flags.fixed_input_scale:
        mean, std = measure_frames(setup.games, setup.observation, **options)
        agent.set_frame_statistics(torch.from_numpy(mean), torch.from_numpy(std))
    if not flags.torch_initial_weights:
        agent.scale_initial_weights()
        if isinstance(agent.baseline, PopArtLayer):
            # Else a game that pays in hundreds has advantages of hundreds until --beta has moved
            # its statistics, thousands of updates later; no policy survives that.
            agent.baseline.set_statistics(
                measure_returns(
                    setup.games,
                    setup.observation,
                    **options,
                    discounting=flags.discounting,
                    clip_rewards=setup.clip_rewards,
                )
            )
