"""Trains the agents of models/models.toml in turn, in the background.

    make models                          # trains until all have reached their targets
    make models ARGS="--status"          # how far they are
    make models ARGS="--save Pong"       # puts its state into models/, to resume elsewhere
    make models ARGS="--ship Pong"       # puts a trained agent into models/, with its card

The agent that is furthest behind its target gets the next slice of time. Ctrl-C stops and saves;
the same command resumes.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.shipped import plan, resumable, status, trainer
from tools.shipped.locking import lock
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import directory, natural, positive
from torchbeast.core.types import RunError
from torchbeast.runtime.servers import check_compiled
from torchbeast.runtime.threads import StopSignals

DEFAULT_DIRECTORY = "~/.local/share/torchbeast/models"


def minutes(text: str) -> float:
    """Parses a time above 0: an argparse type."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text}") from None
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    instead = parser.add_mutually_exclusive_group().add_argument
    instead("--status", action="store_true", help="print a table of all runs and train nothing")
    instead(
        "--ship",
        metavar="NAMES",
        help="put these agents into models/ with scores and a card, and train nothing",
    )
    instead(
        "--save",
        metavar="NAMES",
        help="put the states of these unfinished agents or runs into models/, from which another "
        "machine resumes, and train nothing",
    )
    add = parser.add_argument
    add("--only", metavar="NAMES", help="agents or runs, separated by commas (default: all)")
    add("--plan", type=Path, default=plan.PLAN, help="list of agents (default: %(default)s)")
    add(
        "--directory",
        type=directory,
        default=os.environ.get("TORCHBEAST_MODELS", DEFAULT_DIRECTORY),
        help="where the runs are, outside the work tree "
        f"(default: $TORCHBEAST_MODELS, else {DEFAULT_DIRECTORY})",
    )
    add(
        "--slice_minutes",
        type=minutes,
        default=30.0,
        help="how long an agent is trained before another one (default: %(default)g)",
    )
    add(
        "--jobs",
        type=positive,
        default=1,
        help="agents that are trained side by side, each on its share of the cores "
        "(default: %(default)s)",
    )
    add("--cores", type=positive, help="cores to use (default: all)")
    add(
        "--priority",
        choices=["idle", "nice", "normal"],
        default="idle",
        help="idle: only time that no other program wants. nice: niceness 19. "
        "(default: %(default)s)",
    )
    add(
        "--min_free_mb",
        type=natural,
        default=500,
        help="stop when less space is free on the disk (default: %(default)s)",
    )
    return parser


def train(flags: argparse.Namespace, runs: list[plan.Run], signals: StopSignals) -> int:
    """Trains runs until they are done or a signal comes. Returns the exit code."""
    check_compiled()
    settings = trainer.Settings(
        slice_s=60 * flags.slice_minutes,
        cores=trainer.divide_cores(flags.jobs, flags.cores),
        priority=flags.priority,
        min_free_bytes=flags.min_free_mb * 10**6,
    )
    path = Path(flags.directory).absolute()
    with lock(path), signals:
        training = trainer.Trainer(runs, path, settings)
        training.train(lambda: signals.received is not None)
    if training.left_out and signals.received is None:
        names = ", ".join(run.name for run in training.left_out)
        raise RunError(f"left out after {trainer.MAX_FAILURES} failures: {names}")
    return 0 if signals.received is None else 128 + signals.received


def ship(flags: argparse.Namespace, runs: list[plan.Run]) -> int:
    """Puts trained runs into models/. Returns the exit code."""
    from tools import model_card
    from tools import ship as shipping

    for run in plan.choose(runs, flags.ship):
        target = plan.MODELS / run.shipped_name
        source = Path(flags.directory) / run.name
        print(shipping.ship(source, target))
        print(model_card.write(target))
    return 0


def main() -> int:
    flags = make_parser().parse_args()

    def work(signals: StopSignals) -> int:
        runs = plan.choose(plan.read_plan(flags.plan), flags.only)
        if flags.status:
            print(status.format_status(runs, Path(flags.directory)))
            return 0
        if flags.save is not None:
            for run in plan.choose(runs, flags.save):
                print(resumable.save_state(run, Path(flags.directory)))
            return 0
        if flags.ship is not None:
            return ship(flags, runs)
        return train(flags, runs, signals)

    return run_command("train_models", work)


if __name__ == "__main__":
    sys.exit(main())
