"""Pictures of what excites the filters of a ResNet."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.filters import find_layer
from torchbeast.models import Agent

STEPS = 60
STEP_SIZE = 0.8  # Gray levels of a pixel, root mean square.
JITTER = 2  # Pixels.
SILENT_SLOPE = 0.01
GAP = 2  # Pixels between filters.


def excite(agent: Agent, layer: str, filters: list[int]) -> np.ndarray:
    """Climbs, from noise, the mean square of each filter's positive responses.

    The mean itself would have the same gradient everywhere in a linear layer. In every step all
    pictures are shifted by a few pixels, so that no detail depends on the grid of pooling.

    Args:
        agent: whose filters. It sees pictures of the first of its games.
        layer: name in ``LAYER_NAMES``.

    Returns:
        Pictures ``[filters, C, H, W]``, one per filter, pixels from 0 to 255.
    """
    module = find_layer(agent, layer)
    outputs: list[Tensor] = []
    generator = torch.Generator().manual_seed(0)
    shape = (len(filters), *agent.config.observation_shape)
    pictures = 128 + 20 * torch.randn(shape, generator=generator)
    rows = torch.arange(len(filters))
    tasks = torch.zeros(len(filters), dtype=torch.int64)
    # A copy: what follows may work in place.
    with module.register_forward_hook(lambda _, __, output: outputs.append(output.clone())):
        for _ in range(STEPS):
            shift = torch.randint(-JITTER, JITTER + 1, (2,), generator=generator).tolist()
            pictures = pictures.roll(shift, dims=(2, 3)).requires_grad_(True)
            agent.encode_frames(pictures, tasks)
            response = outputs.pop()[rows, torch.tensor(filters)]
            # A filter that is silent everywhere still climbs.
            score = torch.where(response > 0, response.square(), SILENT_SLOPE * response)
            (gradient,) = torch.autograd.grad(score.mean(dim=(1, 2)).sum(), pictures)
            # By its own size: deep filters have small gradients, first ones large.
            size = gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1).clamp(min=1e-12)
            with torch.no_grad():
                step = STEP_SIZE * math.sqrt(pictures[0].numel())
                pictures = pictures + step * gradient / size
                pictures = pictures.clamp_(0, 255).roll([-s for s in shift], dims=(2, 3))
    return pictures.detach().numpy()


def sheet(pictures: np.ndarray, channels: int = 1) -> np.ndarray:
    """Draws a contact sheet of the newest pictures, contrast stretched.

    Args:
        pictures: ``[N, C, H, W]``.
        channels: of a picture, the last ones of the ``C``: 1 or 3.

    Returns:
        uint8, ``[rows, columns, channels]``.
    """
    newest = np.moveaxis(pictures[:, -channels:], 1, 3)
    low, high = (f(newest, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    stretched = ((newest - low) / np.maximum(high - low, 1e-6) * 255).astype(np.uint8)
    columns = math.ceil(math.sqrt(len(newest)))
    cells = np.pad(stretched, [(0, -len(newest) % columns), (0, GAP), (0, GAP), (0, 0)])
    rows = cells.reshape(-1, columns, *cells.shape[1:]).swapaxes(1, 2)
    return rows.reshape(-1, columns * cells.shape[2], channels)[:-GAP, :-GAP]
