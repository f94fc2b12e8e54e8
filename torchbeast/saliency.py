"""Where an agent looks: ``python -m torchbeast.saliency``. Its flags."""

from __future__ import annotations

import argparse
import sys

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, file, positive
from torchbeast.runtime.signals import StopSignals


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.saliency``."""
    parser = Parser(
        "saliency", "Shows where a blur changes an agent's policy (orange) and value (blue)."
    )
    flags_lib.add_trained_flags(parser)
    flags_lib.add_watched_game_flags(parser, first_frame=150, num_frames=20)
    add = parser.add_argument_group("saliency").add_argument
    add(
        "--score",
        nargs="+",
        default=["policy", "value"],
        metavar="SCORE",
        help="What the maps show the influence on: policy, value, action (the chosen one), "
        "action:NAME, task:GAME (another game's value head). The first two scores are drawn over "
        "the game. (default: policy value)",
    )
    add(
        "--density",
        type=positive,
        default=2,
        help="Pixels between the centres of two masks. (default: %(default)s)",
    )
    add(
        "--radius",
        type=positive,
        default=5,
        help="Standard deviation of a mask, in pixels. (default: %(default)s)",
    )
    add(
        "--precision",
        choices=["auto", "float32", "bfloat16"],
        default="float32",
        help="Precision of the network. bfloat16 takes about half of the time, for coarser maps. "
        "auto: bfloat16 where the hardware has it, else float32. (default: %(default)s)",
    )
    add("--disable_cuda", action="store_true", help="Do not use a GPU.")
    add_output_flags(parser)
    add_object_flags(parser)
    return parser


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what is written besides the maps, and where."""
    add = parser.add_argument_group("output").add_argument
    add(
        "--saliencydir",
        help="Directory for <xpid>/<env>/<step>.png and scores.npz; an intermediate checkpoint has "
        "a directory model.<id> in <xpid>. (default: saliency/<env> in the run's directory)",
    )
    add(
        "--compare",
        metavar="XPIDS",
        help="More agents, separated by commas. They see the same actions and are drawn side by "
        "side in the film. (default: none)",
    )
    add(
        "--check",
        action="store_true",
        help="Test the maps: shuffled layers, deletion and insertion, integrated gradients. Writes "
        "check.json and check.png.",
    )
    add(
        "--html",
        type=file(".html"),
        metavar="FILE",
        help="File for a web page that steps through the frames, with the maps as layers, policy, "
        "value and checks. (default: no page)",
    )
    add(
        "--sheet",
        type=file(".png"),
        metavar="PNG",
        help="File for a picture with a row per agent and the frames from left to right. "
        "(default: no picture)",
    )


def add_object_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the table of objects, which takes the place of the maps."""
    add = parser.add_argument_group("objects").add_argument
    add(
        "--objects",
        type=file(".png"),
        metavar="PNG",
        help="Instead of maps: print and draw how much policy and value change without the objects "
        "of each colour, for --xpid and --compare, in every fourth of the frames. (default: maps)",
    )
    add(
        "--num_games",
        type=positive,
        default=8,
        help="Games of --objects, with seeds from --seed on; intervals are over games. "
        "(default: %(default)s)",
    )


# What is read without --objects only, and with it only.
OF_MAPS = {
    *("score", "density", "radius", "precision"),
    *("disable_cuda", "saliencydir", "check", "html", "sheet", "movie"),
}
OF_OBJECTS = {"num_games"}


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = (parser := make_parser()).parse_args(argv)
    flags.given = parser.given

    def work(signals: StopSignals) -> None:
        from torchbeast.analysis.saliency import command  # --help needs none of it.

        if flags.objects:
            parser.warn_of_unused(OF_MAPS, "with --objects")
            command.show_objects(flags)
        else:
            parser.warn_of_unused(OF_OBJECTS, "without --objects")
            command.show(flags, signals)

    return run_command("saliency", work)


if __name__ == "__main__":
    sys.exit(main())
