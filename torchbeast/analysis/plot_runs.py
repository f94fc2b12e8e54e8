"""Learning curves: ``python -m torchbeast.analysis.plot_runs SAVEDIR``.

Draws, per game, the mean full-game return of each run, with its standard deviation over the last
hundred games as a band, against steps in all games, against steps in that game, and against hours;
and PopArt's statistics. A run has the same colour in all panels.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchbeast.analysis.panels import PALETTE, X_LABELS, label_x, make_panels, save_panels
from torchbeast.analysis.results import make_directory
from torchbeast.analysis.runs import Curve, RunRecords, find_runs, read_references, rename_apart
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name

# The line styles of the references, in their order.
REFERENCE_STYLES = ("-", "--", ":", "-.")


class NamedPaths(NamedTuple):
    """Paths that are shown under one name; each under its own if it is None."""

    name: str | None
    paths: tuple[Path, ...]


def named_paths(text: str) -> NamedPaths:
    """Parses ``PATH`` or ``NAME=PATH,PATH``: an argparse type."""
    name, separator, paths = text.partition("=")
    if not separator or Path(text).expanduser().exists():
        return NamedPaths(None, (Path(text).expanduser(),))
    if not (name and paths):
        raise argparse.ArgumentTypeError(f"{text} is neither a path nor NAME=PATH,PATH")
    return NamedPaths(name, tuple(Path(path).expanduser() for path in paths.split(",")))


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.analysis.plot_runs``."""
    parser = Parser("analysis.plot_runs", "Draws the learning curves of runs as PNG.")
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=named_paths,
        metavar="[NAME=]DIR[,DIR...]",
        help="A run, or a directory of runs. With NAME= these runs share a name and a colour, such "
        "as single-task agents.",
    )
    add("--output", type=Path, help="Directory for the pictures. (default: the first DIR)")
    add(
        "--reference",
        type=Path,
        action="append",
        help="CSV file with env, agent_steps and return_mean: curves to draw beside the runs, up "
        "to their end. May be given several times. (default: none)",
    )
    add("--games", help="Games to draw, separated by commas. (default: all)")
    return parser


def read_runs(arguments: Sequence[NamedPaths]) -> list[RunRecords]:
    """Reads all runs; one that is given twice has its last name. Raises UsageError."""
    runs = [run for name, paths in arguments for run in find_runs(paths, name)]
    unique = list({run.path.resolve(): run for run in runs}.values())
    rename_apart(unique)
    return unique


def choose_colours(runs: Sequence[RunRecords]) -> dict[str, Any]:
    """Chooses a colour for each name, in the order of the runs."""
    names = list(dict.fromkeys(run.name for run in runs))
    return dict(zip(names, itertools.cycle(PALETTE), strict=False))


def draw_curve(axes: Any, x: Any, curve: Curve, **style: Any) -> None:
    """Draws a curve's mean as a line and its standard deviation as a band."""
    (line,) = axes.plot(x, curve.mean, label=curve.name, **style)
    axes.fill_between(
        x, curve.mean - curve.std, curve.mean + curve.std, color=line.get_color(), alpha=0.15, lw=0
    )


def draw_curves(panel: Any, curves: Iterable[Curve], colours: dict[str, Any], unit: str) -> float:
    """Draws curves against steps or hours, as far as these are known.

    Args:
        unit: one of :data:`torchbeast.analysis.panels.X_LABELS`.

    Returns:
        Where the longest curve ends; 0 if there is none.
    """
    end = 0.0
    for curve in curves:
        x = curve.position(unit)
        if x is not None and len(x):
            draw_curve(panel, x, curve, color=colours[curve.name])
            end = max(end, float(x[-1]))
    label_x(panel, unit)
    return end


def plot_returns(
    runs: list[RunRecords], games: list[str], references: Sequence[dict[str, Curve]], unit: str
) -> Any:
    """Draws returns against steps or hours, as far as the runs have come; ``unit`` is one of
    :data:`torchbeast.analysis.panels.X_LABELS`.

    References are of agents that learn one game alone. They are drawn against steps in their game,
    and thus not against those in all games where a run has several.
    """
    figure, panels = make_panels(
        games, "Last 100 full games of training: mean return and, as a band, standard deviation"
    )
    colours = choose_colours(runs)
    for panel, game in zip(panels, games, strict=True):
        players = [run for run in runs if game in run.games]
        end = draw_curves(panel, (run.curve(game) for run in players), colours, unit)
        is_alone = all(len(run.games) == 1 for run in players)
        if unit == "game_steps" or (unit == "steps" and is_alone):
            draw_references(panel, [curves[game] for curves in references if game in curves], end)
    return figure


def draw_references(panel: Any, references: Sequence[Curve], end: float) -> None:
    """Draws references up to step ``end``: behind it, they would flatten the runs."""
    for reference, style in zip(references, itertools.cycle(REFERENCE_STYLES), strict=False):
        steps = reference.steps
        last_step = min(end or np.inf, steps[-1])  # Without a run, the whole reference.
        x = np.append(steps[steps < last_step], last_step)
        mean, std = (np.interp(x, steps, y) for y in (reference.mean, reference.std))
        curve = reference._replace(name=f"reference: {reference.name}", mean=mean, std=std)
        if x[0] >= steps[0]:
            draw_curve(panel, x, curve, color="gray", linestyle=style, zorder=1)


def plot_moments(runs: list[RunRecords], games: list[str]) -> Any:
    """Draws PopArt's statistics of the value targets against steps."""
    figure, panels = make_panels(
        games, "PopArt's mean of the value targets and, as a band, their standard deviation"
    )
    colours = choose_colours(runs)
    for panel, game in zip(panels, games, strict=True):
        moments = (run.moments(game) for run in runs if game in run.games)
        draw_curves(panel, filter(None, moments), colours, "steps")
    return figure


def plot(flags: argparse.Namespace) -> list[Path]:
    """Writes the pictures and returns their paths. Raises UsageError."""
    runs = read_runs(flags.runs)
    references = read_references([path.expanduser() for path in flags.reference or ()])
    games = list(dict.fromkeys(game for run in runs for game in run.games))
    if not any(len(run.curve(game).steps) for run in runs for game in run.games):
        raise UsageError("The runs have no scores yet")
    if flags.games:
        chosen = list(dict.fromkeys(short_name(game.strip()) for game in flags.games.split(",")))
        missing = [game for game in chosen if game not in games]
        if missing:
            raise UsageError(f"No run has {', '.join(missing)}; there are {', '.join(games)}")
        games = chosen
    output = (flags.output or flags.runs[0].paths[0]).expanduser()
    if output.suffix == ".png" and not output.is_dir():
        raise UsageError(f"--output {output} must be a directory: there are several pictures")
    make_directory(output, "--output")
    has_several = any(len(run.games) > 1 for run in runs)
    written = [
        save_panels(plot_returns(runs, games, references, unit), output / f"returns_by_{unit}.png")
        for unit in X_LABELS
        if has_several or unit != "game_steps"
    ]
    with_popart = [game for game in games if any(run.moments(game) for run in runs)]
    if with_popart:
        written.append(save_panels(plot_moments(runs, with_popart), output / "popart.png"))
    return written


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)
    return run_command("analysis.plot_runs", lambda _: print(*plot(flags), sep="\n"))


if __name__ == "__main__":
    sys.exit(main())
