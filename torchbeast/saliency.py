"""Where an agent looks: ``python -m torchbeast.saliency``. Flags, then wiring."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, positive

if TYPE_CHECKING:
    import numpy as np

    from torchbeast.evaluate.playing import Trained


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        "saliency", "Shows where a blur changes an agent's policy (red) and value (green)."
    )
    flags_lib.add_trained_flags(parser)
    flags_lib.add_watched_game_flags(parser, first_frame=150, num_frames=20)
    group = parser.add_argument_group("saliency")
    add = group.add_argument
    add("--density", type=positive, default=2, help="Pixels between masks (default: %(default)s).")
    add("--radius", type=positive, default=5, help="Pixels a mask covers (default: %(default)s).")
    add("--resolution", type=positive, default=75, help="Dots per inch of the PNG files.")
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="float32",
        help="bfloat16 is half as fast again, and coarse (default: %(default)s).",
    )
    add("--batch_size", type=positive, default=32, help="Masks per forward pass.")
    add(
        "--saliencydir",
        default="saliency",
        help="Directory for <xpid>/<env>/<step>.png and scores.npz (default: ./%(default)s).",
    )
    add(
        "--compare",
        metavar="XPIDS",
        help="Further agents, separated by commas, on the same actions: side by side in the film.",
    )
    add("--sheet", metavar="PNG", help="A picture: a row per agent, frames from left to right.")
    return parser


def frames_of(
    flags: argparse.Namespace, trained: Trained, game: str, actions: list[int]
) -> Iterator[tuple[int, np.ndarray, Any, int]]:
    """Step, picture, Saliency and action, for the steps asked for."""
    from torchbeast.analysis.perturbation import PerturbationSaliency
    from torchbeast.evaluate.playing import watch_game

    saliency = PerturbationSaliency(
        trained.agent,
        trained.find_task(game),
        density=flags.density,
        radius=flags.radius,
        batch_size=flags.batch_size,
    )
    watched = watch_game(
        trained,
        game,
        lambda loop: saliency(loop.inputs, loop.state),
        seed=flags.seed,
        actions=actions,
        first_frame=flags.first_frame,
        num_frames=flags.num_frames,
    )
    for step, picture, scores, loop in watched:
        yield step, picture, scores, int(loop.last_actions[0])


def show(flags: argparse.Namespace) -> None:
    """Writes pictures and scores, and the film. Raises UsageError."""
    import torch

    from torchbeast.analysis import saliency_files
    from torchbeast.cli.config import build
    from torchbeast.core.precision import choose_dtype, keep_freed_pages
    from torchbeast.evaluate.actions import play_actions, read_actions, translate_actions
    from torchbeast.evaluate.config import TrainedAgentConfig
    from torchbeast.evaluate.movies import check_movie_path
    from torchbeast.evaluate.playing import choose_game, load_trained

    # At once, not when the work is done.
    movie, sheet = (
        Path(path).expanduser() if path else None for path in (flags.movie, flags.sheet)
    )
    if movie:
        check_movie_path(movie)
    if sheet:
        saliency_files.check_sheet_path(sheet)
    keep_freed_pages()
    trained_config = build(TrainedAgentConfig, vars(flags))
    agents = [load_trained(trained_config)]
    for xpid in flags.compare.split(",") if flags.compare else []:
        agents.append(load_trained(trained_config._replace(xpid=xpid)))
    game = choose_game(agents[0], flags.env)
    films, actions = [], read_actions(flags.actions, agents[0].agent.config.num_actions)
    if not actions and len(agents) > 1:
        # The others are shown the same game.
        num_steps = flags.first_frame + flags.num_frames
        actions = play_actions(agents[0], game, num_steps, seed=flags.seed)
    for trained in agents:
        trained.agent.compute_dtype = choose_dtype(flags.precision, torch.device("cpu"))
        directory = Path(flags.saliencydir).expanduser() / trained.xpid / game
        translated = translate_actions(actions, game, agents[0], trained)
        frames = frames_of(flags, trained, game, translated)
        films.append(saliency_files.write(directory, frames, flags.num_frames, flags.resolution))
        print(f"{len(films[-1])} frames in {directory}")
    names = [trained.xpid for trained in agents]
    if movie:
        saliency_files.write_movie(movie, films, names)
        print(movie)
    if sheet:
        saliency_files.write_sheet(sheet, films, names)
        print(sheet)


def main(argv: list[str] | None = None) -> int:
    flags = make_parser().parse_args(argv)
    return run_command("saliency", lambda _: show(flags))


if __name__ == "__main__":
    sys.exit(main())
