"""Putting pictures together: uint8 ``[H, W, 3]``."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

HEADER_HEIGHT, MARGIN = 24, 6
FONT, FONT_SIZE = cv2.FONT_HERSHEY_SIMPLEX, 0.45


def magnify(picture: np.ndarray, factor: int = 2) -> np.ndarray:
    """Enlarges ``[H, W, ...]``: every pixel becomes a square of ``factor`` pixels."""
    return picture.repeat(factor, 0).repeat(factor, 1)


def side_by_side(pictures: Sequence[np.ndarray], gap: int = 4) -> np.ndarray:
    """Joins pictures of one height in a row."""
    height = pictures[0].shape[0]
    divider = np.zeros((height, gap, 3), np.uint8)
    row = [part for picture in pictures for part in (divider, picture)]
    return np.concatenate(row[1:], axis=1)


def caption(picture: np.ndarray, text: str) -> np.ndarray:
    """Adds a line of text above a picture, in smaller letters if it is too long."""
    header = np.zeros((HEADER_HEIGHT, picture.shape[1], 3), np.uint8)
    (width, _), _ = cv2.getTextSize(text, FONT, FONT_SIZE, 1)
    size = FONT_SIZE * min(1, (picture.shape[1] - 2 * MARGIN) / max(width, 1))
    origin = (MARGIN, HEADER_HEIGHT - 7)
    cv2.putText(header, text, origin, FONT, size, (255, 255, 255), 1, cv2.LINE_AA)
    return np.concatenate([header, picture])
