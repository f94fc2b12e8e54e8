"""Joins films in one: ``python tools/mosaic.py A.gif B.gif ... --output all.gif``.

The films run side by side, in rows, each below its name. One that ends early shows its last picture
from then on. One that is smaller than the largest stands in the middle of its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageSequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import positive
from torchbeast.core.types import UsageError
from torchbeast.play.movie_writer import MovieWriter, caption, side_by_side

GAP = 4


def read_film(path: Path, fps: float, shrink: int = 1, every: int = 1) -> list[np.ndarray]:
    """Returns what a GIF shows at each time, uint8 ``[H, W, 3]``.

    Args:
        path: the film. A picture may be shown longer than others.
        fps: times per second.
        shrink: every ``shrink``th pixel is taken.
        every: every ``every``th picture is taken.

    Raises:
        UsageError: it is no film.
    """
    pictures: list[np.ndarray] = []
    end_ms = 0.0
    try:
        with Image.open(path) as film:
            for frame in ImageSequence.Iterator(film):
                # A copy, so that the large picture is freed.
                picture = np.asarray(frame.convert("RGB"))[::shrink, ::shrink].copy()
                end_ms += frame.info.get("duration", 1000 / fps)
                pictures += [picture] * (max(1, round(end_ms * fps / 1000)) - len(pictures))
    except OSError as error:
        raise UsageError(f"{path}: {error}") from error
    return pictures[::every]


def centre(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Puts a picture into the middle of a black one."""
    result = np.zeros((height, width, 3), np.uint8)
    top, left = (height - picture.shape[0]) // 2, (width - picture.shape[1]) // 2
    result[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return result


def join_films(
    names: Sequence[str], films: Sequence[Sequence[np.ndarray]], columns: int
) -> Iterator[np.ndarray]:
    """Yields the pictures of all films in rows.

    Args:
        names: of the films.
        films: each has at least one picture, uint8 ``[H, W, 3]``.
        columns: films in a row; what is left of the last row is black.
    """
    height, width = (max(film[0].shape[axis] for film in films) for axis in (0, 1))
    for time in range(max(map(len, films))):
        places = [
            caption(centre(film[min(time, len(film) - 1)], height, width), name)
            for name, film in zip(names, films, strict=True)
        ]
        places += [np.zeros_like(places[0])] * (-len(places) % columns)
        rows = [side_by_side(places[i : i + columns], GAP) for i in range(0, len(places), columns)]
        # Turned by 90 degrees, a column of rows is a row.
        yield side_by_side([row.swapaxes(0, 1) for row in rows], GAP).swapaxes(0, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("films", nargs="+", type=Path, metavar="GIF")
    parser.add_argument("--columns", type=positive, default=3, help="(default: %(default)s)")
    parser.add_argument(
        "--shrink",
        type=positive,
        default=1,
        metavar="N",
        help="take every Nth pixel; films of --mode record have each pixel twice "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--every",
        type=positive,
        default=1,
        metavar="N",
        help="take every Nth picture: N times as fast (default: %(default)s)",
    )
    parser.add_argument("--fps", type=positive, default=15, help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="a .gif or .mp4")
    flags = parser.parse_args()

    def work(_: object) -> None:
        films = [read_film(path, flags.fps, flags.shrink, flags.every) for path in flags.films]
        names = [path.stem for path in flags.films]
        with MovieWriter(flags.output, flags.fps) as movie:
            for picture in join_films(names, films, flags.columns):
                movie.append(np.ascontiguousarray(picture))
        print(flags.output)

    return run_command("mosaic", work)


if __name__ == "__main__":
    sys.exit(main())
