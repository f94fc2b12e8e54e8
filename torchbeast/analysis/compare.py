"""Runs side by side: ``python -m torchbeast.analysis.compare RUN RUN ...``.

Prints, for the games that all runs have and at the same steps or hours, each game's mean return
and the human-normalised mean, median and interquartile mean, with bootstrap intervals over seeds.
Draws the same against steps or hours. Runs that differ in their seed only are grouped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchbeast.analysis import aggregates
from torchbeast.analysis.common_scores import CommonScores, find_common
from torchbeast.analysis.groups import Group, describe_differences, group_runs
from torchbeast.analysis.panels import make_panels, save_panels
from torchbeast.analysis.runs import find_runs
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, amount
from torchbeast.core.types import UsageError
from torchbeast.records.scores import POLICIES
from torchbeast.runtime.text import format_rows

STATISTICS = {
    "mean": aggregates.mean,
    "median": aggregates.median,
    "interquartile mean": aggregates.interquartile_mean,
}
# Points of a drawn curve, and resamples at each: fewer than for the table, which is read closely.
DRAWN_POINTS = 50
DRAWN_RESAMPLES = 500


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``python -m torchbeast.analysis.compare``."""
    parser = Parser("analysis.compare", "Compares runs in the same games, at the same point.")
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="A run, or a directory of runs.")
    add(
        "--by",
        choices=["steps", "hours"],
        default="steps",
        help="Compare after equal agent steps (of all games together), or equal hours. "
        "(default: %(default)s)",
    )
    add(
        "--at",
        type=amount,
        help="After how many steps or hours. (default: the most that all runs have)",
    )
    add(
        "--table",
        choices=["scores.csv", "logs.csv"],
        help="Where the scores come from. scores.csv: evaluations during training "
        "(--evaluate_every). logs.csv: the last 100 full games of training. (default: scores.csv "
        "if every run has it)",
    )
    add(
        "--policy",
        choices=POLICIES,
        default="sampled",
        help="How the actions of the games in scores.csv were chosen. (default: %(default)s)",
    )
    add(
        "--output",
        type=Path,
        default=Path("comparison.png"),
        help="File for the picture. (default: %(default)s)",
    )
    return parser


def format_value(
    scores: Sequence[np.ndarray], statistic: Any = aggregates.mean, form: str = ".2f"
) -> str:
    """Formats a statistic and its interval: ``18.20 [17.90, 18.50]``; a dash where there is no
    score.

    Args:
        scores: arrays ``[S]``, one per game.
        statistic: one of :mod:`torchbeast.analysis.aggregates`.
        form: a format specification.
    """
    if not all(len(game) for game in scores):
        return "-"
    text = format(float(statistic(scores)), form)
    interval = aggregates.bootstrap(scores, statistic)
    if interval is not None:
        text += f" [{interval.low:{form}}, {interval.high:{form}}]"
    return text


def format_comparison(common: CommonScores, point: float) -> list[str]:
    """Returns the lines of the table, and what has to be said about it."""
    groups = common.groups
    rows = [["", *map(str, groups)]]
    for game in common.games:
        values = [format_value([common.returns(group, game, point)]) for group in groups]
        rows.append([game, *values])
    games = common.normalized_games(point)
    if games:
        scores = [common.normalized(group, games, point) for group in groups]
        rows.append([f"human-normalised, {len(games)} games", *("" for _ in groups)])
        for name, statistic in STATISTICS.items():
            rows.append([f"  {name}", *(format_value(s, statistic, ".1%") for s in scores)])
    at = f"{point:,.0f} agent steps" if common.unit == "steps" else f"{point:.2f} hours"
    lines = [f"At {at}: {common.source}", "", *format_rows(rows), ""]
    left_out = [game for game in common.games if game not in games]
    if left_out and games:
        lines.append(f"Not in the human-normalised rows: {', '.join(left_out)}")
    ended = common.ended(point)
    if ended:
        lines.append(f"Left out, because they end before: {', '.join(r.name for r in ended)}")
    if any(len(group.runs) > 1 for group in groups):
        lines.append(
            f"[low, high]: {aggregates.CONFIDENCE:.0%} bootstrap interval over seeds, "
            f"{aggregates.RESAMPLES:,} resamples within each game"
        )
    return [*lines, *describe_differences(groups)]


def draw(common: CommonScores) -> Any:
    """Draws the groups' curves: a panel per game, and one of the interquartile mean of all."""
    from matplotlib.ticker import EngFormatter, PercentFormatter

    is_steps = common.unit == "steps"
    first, _ = common.range(common.groups)
    games = common.normalized_games(first)
    titles = [*(["Human-normalised interquartile mean"] if games else []), *common.games]
    heading = str(common.source).capitalize()
    if any(len(group.runs) > 1 for group in common.groups):
        heading += f"; band: {aggregates.CONFIDENCE:.0%} interval over seeds"
    figure, panels = make_panels(titles, heading)
    for group in common.groups:
        points = common.points(group, DRAWN_POINTS)
        for panel, title in zip(panels, titles, strict=True):
            if title in common.games:
                scores = [[common.returns(group, title, point)] for point in points]
                draw_group(panel, group, points, scores, aggregates.mean)
            else:
                panel.yaxis.set_major_formatter(PercentFormatter(1.0))
                scores = [common.normalized(group, games, point) for point in points]
                draw_group(panel, group, points, scores, aggregates.interquartile_mean)
    for panel in panels:
        panel.set_xlabel("agent steps in all games together" if is_steps else "hours")
        if is_steps:
            panel.xaxis.set_major_formatter(EngFormatter())
    return figure


def draw_group(
    panel: Any, group: Group, points: np.ndarray, scores: list[list[np.ndarray]], statistic: Any
) -> None:
    """Draws a statistic of a group's scores at some points, with its interval as a band."""
    known = [(x, s) for x, s in zip(points, scores, strict=True) if all(len(game) for game in s)]
    if not known:
        return
    x = [x for x, _ in known]
    (line,) = panel.plot(x, [float(statistic(s)) for _, s in known], label=str(group))
    intervals = [aggregates.bootstrap(s, statistic, DRAWN_RESAMPLES) for _, s in known]
    if len(group.runs) > 1:
        low, high = zip(*(i or (np.nan, np.nan) for i in intervals), strict=True)
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)


def compare(flags: argparse.Namespace) -> None:
    """Prints the comparison and writes the picture. Raises UsageError."""
    import matplotlib

    matplotlib.use("Agg")
    groups = group_runs(find_runs([path.expanduser() for path in flags.runs]))
    common = find_common(groups, unit=flags.by, policy=flags.policy, table=flags.table)
    point = flags.at if flags.at is not None else common.range(groups)[1]
    if len(common.ended(point)) == sum(len(group.runs) for group in groups):
        raise UsageError(f"--at {flags.at:g}: no run has so many {flags.by}")
    print("\n".join(format_comparison(common, point)))
    figure = draw(common)
    output = flags.output.expanduser()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        saved = save_panels(figure, output)
    except (OSError, ValueError) as error:  # No place, or a suffix that is no picture's.
        raise UsageError(f"--output {output}: {error}") from error
    print(saved)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)
    return run_command("compare", lambda _: compare(flags))


if __name__ == "__main__":
    sys.exit(main())
