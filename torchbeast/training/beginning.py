"""What a new agent begins with."""

from __future__ import annotations

from typing import Any

import torch

from torchbeast.core.popart import PopArtLayer
from torchbeast.envs import measure_frames, measure_returns
from torchbeast.models import Agent
from torchbeast.training.setup import Setup


def begin(agent: Agent, setup: Setup, seed: int) -> None:
    """Gives a new agent its weights, and statistics of its games from random play."""
    config = setup.config
    options: dict[str, Any] = {"full_action_space": setup.full_action_space, "seed": seed}
    if not config.network.fixed_input_scale:
        mean, std = measure_frames(config.games, config.observation, **options)
        agent.set_frame_statistics(torch.from_numpy(mean), torch.from_numpy(std))
    if not config.network.torch_initial_weights:
        agent.scale_initial_weights()
        if isinstance(agent.baseline, PopArtLayer):
            # Else a game that pays in hundreds has advantages of hundreds until --beta has moved
            # its statistics, thousands of updates later; no policy survives that.
            agent.baseline.set_statistics(
                measure_returns(
                    config.games,
                    config.observation,
                    **options,
                    discounting=config.learning.discounting,
                    clip_rewards=config.learning.clip_rewards,
                )
            )
