"""``--html``: one page that shows maps as layers over the game, without a network."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.special import softmax

from torchbeast.analysis.overlays import scale_to
from torchbeast.analysis.saliency.drawing import Peaks
from torchbeast.analysis.saliency.film import SaliencyFilm
from torchbeast.analysis.saliency.report import COLUMNS, LEGEND, Check


def write_page(
    path: Path,
    game: str,
    films: Sequence[SaliencyFilm],
    peaks: Peaks,
    checks: Sequence[Sequence[Check]],
) -> None:
    """Writes a page with everything in it.

    Args:
        films: one per agent, of one game.
        peaks: what is drawn brightest.
        checks: of each agent; may be empty.
    """
    data = {
        "game": game,
        "scores": list(dict.fromkeys(score.name for film in films for score in film.scores)),
        "columns": COLUMNS,
        "legend": LEGEND,
        "agents": [
            _describe(film, peaks, found) for film, found in zip(films, checks, strict=True)
        ],
    }
    page = resources.files("torchbeast.analysis.saliency").joinpath("viewer.html").read_text()
    # Within a script element, "<" could end it.
    text = json.dumps(data).replace("<", "\\u003c")
    path.write_text(page.replace("/*DATA*/", text))


def _describe(film: SaliencyFilm, peaks: Peaks, checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "name": film.name,
        "grid": film.steps[0].grid._asdict(),
        "actions": film.steps[0].subject.action_names,
        "pictures": [_encode_picture(step.picture) for step in film.steps],
        "maps": {
            score.name: {
                "shape": film.maps[score.name][0].shape,
                "data": _encode_maps(np.stack(film.maps[score.name]), peaks[score.scale]),
                "peak": peaks[score.scale],
                "unit": score.unit,
            }
            for score in film.scores
        },
        "steps": [
            {
                "step": step.step,
                "action": step.action,
                "policy": softmax(step.outputs.logits.astype(float)).round(4).tolist(),
                "value": float(value),
            }
            for step, value in zip(film.steps, film.values, strict=True)
        ],
        "checks": [
            {"score": check.score, "numbers": [round(x, 4) for x in check.row()]}
            for check in checks
        ],
    }


def _encode_picture(picture: np.ndarray) -> str:
    """A PNG; games have few colours, so a palette is exact and small."""
    image = Image.fromarray(picture)
    if len(image.getcolors(picture.size) or ()) <= 256:
        image = image.quantize(256, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def _encode_maps(maps: np.ndarray, peak: float) -> str:
    """A byte per cell, 255 for the peak."""
    return base64.b64encode((255 * scale_to(maps, peak)).round().astype(np.uint8)).decode()
