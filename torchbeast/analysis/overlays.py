"""Maps of scores on top of game pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

# Orange and blue can be told apart by everyone (palette of Okabe and Ito).
ORANGE, BLUE, YELLOW = (230, 159, 0), (86, 180, 233), (240, 228, 66)


class Grid(NamedTuple):
    """The pixels of an observation that a map's cells stand for.

    Cell ``[i, j]`` is centred on pixel ``(first + i * spacing, first + j * spacing)`` of an
    observation of ``height`` times ``width`` pixels. Pixel 0 means its centre.
    """

    height: int
    width: int
    spacing: float
    first: float = 0.0


def enlarge(scores: np.ndarray, grid: Grid, height: int, width: int) -> np.ndarray:
    """Interpolates a map to the size of a game picture.

    An observation is the whole screen, resized: a pixel's share of the observation is its share of
    the screen. Outside the outermost cells their scores are repeated.

    Args:
        scores: ``[h, w]``, not negative.

    Returns:
        float32 ``[height, width]``.
    """
    x, y = np.meshgrid(_cells(width, grid.width, grid), _cells(height, grid.height, grid))
    scores = scores.astype(np.float32)
    enlarged = cv2.remap(scores, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.maximum(enlarged, 0.0)


def _cells(length: int, observed: int, grid: Grid) -> np.ndarray:
    """Positions among the cells of the centres of ``length`` screen pixels, float32."""
    pixels = (np.arange(length) + 0.5) * observed / length - 0.5
    return ((pixels - grid.first) / grid.spacing).astype(np.float32)


def scale_to(scores: np.ndarray, peak: float) -> np.ndarray:
    """Divides scores by ``peak`` and limits them to 1; all zero if ``peak`` is."""
    return np.minimum(scores / peak, 1.0) if peak > 0 else np.zeros_like(scores)


def heat(scores: np.ndarray) -> np.ndarray:
    """Colours scores ``[H, W]`` in [0, 1] with matplotlib's inferno: a picture uint8 ``[H, W,
    3]``.
    """
    from matplotlib import colormaps

    return colormaps["inferno"]((scores * 255).round().astype(np.uint8), bytes=True)[..., :3]


def overlay(
    picture: np.ndarray,
    layers: Sequence[tuple[np.ndarray, Sequence[int]]],
) -> np.ndarray:
    """Draws maps ``[H, W]`` in [0, 1] over a game picture uint8 ``[H, W, 3]``, dimmed and grey.

    The picture is grey so that colours mean scores only.
    """
    grey = picture.mean(axis=-1, keepdims=True, dtype=np.float32)
    result = np.repeat(grey * 0.5, 3, axis=-1)
    for scores, colour in layers:
        result += 0.8 * scores[..., None] * np.array(colour, np.float32)
    return result.clip(0, 255).astype(np.uint8)
