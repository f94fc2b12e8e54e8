"""Maps of scores on top of game pictures."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

RED, GREEN, BLUE, YELLOW = (255, 60, 60), (60, 255, 60), (90, 120, 255), (255, 230, 60)


def enlarge(scores: np.ndarray, height: int, width: int) -> np.ndarray:
    """Scores ``[h, w]`` of evenly spread places, as a map ``[height, width]``, nowhere negative.

    Observations are whole screens, resized: a place's share of the observation is its share of the
    screen.
    """
    rows = _positions(scores.shape[0], height)
    columns = _positions(scores.shape[1], width)
    grid_x, grid_y = np.meshgrid(columns, rows)
    enlarged = cv2.remap(
        scores.astype(np.float32),
        grid_x.astype(np.float32),
        grid_y.astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return np.maximum(enlarged, 0.0)


def _positions(count: int, length: int) -> np.ndarray:
    """Where ``length`` pixels' centres are among ``count`` cells."""
    return (np.arange(length) + 0.5) * count / length - 0.5


def normalize(scores: np.ndarray) -> np.ndarray:
    """Scores from 0 on, scaled to a peak of 1; all zero where nothing has any influence."""
    peak = float(scores.max())
    return scores / peak if peak > 0 else np.zeros_like(scores)


def colour_map(scores: np.ndarray, colour: Sequence[int]) -> np.ndarray:
    """A picture uint8 ``[H, W, 3]`` of scores ``[H, W]`` in [0, 1] alone."""
    return (scores[..., None] * np.array(colour)).clip(0, 255).astype(np.uint8)


def overlay(
    picture: np.ndarray,
    layers: Sequence[tuple[np.ndarray, Sequence[int]]],
    strength: float = 0.8,
    darken: float = 0.5,
) -> np.ndarray:
    """A game picture uint8 ``[H, W, 3]``, dimmed, under maps ``[H, W]`` in [0, 1]."""
    result = picture.astype(np.float32) * (1 - darken)
    for scores, colour in layers:
        result += strength * scores[..., None] * np.array(colour, np.float32)
    return result.clip(0, 255).astype(np.uint8)
