"""Runs side by side: ``python -m torchbeast.analysis.compare RUN RUN ...``.

Prints, for the games that all runs have and at the same steps or hours, each game's mean return
and the human-normalised mean, median and interquartile mean, with bootstrap intervals over seeds
or, where there are fewer than three, over games. Draws the same against steps or hours. Runs that
differ in their seed only are grouped.
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
from torchbeast.analysis.panels import label_x, make_panels, save_panels
from torchbeast.analysis.results import make_directory
from torchbeast.analysis.runs import find_runs
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, amount, file
from torchbeast.core.types import UsageError
from torchbeast.envs.human_scores import find_reference
from torchbeast.runtime.text import counted, format_rows

SOURCES = {
    "scores.csv": "mean return of full games with sampled actions (scores.csv)",
    "logs.csv": "mean return of the last 100 full games of training (logs.csv)",
}
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
        choices=list(SOURCES),
        help="Where the scores come from. scores.csv: evaluations during training "
        "(--evaluate_every). logs.csv: the last 100 full games of training. (default: scores.csv "
        "if every run has it)",
    )
    add(
        "--output",
        type=file(".png", ".pdf", ".svg"),
        metavar="FILE",
        help="File for a picture of the curves: .png, .pdf or .svg. (default: none)",
    )
    add(
        "--summary",
        action="store_true",
        help="Draw the human-normalised curves only, not those of each game.",
    )
    return parser


def format_value(
    scores: np.ndarray,
    statistic: Any = aggregates.mean,
    form: str = ".2f",
    bootstrap: Any = aggregates.bootstrap,
) -> str:
    """Formats a statistic and its interval: ``18.20 [17.90, 18.50]``; a dash where there is no
    score.

    Args:
        scores: ``[games, seeds]``.
        statistic: one of :mod:`torchbeast.analysis.aggregates`.
        form: a format specification.
        bootstrap: how the interval is computed; see :mod:`torchbeast.analysis.aggregates`.
    """
    if not scores.size:
        return "-"
    text = format(float(statistic(scores)), form)
    interval = bootstrap(scores, statistic)
    if interval is not None:
        text += f" [{interval.low:{form}}, {interval.high:{form}}]"
    return text


def format_ahead(returns: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> str:
    """Formats in how many games the mean return is higher: ``41 of 57, 2 equal``.

    Args:
        returns: arrays ``[S]``, one per game.
        others: what they are compared with, likewise.
    """
    if not all(map(len, [*returns, *others])):
        return "-"
    pairs = [(a.mean(), b.mean()) for a, b in zip(returns, others, strict=True)]
    equal = sum(a == b for a, b in pairs)
    ahead = f"{sum(a > b for a, b in pairs)} of {len(pairs)}"
    return f"{ahead}, {equal} equal" if equal else ahead


def format_comparison(common: CommonScores, point: float) -> list[str]:
    """Returns the lines of the table, and what has to be said about it."""
    groups, has_seeds = common.groups, _has_seeds(common)
    rows = [["", "random", "human", *map(str, groups)]]
    for game in common.games:
        known = find_reference(common.env_ids[game])
        references = ["-" if score is None else f"{score:.2f}" for score in known]
        values = [format_value(common.returns_at(group, game, point)[None]) for group in groups]
        rows.append([game, *references, *values])
    games = common.normalized_games(point)
    bootstrap = aggregates.bootstrap if has_seeds else aggregates.bootstrap_games
    if games:
        scores = [common.normalized(group, games, point) for group in groups]
        rows.append(
            [f"human-normalised, {counted(len(games), 'game')}", *("" for _ in rows[0][1:])]
        )
        for name, statistic in STATISTICS.items():
            cells = [format_value(s, statistic, ".1%", bootstrap) for s in scores]
            rows.append([f"  {name}", "0.0%", "100.0%", *cells])
    rows += _count_ahead(common, point)
    at = f"{point:,.0f} agent steps" if common.unit == "steps" else f"{point:.2f} hours"
    lines = [f"At {at}: {SOURCES[common.table]}", "", *format_rows(rows), ""]
    left_out = [game for game in common.games if game not in games]
    if left_out and games:
        lines.append(f"Not in the human-normalised rows: {', '.join(left_out)}")
    incomplete = common.incomplete(point)
    if incomplete:
        lines.append(f"No score there in some game: {', '.join(run.name for run in incomplete)}")
    interval = f"[low, high]: {aggregates.CONFIDENCE:.0%} bootstrap interval over"
    resamples = f"{aggregates.RESAMPLES:,} resamples"
    if has_seeds:
        unit = "runs" if any(group.unit == "runs" for group in groups) else "seeds"
        lines.append(f"{interval} {unit}, {resamples}")
    elif len(games) >= aggregates.MIN_GAMES:
        lines.append(f"{interval} the {len(games)} games, {resamples}; seeds may differ by more")
    return [*lines, *describe_differences(groups)]


def _has_seeds(common: CommonScores) -> bool:
    """Whether some group has seeds enough for intervals over seeds."""
    return any(len(group.runs) >= aggregates.MIN_SEEDS for group in common.groups)


def _count_ahead(common: CommonScores, point: float) -> list[list[str]]:
    """The rows of the table that count games: ahead of random play and of the first group."""
    groups = common.groups
    scores = {game: find_reference(common.env_ids[game]).random for game in common.games}
    random = {game: np.array([score]) for game, score in scores.items() if score is not None}
    rows = []
    if random:
        returns = [[common.returns_at(group, game, point) for game in random] for group in groups]
        cells = [format_ahead(group, list(random.values())) for group in returns]
        rows.append(["games ahead of random play", "", "", *cells])
    if len(groups) > 1:
        returns = [[common.returns_at(g, game, point) for game in common.games] for g in groups]
        cells = [format_ahead(group, returns[0]) for group in returns[1:]]
        rows.append([f"games ahead of {groups[0]}", "", "", "", *cells])
    return rows


def draw(common: CommonScores, summary: bool = False) -> Any:
    """Draws the groups' curves: human-normalised statistics, and unless it is a summary each game.

    Raises UsageError if there is nothing to draw.
    """
    from matplotlib.ticker import PercentFormatter

    first, _ = common.common_range(common.groups)
    games = common.normalized_games(first)
    normalized = {f"Human-normalised {name}": s for name, s in STATISTICS.items() if games}
    titles = [*normalized, *(() if summary else common.games)]
    if not titles:
        raise UsageError("--summary: no game of all runs has a human score")
    heading = SOURCES[common.table].capitalize()
    if _has_seeds(common):
        heading += f"; band: {aggregates.CONFIDENCE:.0%} interval over seeds"
    figure, panels = make_panels(titles, heading)
    for group in common.groups:
        points = common.sample_points(group, DRAWN_POINTS)
        of_all = [common.normalized(group, games, point) for point in points]
        for panel, title in zip(panels, titles, strict=True):
            if title in normalized:
                panel.yaxis.set_major_formatter(PercentFormatter(1.0))
                draw_group(panel, group, points, of_all, normalized[title])
            else:
                scores = [common.returns_at(group, title, point)[None] for point in points]
                draw_group(panel, group, points, scores, aggregates.mean)
    for panel in panels:
        label_x(panel, common.unit)
    return figure


def draw_group(
    panel: Any, group: Group, points: np.ndarray, scores: list[np.ndarray], statistic: Any
) -> None:
    """Draws a statistic of a group's scores at some points, with its interval as a band."""
    known = [(x, s) for x, s in zip(points, scores, strict=True) if s.size]
    if not known:
        return
    x = [x for x, _ in known]
    (line,) = panel.plot(x, [float(statistic(s)) for _, s in known], label=str(group))
    intervals = [aggregates.bootstrap(s, statistic, DRAWN_RESAMPLES) for _, s in known]
    if any(intervals):
        low, high = zip(*(i or (np.nan, np.nan) for i in intervals), strict=True)
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)


def compare(flags: argparse.Namespace) -> None:
    """Prints the comparison and draws it. Raises UsageError."""
    if flags.summary and flags.output is None:
        raise UsageError("--summary needs --output, the file of the curves")
    if flags.output is not None:
        make_directory(flags.output.parent, "--output")
    groups = group_runs(find_runs([path.expanduser() for path in flags.runs]), flags.by)
    common = find_common(groups, flags.by, flags.table)
    point = flags.at if flags.at is not None else common.common_range(groups)[1]
    if all(common.has_ended(run, point) for run in common.runs):
        raise UsageError(f"--at {point:g}: no run has so many {flags.by}")
    print("\n".join(format_comparison(common, point)))
    if flags.output is not None:
        print(save_panels(draw(common, flags.summary), flags.output))


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)
    return run_command("analysis.compare", lambda _: compare(flags))


if __name__ == "__main__":
    sys.exit(main())
