"""Saliency on disk: a PNG per step, the raw scores, films, contact sheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from torchbeast.analysis.progress import track
from torchbeast.analysis.results import write_arrays
from torchbeast.analysis.saliency.drawing import (
    Film,
    Peaks,
    draw_overlay,
    draw_step,
    draw_view,
    factor_of,
    overlay_bars,
)
from torchbeast.core.types import UsageError
from torchbeast.evaluate.movies import MovieWriter
from torchbeast.evaluate.pictures import caption, magnify, side_by_side

FRAMES_PER_SECOND = 15
SHEET_COLUMNS = 6


def save_scores(path: Path, film: Film, facts: Mapping[str, Any]) -> None:
    """Writes an ``.npz`` with the maps of each score, the agent's outputs and ``facts``."""
    steps = film.steps
    subject = steps[0].subject
    arrays: dict[str, Any] = {
        "step": [step.step for step in steps],
        "action": [step.action for step in steps],
        "action_names": subject.action_names,
        "logits": np.stack([step.outputs.logits for step in steps]),
        "values": np.stack([step.outputs.values for step in steps]),
        "normalized_values": np.stack([step.outputs.normalized_values for step in steps]),
        "tasks": subject.tasks,
        "head": subject.head,
        **{name.replace(":", "_"): maps for name, maps in film.maps.items()},
        **facts,
    }
    write_arrays(path, arrays)


def remove_earlier(directory: Path) -> None:
    """Removes the pictures and checks of an earlier game, which would stay among the new ones."""
    for pattern in ("[0-9]*.png", "check.json", "check.png"):
        for path in directory.glob(pattern):
            path.unlink()


def save_pictures(directory: Path, film: Film, peaks: Peaks, resolution: int) -> None:
    """Writes ``<step>.png`` for each step."""
    for index, step in enumerate(track(film.steps, total=len(film.steps), unit="pictures")):
        image = Image.fromarray(draw_step(film, index, peaks))
        image.save(directory / f"{step.step:06d}.png", dpi=(resolution, resolution))


def write_movie(path: Path, films: Sequence[Film], peaks: Peaks) -> None:
    """Writes a film of several agents side by side. It ends with the shortest of their films."""
    with MovieWriter(path, FRAMES_PER_SECOND) as movie:
        for index in range(min(len(film.steps) for film in films)):
            movie.append(side_by_side([draw_view(film, index, peaks) for film in films]))


def check_sheet_path(path: Path) -> None:
    """Raises UsageError if a sheet cannot have this name."""
    if path.suffix != ".png":
        raise UsageError(f"--sheet: a contact sheet is a .png, not {path.name}")


def write_sheet(path: Path, films: Sequence[Film], peaks: Peaks) -> None:
    """Writes a picture with a row of evenly spread overlays per agent, and the scales below.

    Raises:
        UsageError: the file cannot be written.
    """
    length = min(len(film.steps) for film in films)
    chosen = np.linspace(0, length - 1, min(length, SHEET_COLUMNS)).round().astype(int)
    rows = []
    for film in films:
        overlays = [draw_overlay(film, i, peaks) for i in chosen]
        factor = factor_of(overlays[0])
        steps = ", ".join(str(film.steps[i].step) for i in chosen)
        rows.append(caption(magnify(side_by_side(overlays), factor), f"{film.name}   {steps}"))
    sheet = np.concatenate([*rows, overlay_bars(films, peaks, rows[0].shape[1])])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(sheet).save(path)
    except OSError as error:
        raise UsageError(f"--sheet {path}: {error}") from error
