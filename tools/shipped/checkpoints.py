"""The small form of a checkpoint, which is given away."""

from __future__ import annotations

from typing import Any

import torch

KEPT = (
    "agent",
    "steps",
    "learner_steps",
    "task_steps",
    "preprocessing",
    "frame_format",
    "frame_height",
    "frame_width",
)


def slim(contents: dict[str, Any]) -> dict[str, Any]:
    """Returns the agent of a checkpoint alone.

    Args:
        contents: of the checkpoint.

    Returns:
        What is needed to play. Weights and mean picture are in float16; biases and PopArt's
        statistics are exact.
    """
    state = {
        name: value.half() if value.dtype == torch.float32 and value.dim() > 1 else value
        for name, value in contents["model_state_dict"].items()
    }
    return {
        **{name: contents[name] for name in KEPT if name in contents},
        "model_state_dict": state,
    }
