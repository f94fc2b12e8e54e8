"""Films the games of an agent side by side: ``python tools/mosaic.py RUN --output all.gif``.

Each game stands below its name, in rows. One that ends early shows its last picture from then on;
one with a smaller picture than the others stands in the middle of its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

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
BOX = Image.Resampling.BOX


def play(trained: Trained, game: str, num_steps: int) -> Iterator[np.ndarray]:
    """Yields pictures of a game, uint8 ``[H, W, 3]``, the last one again when the game is over."""
    picture = None
    for step, picture, *_ in watch_game(trained, game, num_frames=num_steps):
        if step % EVERY == 0:
            yield picture
    while picture is not None:
        yield picture


def join(
    pictures: Sequence[np.ndarray], names: Sequence[str], columns: int, width: int
) -> np.ndarray:
    """Puts pictures of a common width in rows of ``columns``, each below its name."""
    height = max(round(p.shape[0] * width / p.shape[1]) for p in pictures)
    places = [
        caption(np.asarray(ImageOps.pad(Image.fromarray(p), (width, height), BOX)), name)
        for p, name in zip(pictures, names, strict=True)
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
                pictures = [next(film) for film in films]
                names = [short_name(game) for game in games]
                joined = join(pictures, names, flags.columns, flags.width)
                movie.append(np.ascontiguousarray(joined))
        print(flags.output)

    return run_command("mosaic", work)


if __name__ == "__main__":
    sys.exit(main())
