"""Flags of the evaluation that accompanies training."""

from __future__ import annotations

import argparse

from torchbeast.cli.parsing import natural, positive


def add_evaluation_flags(parser: argparse.ArgumentParser) -> None:
    """Adds how often the agent in training plays full games, and what that may cost."""
    group = parser.add_argument_group(
        "evaluation while training", "A separate process does this. 0 means never."
    )
    add = group.add_argument
    add(
        "--evaluate_every",
        type=natural,
        default=0,
        metavar="STEPS",
        help="Agent steps between evaluations. Every game is played with the most probable actions "
        "and with sampled actions; scores.csv gets the scores. (default: %(default)s)",
    )
    add(
        "--evaluation_episodes",
        type=positive,
        default=5,
        metavar="N",
        help="Full games per evaluation, game and kind of action. (default: %(default)s)",
    )
    add(
        "--record_every",
        type=natural,
        default=0,
        metavar="STEPS",
        help="Agent steps between films of every game, in movies/. (default: %(default)s)",
    )
