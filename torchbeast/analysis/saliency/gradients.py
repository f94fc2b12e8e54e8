"""Integrated gradients, by captum: maps of a second method, beside which perturbation is checked.

Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks" (arXiv:1703.01365).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.saliency.maps import Score, Step
from torchbeast.analysis.saliency.perturbation import blur, compute_outputs
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent

PATH_POINTS = 32  # Points of the straight path from the blurred frame to the frame.
BATCH_SIZE = 16


def integrated_gradients(agent: Agent, step: Step, score: Score) -> np.ndarray:
    """Divides a score's change when the whole frame is blurred among the frame's pixels.

    Returns:
        Sizes of the pixels' shares, summed over the planes, float32 ``[H, W]``.
    """
    from captum.attr import IntegratedGradients

    # Tensors of inference mode cannot take part in gradients; copies can.
    inputs = EnvOutput(*(leaf.clone() for leaf in step.inputs))
    state = tuple(leaf.clone() for leaf in step.state)
    frame = inputs.frame[0].float()
    with torch.no_grad():
        logits, _, values = compute_outputs(agent, frame, inputs, state)

    def change(frames: Tensor) -> Tensor:
        changed_logits, _, changed_values = compute_outputs(agent, frames, inputs, state)
        return score.change((logits[0], values[0]), (changed_logits, changed_values), step.action)

    shares = IntegratedGradients(change).attribute(
        frame, blur(frame[0])[None], n_steps=PATH_POINTS, internal_batch_size=BATCH_SIZE
    )
    return shares.abs().sum(dim=(0, 1)).float().numpy()
