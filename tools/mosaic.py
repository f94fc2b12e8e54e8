"""Films the games of an agent side by side: ``python tools/mosaic.py RUN --output all.gif``.

Each game stands below its name, in rows. One that ends early shows its last picture from then on;
one with a smaller picture than the others stands in the middle of its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import positive
from torchbeast.envs.games import short_name
from torchbeast.play.agents import Trained, read_agent
from torchbeast.play.game_loop import watch_game
from torchbeast.play.movie_writer import MovieWriter
from torchbeast.play.pictures import caption, side_by_side

EVERY = 4  # Agent steps from one picture to the next: about four times a game's own speed.
FPS = 15


def play(trained: Trained, game: str, num_steps: int) -> Iterator[np.ndarray]:
    """Yields pictures of a game, uint8 ``[H, W, 3]``, the last one again when the game is over."""
    picture = None
    for step, picture, *_ in watch_game(trained, game, num_frames=num_steps):
        if step % EVERY == 0:
            yield picture
    while picture is not None:
        yield picture


def fit(picture: np.ndarray, width: int) -> np.ndarray:
    """Returns a picture in another width."""
    height = round(picture.shape[0] * width / picture.shape[1])
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def centre(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Puts a picture into the middle of a black one."""
    result = np.zeros((height, width, 3), np.uint8)
    top, left = (height - picture.shape[0]) // 2, (width - picture.shape[1]) // 2
    result[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return result


def join(pictures: Sequence[np.ndarray], names: Sequence[str], columns: int) -> np.ndarray:
    """Puts pictures in rows of ``columns``, each below its name."""
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    places = [
        caption(centre(picture, height, width), name)
        for picture, name in zip(pictures, names, strict=True)
    ]
    places += [np.zeros_like(places[0])] * (-len(places) % columns)
    rows = [side_by_side(places[i : i + columns]) for i in range(0, len(places), columns)]
    # Turned by 90 degrees, a column of rows is a row.
    return side_by_side([row.swapaxes(0, 1) for row in rows]).swapaxes(0, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of a trained agent")
    parser.add_argument("--columns", type=positive, default=3, help="(default: %(default)s)")
    parser.add_argument(
        "--width", type=positive, default=160, help="pixels of a game (default: %(default)s)"
    )
    parser.add_argument("--steps", type=positive, default=900, help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="a .gif or .mp4")
    flags = parser.parse_args()

    def work(_: object) -> None:
        torch.set_num_threads(1)  # A picture at a time: a second thread gains little.
        trained = read_agent(flags.run)
        games = trained.agent.config.tasks
        films = [play(trained, game, flags.steps) for game in games]
        with MovieWriter(flags.output, FPS) as movie:
            for _ in range(0, flags.steps, EVERY):
                pictures = [fit(next(film), flags.width) for film in films]
                joined = join(pictures, [short_name(game) for game in games], flags.columns)
                movie.append(np.ascontiguousarray(joined))
        print(flags.output)

    return run_command("mosaic", work)


if __name__ == "__main__":
    sys.exit(main())
