"""Counterfactuals: what an agent does when an object is taken away or moved (Atrey et al. 2020).

An object is what differs from the game's background in one connected place of the newest picture.
The background is the median of many frames of games that the agent plays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from scipy.stats import spearmanr

from torchbeast.analysis.cka import play_frames
from torchbeast.analysis.overlays import Grid, enlarge
from torchbeast.analysis.saliency.checks import evaluate, strength
from torchbeast.analysis.saliency.maps import Score, Step
from torchbeast.envs.preprocessing import FRAME_FORMATS
from torchbeast.play.agents import Trained

BACKGROUND_FRAMES = 96
CONTRAST = 12  # Levels of grey, or of a colour, between an object and the background.
SMALLEST = 2  # Pixels.
LARGEST_SHARE = 0.1  # Of the picture: more is scenery.
MARGIN = 2  # Pixels around an object, in which it lies in the older planes, too.
MOVE = 8  # Pixels.
FEWEST = 3  # Objects that a correlation needs.


class GameObject(NamedTuple):
    """A rectangle of the observation, from ``top``, ``left`` to before ``bottom``, ``right``."""

    top: int
    left: int
    bottom: int
    right: int


class Counterfactual(NamedTuple):
    """What happens at one step without one object."""

    step: int
    box: GameObject
    predicted: float  # The map's largest value on the object.
    removed: float  # How much the score's subject changes, linear.
    moved: float  # The same, the object being ``MOVE`` pixels farther down or up.
    value_change: float  # Of the game's value, in units of return, by removal.
    action_changes: bool  # The likeliest action is another one after removal.


def find_background(trained: Trained, game: str) -> np.ndarray:
    """Computes the median frame ``[C, H, W]`` of games that the agent plays."""
    return np.median(play_frames(trained, game, BACKGROUND_FRAMES).numpy(), axis=0)


def find_objects(
    frame: np.ndarray, background: np.ndarray, *, colour: bool = False
) -> list[GameObject]:
    """Finds the objects in the newest picture of a frame ``[C, H, W]``: the last plane, or the last
    three of pictures in colour.
    """
    newest = slice(-3 if colour else -1, None)
    difference = np.abs(frame[newest].astype(float) - background[newest])
    different = difference.max(axis=0) > CONTRAST
    _, _, boxes, _ = cv2.connectedComponentsWithStats(different.astype(np.uint8), connectivity=8)
    height, width = different.shape
    found = []
    for left, top, across, down, area in boxes[1:].tolist():
        if area >= SMALLEST and across * down <= LARGEST_SHARE * height * width:
            found.append(GameObject(top, left, top + down, left + across))
    return found


def _grow(box: GameObject, shape: tuple[int, ...]) -> tuple[slice, slice, slice]:
    """All planes of a box and its margin."""
    rows = slice(max(box.top - MARGIN, 0), min(box.bottom + MARGIN, shape[1]))
    columns = slice(max(box.left - MARGIN, 0), min(box.right + MARGIN, shape[2]))
    return slice(None), rows, columns


def remove(frame: np.ndarray, background: np.ndarray, box: GameObject) -> np.ndarray:
    """Replaces an object of a frame by the background, in all planes."""
    result = frame.copy()
    part = _grow(box, frame.shape)
    result[part] = background[part]
    return result


def move(frame: np.ndarray, background: np.ndarray, box: GameObject) -> np.ndarray:
    """Moves an object of a frame ``MOVE`` pixels down, or up where it would leave the frame."""
    result = remove(frame, background, box)
    planes, rows, columns = _grow(box, frame.shape)
    shift = MOVE if rows.stop + MOVE <= frame.shape[1] else -min(MOVE, rows.start)
    target = (planes, slice(rows.start + shift, rows.stop + shift), columns)
    original = frame[planes, rows, columns]
    differs = np.abs(original.astype(float) - background[planes, rows, columns]) > CONTRAST
    result[target] = np.where(differs, original, result[target])
    return result


def check_objects(
    trained: Trained,
    steps: Sequence[Step],
    score: Score,
    maps: Sequence[np.ndarray],
    grid: Grid,
    background: np.ndarray,
) -> list[Counterfactual]:
    """Removes and moves every object of every step.

    Args:
        trained: the agent.
        steps: where.
        score: what maps are of, and what is measured.
        maps: of the steps, ``[rows, columns]``.
        grid: where the maps' cells are.
        background: ``[C, H, W]``.
    """
    colour = FRAME_FORMATS[trained.observation.frame_format].colour
    results = []
    for step, scores in zip(steps, maps, strict=True):
        frame = step.inputs.frame[0, 0].numpy()
        boxes = find_objects(frame, background, colour=colour)
        if not boxes:
            continue
        frames = [f(frame, background, box) for f in (remove, move) for box in boxes]
        outputs = evaluate(trained.agent, step, np.stack(frames))
        changes = strength(score, outputs, step.action)[0]
        large = enlarge(scores, grid, grid.height, grid.width)
        # Linear in units of sigma, so a change of the value in units of return follows.
        head = step.subject.head
        normalized = outputs.masked_normalized_values[0, :, head] - outputs.normalized_values[head]
        unit = _sigma(trained, head)
        for i, box in enumerate(boxes):
            part = large[box.top : box.bottom, box.left : box.right]
            results.append(
                Counterfactual(
                    step.step,
                    box,
                    float(part.max()),
                    float(changes[i]),
                    float(changes[len(boxes) + i]),
                    float(normalized[i] * unit),
                    bool(outputs.masked_logits[0, i].argmax() != outputs.logits.argmax()),
                )
            )
    return results


def _sigma(trained: Trained, head: int) -> float:
    sigma = getattr(trained.agent.baseline, "sigma", None)
    return 1.0 if sigma is None else float(sigma[head])


def agreement(counterfactuals: Sequence[Counterfactual], field: str = "removed") -> float | None:
    """Computes Spearman's rank correlation of what maps predict and what happens.

    None for fewer than ``FEWEST`` objects; 0 where all are predicted to matter alike, or do.
    """
    predicted = [c.predicted for c in counterfactuals]
    happened = [getattr(c, field) for c in counterfactuals]
    if len(predicted) < FEWEST:
        return None
    if np.ptp(predicted) == 0 or np.ptp(happened) == 0:
        return 0.0
    return float(spearmanr(predicted, happened).statistic)
