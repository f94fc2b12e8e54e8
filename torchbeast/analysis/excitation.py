"""The input that excites a filter most, by gradient ascent from noise (Erhan et al. 2009)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from torchbeast.analysis.filters import LAYERS
from torchbeast.models import Agent

STEPS = 60
LEARNING_RATE = 8.0


def find_layer(agent: Agent, name: str) -> nn.Conv2d:
    """The convolution called ``name`` in ``LAYER_NAMES``."""
    parameter = next(layer.parameter for layer in LAYERS if layer.name == name)
    module = agent.get_submodule(parameter.removesuffix(".weight"))
    assert isinstance(module, nn.Conv2d)
    return module


def excite(
    agent: Agent, layer: str, filters: list[int], *, task: int = 0, seed: int = 0
) -> np.ndarray:
    """Pictures ``[filters, C, H, W]``, one per filter, pixels from 0 to 255.

    All filters at once: each picture climbs the mean activation of its own. The agent is shown them
    as pictures of its game ``task``.
    """
    module = find_layer(agent, layer)
    activation: list[Tensor] = []
    hook = module.register_forward_hook(lambda _, __, output: activation.append(output))
    generator = torch.Generator().manual_seed(seed)
    shape = (len(filters), *agent.config.observation_shape)
    pictures = 128 + 20 * torch.randn(shape, generator=generator)
    pictures.requires_grad_(True)
    rows = torch.arange(len(filters))
    tasks = torch.full((len(filters),), task)
    try:
        for _ in range(STEPS):
            activation.clear()
            agent.encode_frames(pictures, tasks)
            score = activation[0][rows, torch.tensor(filters)].mean(dim=(1, 2)).sum()
            (gradient,) = torch.autograd.grad(score, pictures)
            # By its own size: deep filters have small gradients, first ones large.
            size = gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1).clamp(min=1e-12)
            with torch.no_grad():
                scale = math.sqrt(pictures[0].numel())
                pictures += LEARNING_RATE * gradient / size * scale * 0.1
                pictures.clamp_(0, 255)
    finally:
        hook.remove()
    return pictures.detach().numpy()


def sheet(pictures: np.ndarray, gap: int = 2) -> np.ndarray:
    """A contact sheet uint8 of the newest planes of ``[N, C, H, W]``, contrast stretched."""
    planes = pictures[:, -1]
    columns = math.ceil(math.sqrt(len(planes)))
    rows = -(-len(planes) // columns)
    height, width = planes.shape[1:]
    result = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap), np.uint8)
    for i, plane in enumerate(planes):
        low, high = plane.min(), plane.max()
        top, left = (i // columns) * (height + gap), (i % columns) * (width + gap)
        stretched = (plane - low) / max(high - low, 1e-6) * 255
        result[top : top + height, left : left + width] = stretched.astype(np.uint8)
    return result
