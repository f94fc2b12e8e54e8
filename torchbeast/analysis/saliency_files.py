"""Saliency on disk: a PNG per step, the raw scores, films."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from torchbeast.analysis.overlays import (
    GREEN,
    RED,
    colour_map,
    enlarge,
    normalize,
    overlay,
)
from torchbeast.core.types import UsageError
from torchbeast.evaluate.movies import MovieWriter
from torchbeast.evaluate.pictures import caption, magnify, side_by_side

FRAMES_PER_SECOND = 15
SHEET_COLUMNS = 6


def panels(picture: np.ndarray, scores: Any) -> list[np.ndarray]:
    """Game, policy map, value map, overlay; each as large as the game picture."""
    height, width = picture.shape[:2]
    policy, value = (normalize(enlarge(s, height, width)) for s in scores)
    return [
        picture,
        colour_map(policy, RED),
        colour_map(value, GREEN),
        overlay(picture, [(policy, RED), (value, GREEN)]),
    ]


def write(
    directory: Path, frames: Iterable[Any], num_frames: int, resolution: int
) -> list[np.ndarray]:
    """Writes ``<step>.png`` and ``scores.npz``; returns the overlays."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--saliencydir: {error}") from error
    steps, actions, policies, values, overlays = [], [], [], [], []
    # Delayed until the first frame: an error that comes before is a line of its own.
    for step, picture, scores, action in tqdm(frames, total=num_frames, unit="frame", delay=0.1):
        shown = panels(picture, scores)
        image = Image.fromarray(magnify(side_by_side(shown)))
        image.save(directory / f"{step:06d}.png", dpi=(resolution, resolution))
        overlays.append(shown[-1])
        steps.append(step)
        actions.append(action)
        policies.append(scores.policy)
        values.append(scores.value)
    np.savez_compressed(
        directory / "scores.npz", step=steps, action=actions, policy=policies, value=values
    )
    return overlays


def write_movie(path: Path, films: list[list[np.ndarray]], names: list[str]) -> None:
    """The overlays of several agents side by side, under their names."""
    with MovieWriter(path, FRAMES_PER_SECOND) as movie:
        for pictures in zip(*films, strict=False):
            large = [magnify(picture) for picture in pictures]
            movie.append(
                side_by_side([caption(p, name) for p, name in zip(large, names, strict=True)])
            )


def check_sheet_path(path: Path) -> None:
    """Raises UsageError if a sheet cannot have this name."""
    if path.suffix != ".png":
        raise UsageError(f"--sheet: a contact sheet is a .png, not {path.name}")


def write_sheet(path: Path, films: list[list[np.ndarray]], names: list[str]) -> None:
    """Evenly spread overlays, a row per agent under its name. Raises UsageError."""
    length = min(len(film) for film in films)
    chosen = np.linspace(0, length - 1, min(length, SHEET_COLUMNS)).round().astype(int)
    rows = [
        caption(side_by_side([film[i] for i in chosen]), name)
        for film, name in zip(films, names, strict=True)
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(magnify(np.concatenate(rows))).save(path)
    except OSError as error:
        raise UsageError(f"--sheet {path}: {error}") from error
