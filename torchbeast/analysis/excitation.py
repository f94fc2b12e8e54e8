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
JITTER = 2  # Pixels.
SILENT_SLOPE = 0.01


def find_layer(agent: Agent, name: str) -> nn.Conv2d:
    """Finds the convolution called ``name`` in ``LAYER_NAMES``."""
    parameter = next(layer.parameter for layer in LAYERS if layer.name == name)
    module = agent.get_submodule(parameter.removesuffix(".weight"))
    assert isinstance(module, nn.Conv2d)
    return module


def excite(
    agent: Agent, layer: str, filters: list[int], *, task: int = 0, seed: int = 0
) -> np.ndarray:
    """Climbs, from noise, the mean square of each filter's positive responses.

    The mean itself would have the same gradient everywhere in a linear layer. In every step all
    pictures are shifted by a few pixels, so that no detail depends on the grid of pooling.

    Args:
        agent: whose filters.
        layer: name in ``LAYER_NAMES``.
        filters: indices.
        task: the agent sees pictures of this one of its games.
        seed: of the noise and the shifts.

    Returns:
        Pictures ``[filters, C, H, W]``, one per filter, pixels from 0 to 255.
    """
    module = find_layer(agent, layer)
    activation: list[Tensor] = []
    # A copy: what follows may work in place.
    hook = module.register_forward_hook(lambda _, __, output: activation.append(output.clone()))
    generator = torch.Generator().manual_seed(seed)
    shape = (len(filters), *agent.config.observation_shape)
    pictures = 128 + 20 * torch.randn(shape, generator=generator)
    rows = torch.arange(len(filters))
    tasks = torch.full((len(filters),), task)
    try:
        for _ in range(STEPS):
            shift = torch.randint(-JITTER, JITTER + 1, (2,), generator=generator).tolist()
            pictures = pictures.roll(shift, dims=(2, 3)).requires_grad_(True)
            activation.clear()
            agent.encode_frames(pictures, tasks)
            response = activation[0][rows, torch.tensor(filters)]
            # A filter that is silent everywhere still climbs.
            score = torch.where(response > 0, response.square(), SILENT_SLOPE * response)
            (gradient,) = torch.autograd.grad(score.mean(dim=(1, 2)).sum(), pictures)
            # By its own size: deep filters have small gradients, first ones large.
            size = gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1).clamp(min=1e-12)
            with torch.no_grad():
                scale = math.sqrt(pictures[0].numel())
                pictures = pictures + LEARNING_RATE * gradient / size * scale * 0.1
                pictures = pictures.clamp_(0, 255).roll([-s for s in shift], dims=(2, 3))
    finally:
        hook.remove()
    return pictures.detach().numpy()


def draw_weights(weights: np.ndarray, pixel: int = 8, gap: int = 2) -> np.ndarray:
    """Draws the weights of a convolution, all under one scale.

    Args:
        weights: ``[O, I, k, k]``.
        pixel: side of a weight in the picture.
        gap: pixels between filters.

    Returns:
        uint8 ``[H, W, 3]``: a column per filter, a row per input channel; blue is negative, red
        positive, white 0.
    """
    from matplotlib import colormaps

    scaled = weights / max(float(np.abs(weights).max()), 1e-12)
    num_filters, num_inputs, height, width = weights.shape
    colours = colormaps["RdBu_r"]((scaled + 1) / 2)[..., :3]
    cell = (height * pixel + gap, width * pixel + gap)
    result = np.zeros((num_inputs * cell[0] - gap, num_filters * cell[1] - gap, 3), np.uint8)
    for o in range(num_filters):
        for i in range(num_inputs):
            large = (colours[o, i] * 255).round().astype(np.uint8)
            large = large.repeat(pixel, axis=0).repeat(pixel, axis=1)
            top, left = i * cell[0], o * cell[1]
            result[top : top + height * pixel, left : left + width * pixel] = large
    return result


def sheet(pictures: np.ndarray, gap: int = 2) -> np.ndarray:
    """Draws a contact sheet uint8 of the newest planes of ``[N, C, H, W]``, contrast stretched."""
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
