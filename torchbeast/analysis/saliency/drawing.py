"""Pictures of saliency: maps under one scale, with its numbers, beside what the agent decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from scipy.special import softmax

from torchbeast.analysis.overlays import BLUE, ORANGE, enlarge, heat, overlay, scale_to
from torchbeast.analysis.saliency.film import SaliencyFilm
from torchbeast.analysis.saliency.maps import Score, Step
from torchbeast.play.movie_writer import MovieWriter
from torchbeast.play.pictures import caption, magnify, side_by_side
from torchbeast.runtime.progress_bar import track

# By name and unit of a score: what is drawn brightest.
Peaks = Mapping[tuple[str, str], float]
COLOURS = (ORANGE, BLUE)  # For the first and the second score, on the game.
PICTURE_HEIGHT = 420  # Pixels, about: pictures are magnified by whole numbers.
SIDE_WIDTH = 220
BAR_HEIGHT = 26
LINE, TEXT, FAINT = (255, 255, 255), (230, 230, 230), (110, 110, 110)


def find_peaks(films: Sequence[SaliencyFilm]) -> Peaks:
    """Returns what is drawn brightest: one number per score and unit, for all steps of all films.

    Peaks of steps differ by orders of magnitude. With the largest one as the scale, one step of a
    film would be visible; with their median, half of them are drawn in full.
    """
    found: dict[tuple[str, str], list[np.float32]] = {}
    for film in films:
        for score in film.scores:
            peaks = [scores.max() for scores in film.maps[score.name]]
            found.setdefault(score.scale, []).extend(peak for peak in peaks if peak > 0)
    return {scale: float(np.median(peaks)) if peaks else 0.0 for scale, peaks in found.items()}


def write(picture: np.ndarray, text: str, left: int, bottom: int, size: float = 0.4) -> None:
    """Writes into a picture."""
    text = text.replace("²", "^2")  # OpenCV 4 draws ASCII only.
    cv2.putText(picture, text, (left, bottom), cv2.FONT_HERSHEY_SIMPLEX, size, TEXT, 1, cv2.LINE_AA)


def scale_bar(width: int, label: str, peak: float, colours: np.ndarray) -> np.ndarray:
    """Draws a strip ``[BAR_HEIGHT, width, 3]``: name, 0, colours ``[n, 3]`` from low to high, peak.

    The plus sign behind the peak says that larger scores have the last colour, too.
    """
    bar = np.zeros((BAR_HEIGHT, width, 3), np.uint8)
    number = f"{peak:.3g}+" if peak > 0 else "0"
    left = max(int(0.55 * width), 7 * len(label) + 20)
    right = width - 8 * len(number) - 6
    index = np.linspace(0, len(colours) - 1, max(right - left, 1)).round().astype(int)
    bar[8:-8, left : left + len(index)] = colours[index]
    write(bar, label, 4, BAR_HEIGHT - 9)
    write(bar, "0", left - 12, BAR_HEIGHT - 9)
    write(bar, number, right + 5, BAR_HEIGHT - 9)
    return bar


def policy_bars(step: Step, width: int, height: int) -> np.ndarray:
    """Draws each action's probability; the action that was played is marked."""
    result = np.zeros((height, width, 3), np.uint8)
    names = step.subject.action_names
    row = min(height // len(names), 24)
    left = 8 * max(map(len, names)) + 4
    for i, (name, probability) in enumerate(zip(names, softmax(step.outputs.logits), strict=True)):
        bottom = (i + 1) * row
        write(result, name, 2, bottom - row // 4, min(0.4, row / 40))
        right = left + round(probability * (width - left - 1))
        colour = LINE if i == step.action else FAINT
        cv2.rectangle(result, (left, bottom - row + 3), (right, bottom - 2), colour, -1)
    return result


def value_curve(values: np.ndarray, now: int, width: int, height: int) -> np.ndarray:
    """Draws the values of all steps, with a cursor at ``now``, and the value there."""
    result = np.zeros((height, width, 3), np.uint8)
    top = 20
    low, high = float(values.min()), float(values.max())
    across = np.linspace(0, width - 1, len(values))
    up = (values - low) / max(high - low, 1e-9)
    down = height - 3 - up * (height - top - 6)
    points = np.stack([across, down], axis=1).round().astype(np.int32)
    cv2.polylines(result, [points], False, FAINT, 1, cv2.LINE_AA)
    cv2.line(result, (int(across[now]), top), (int(across[now]), height - 1), LINE, 1)
    write(result, f"value {values[now]:.3g}  ({low:.3g} to {high:.3g})", 2, 13)
    return result


def scale_map(film: SaliencyFilm, score: Score, index: int, peaks: Peaks) -> np.ndarray:
    """Scales a score's map to [0, 1] and enlarges it to the game's picture, float32 ``[H, W]``."""
    step = film.steps[index]
    scores = scale_to(film.maps[score.name][index], peaks[score.scale])
    return enlarge(scores, step.grid, *step.picture.shape[:2])


def draw_overlay(film: SaliencyFilm, index: int, peaks: Peaks) -> np.ndarray:
    """Draws the game under the maps of the first two scores, each in its own colour."""
    layers = [
        (scale_map(film, score, index, peaks), colour)
        for score, colour in zip(film.scores, COLOURS, strict=False)
    ]
    return overlay(film.steps[index].picture, layers)


def factor_of(picture: np.ndarray) -> int:
    """Returns how often pictures of this size are magnified."""
    return max(1, round(PICTURE_HEIGHT / picture.shape[0]))


def extend(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Extends a picture to ``[height, width, 3]`` in black, at the bottom and on the right."""
    return np.pad(picture, ((0, height - len(picture)), (0, width - picture.shape[1]), (0, 0)))


def overlay_bars(films: Sequence[SaliencyFilm], peaks: Peaks, width: int) -> np.ndarray:
    """Draws the scales of the maps in the films' overlays, one below the other."""
    colours = {
        score.scale: colour
        for film in films
        for score, colour in zip(film.scores, COLOURS, strict=False)
    }
    ramp = np.linspace(0, 1, 64)[:, None]
    return np.concatenate(
        [
            scale_bar(width, ", ".join(scale), peaks[scale], ramp * [colour])
            for scale, colour in colours.items()
        ]
    )


def draw_view(film: SaliencyFilm, index: int, peaks: Peaks) -> np.ndarray:
    """Draws an agent's part of a film: the overlay, its scales, policy and value.

    Args:
        peaks: what is drawn brightest.

    Returns:
        uint8 ``[H, W, 3]``.
    """
    step = film.steps[index]
    picture = magnify(draw_overlay(film, index, peaks), factor_of(step.picture))
    height, width = picture.shape[:2]
    curve_height = height // 3
    side = np.concatenate(
        [
            policy_bars(step, SIDE_WIDTH, height - curve_height),
            value_curve(film.values, index, SIDE_WIDTH, curve_height),
        ]
    )
    view = side_by_side([picture, side])
    name = step.subject.action_names[step.action]
    bars = overlay_bars([film], peaks, width)
    view = np.concatenate([view, extend(bars, len(bars), view.shape[1])])
    return caption(view, f"{film.name}   step {step.step}   {name}")


def draw_step(film: SaliencyFilm, index: int, peaks: Peaks) -> np.ndarray:
    """Draws the picture of a step: the game, each map with its scale, and the film's view."""
    step = film.steps[index]
    factor = factor_of(step.picture)
    panels = [caption(magnify(step.picture, factor), "game")]
    width = panels[0].shape[1]
    colours = heat(np.linspace(0, 1, 64))
    for score in film.scores:
        picture = magnify(heat(scale_map(film, score, index, peaks)), factor)
        bar = scale_bar(width, score.unit, peaks[score.scale], colours)
        panels.append(caption(np.concatenate([picture, bar]), score.name))
    view = draw_view(film, index, peaks)
    return side_by_side([*(extend(panel, len(view), width) for panel in panels), view])


FRAMES_PER_SECOND = 15
SHEET_COLUMNS = 6


def save_pictures(directory: Path, film: SaliencyFilm, peaks: Peaks) -> None:
    """Writes ``<step>.png`` for each step."""
    for index, step in enumerate(track(film.steps, total=len(film.steps), unit="pictures")):
        image = Image.fromarray(draw_step(film, index, peaks))
        image.save(directory / f"{step.step:06d}.png")


def write_movie(path: Path, films: Sequence[SaliencyFilm], peaks: Peaks) -> None:
    """Writes films of several agents, equally long, side by side."""
    with MovieWriter(path, FRAMES_PER_SECOND) as movie:
        for index in range(len(films[0].steps)):
            movie.append(side_by_side([draw_view(film, index, peaks) for film in films]))


def write_sheet(path: Path, films: Sequence[SaliencyFilm], peaks: Peaks) -> None:
    """Writes a picture with a row of evenly spread overlays per agent, and the scales below."""
    length = len(films[0].steps)
    chosen = np.linspace(0, length - 1, min(length, SHEET_COLUMNS)).round().astype(int)
    rows = []
    for film in films:
        overlays = [draw_overlay(film, i, peaks) for i in chosen]
        factor = factor_of(overlays[0])
        steps = ", ".join(str(film.steps[i].step) for i in chosen)
        rows.append(caption(magnify(side_by_side(overlays), factor), f"{film.name}   {steps}"))
    sheet = np.concatenate([*rows, overlay_bars(films, peaks, rows[0].shape[1])])
    Image.fromarray(sheet).save(path)
