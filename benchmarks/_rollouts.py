"""Rollouts of random frames, in which nothing happens."""

from __future__ import annotations

import torch

from torchbeast.core.types import ENV_OUTPUT_TYPES, AgentOutput, EnvOutput


def random_rollout(
    rows: int,
    batch: int,
    num_actions: int,
    generator: torch.Generator | None = None,
) -> tuple[EnvOutput, AgentOutput]:
    """Four gray frames of 84 x 84 in each row, of the first game; all else is 0."""

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(rows, batch, *shape, dtype=dtype)

    shape = (rows, batch, 4, 84, 84)
    env = EnvOutput(
        frame=torch.randint(256, shape, dtype=torch.uint8, generator=generator),
        **{name: zeros(dtype=getattr(torch, kind)) for name, kind in ENV_OUTPUT_TYPES.items()},
    )
    actor = AgentOutput(zeros(1, dtype=torch.int64), zeros(num_actions), zeros(1), zeros(1))
    return env, actor
