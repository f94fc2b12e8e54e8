"""Where an agent looks: ``python -m torchbeast.saliency``. Flags, then wiring."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchbeast.core import flags as flags_lib
from torchbeast.core.command import run_command
from torchbeast.core.parsing import Parser, natural, positive
from torchbeast.core.threads import StopSignals
from torchbeast.core.types import UsageError

if TYPE_CHECKING:
    import numpy as np

    from torchbeast.evaluate.playing import Trained


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        "saliency", "Shows where a blur changes an agent's policy (red) and value (green)."
    )
    flags_lib.add_trained_flags(parser)
    group = parser.add_argument_group("game")
    add = group.add_argument
    add("--env", help="Game (default: the agent's, if it knows one only).")
    add("--seed", type=natural, default=0, help="Seed of the game (default: %(default)s).")
    add("--actions", help="File of actions (integers) to play instead of the agent's.")
    add("--first_frame", type=natural, default=150, help="Step to begin at (default: %(default)s).")
    add("--num_frames", type=positive, default=20, help="Steps to show (default: %(default)s).")
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
    add("--batch_size", type=positive, default=64, help="Masks per forward pass.")
    add(
        "--saliencydir",
        default="saliency",
        help="Directory for <xpid>/<env>/<step>.png and scores.npz (default: ./%(default)s).",
    )
    add("--movie", help="Film it, too: a .gif or .mp4.")
    add(
        "--compare",
        metavar="XPIDS",
        help="Further agents, separated by commas, on the same actions: side by side in the film.",
    )
    return parser


def frames_of(
    flags: argparse.Namespace, trained: Trained, game: str, actions: list[int]
) -> Iterator[tuple[int, np.ndarray, Any, int]]:
    """Step, picture, Saliency and action, for the steps asked for."""
    from torchbeast.analysis.perturbation import PerturbationSaliency
    from torchbeast.evaluate.playing import GameLoop, make_games

    (env,) = make_games(trained, game, seed=flags.seed, render_mode="rgb_array")
    loop = GameLoop(trained, game, [env], seed=flags.seed, actions=actions)
    saliency = PerturbationSaliency(
        trained.agent,
        trained.find_task(game),
        density=flags.density,
        radius=flags.radius,
        batch_size=flags.batch_size,
    )
    with contextlib.closing(env):
        for step in range(flags.first_frame + flags.num_frames):
            picture: Any = None
            if step >= flags.first_frame:
                picture, scores = env.render(), saliency(loop.inputs, loop.state)
            ended = loop.step()
            if picture is not None:
                yield step, picture, scores, int(loop.last_actions[0])
            if ended and step < flags.first_frame:
                raise UsageError(
                    f"--first_frame {flags.first_frame}: the game ends after {step + 1} steps"
                )
            if ended:
                return


def show(flags: argparse.Namespace) -> None:
    """Writes pictures and scores, and the film. Raises UsageError."""
    import torch

    from torchbeast.analysis import saliency_files
    from torchbeast.core.precision import choose_dtype, keep_freed_pages
    from torchbeast.evaluate.playing import choose_games, load_trained, read_actions

    keep_freed_pages()
    agents = [load_trained(flags)]
    for xpid in flags.compare.split(",") if flags.compare else []:
        agents.append(load_trained(argparse.Namespace(**{**vars(flags), "xpid": xpid})))
    games = choose_games(agents[0], flags.env)
    if len(games) > 1:
        raise UsageError(f"--env: choose one of {', '.join(games)}")
    films, actions = [], read_actions(flags.actions, agents[0].agent.config.num_actions)
    if not actions and len(agents) > 1:
        actions = play_actions(flags, agents[0], games[0])
    for trained in agents:
        trained.agent.compute_dtype = choose_dtype(flags.precision, torch.device("cpu"))
        directory = Path(flags.saliencydir).expanduser() / trained.xpid / games[0]
        frames = frames_of(flags, trained, games[0], actions)
        films.append(saliency_files.write(directory, frames, flags.num_frames, flags.resolution))
        print(f"{len(films[-1])} frames in {directory}")
    if flags.movie:
        names = [trained.xpid for trained in agents]
        saliency_files.write_movie(Path(flags.movie).expanduser(), films, names)
        print(flags.movie)


def play_actions(flags: argparse.Namespace, trained: Trained, game: str) -> list[int]:
    """What the first agent does: the others are shown the same game."""
    from torchbeast.evaluate.playing import GameLoop, make_games

    (env,) = make_games(trained, game, seed=flags.seed)
    loop = GameLoop(trained, game, [env], seed=flags.seed)
    actions = []
    with contextlib.closing(env):
        for _ in range(flags.first_frame + flags.num_frames):
            ended = loop.step()
            actions.append(int(loop.last_actions[0]))
            if ended:
                break
    return actions


def main(argv: list[str] | None = None) -> int:
    flags = make_parser().parse_args(argv)

    def work(_: StopSignals) -> int:
        show(flags)
        return 0

    return run_command("saliency", work)


if __name__ == "__main__":
    sys.exit(main())
