"""Runs side by side: ``python -m torchbeast.analysis.compare RUN RUN ...``.

Prints, for the games that all runs have and at the same steps or hours, each game's mean return
and the human-normalised mean, median and interquartile mean, with bootstrap intervals over seeds
or, where there are fewer than three, over games. Draws the same against steps or hours. Runs that
differ in their seed only are grouped.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchbeast.analysis import statistics as aggregates
from torchbeast.analysis.panels import make_panels, save_panels
from torchbeast.analysis.runs import Curve, RunRecords, find_runs
from torchbeast.cli.command import run_command
from torchbeast.cli.parsing import Parser, amount
from torchbeast.cli.training_flags import default_reward_clipping
from torchbeast.core.types import UsageError
from torchbeast.envs.human_scores import find_reference, human_normalized
from torchbeast.records.scores import POLICIES
from torchbeast.runtime.text import format_rows

# Flags that say where a run is written, how it is watched and where its servers are, not what it
# learns; the preset, which is the values of others; and those of other modes, which every command
# line has.
IGNORED_FLAGS = {
    *("seed", "xpid", "savedir", "mode", "preset", "disable_checkpoint", "checkpoint_interval_s"),
    *("save_model_every_nsteps", "track_gradients", "write_profiler_trace", "pipes_basename"),
    *("evaluate_every", "evaluation_episodes", "num_episodes", "greedy", "json", "actions"),
    *("movie", "movie_steps", "intermediate_model_id"),
    *("logger", "start_servers", "tls_dir", "ray_address", "step_timeout_s"),
    # Of earlier versions, in the meta.json of runs that are kept.
    *("evaluation_share", "record_every", "saliency_every", "join_address", "env_addresses"),
    *("max_environment_failures", "failure_window_s"),
}
# Flags that say how the machine is used: how fast a run learns by the clock, hardly what it learns.
MACHINE_FLAGS = {
    *("cores", "disable_cuda", "num_inference_threads", "num_learner_threads", "num_servers"),
    "pool_threads",
}


class Group(NamedTuple):
    """Runs of one experiment, with several seeds; see :func:`group_runs`."""

    name: str
    flags: dict[str, Any]
    """What they have in common: flags that say what is learned, as :func:`learning_flags` has
    them."""
    runs: tuple[RunRecords, ...]

    def __str__(self) -> str:
        return self.name if len(self.runs) == 1 else f"{self.name} ({len(self.runs)} seeds)"


def learning_flags(run: RunRecords, unread: Set[str]) -> dict[str, Any]:
    """Returns the flags of a run with the values that took effect; empty where they are unknown.

    Flags of value None and those in ``unread`` are left out. Two spellings of one experiment have
    equal flags.
    """
    flags = {k: v for k, v in run.flags.items() if k not in unread and v is not None}
    if not flags:
        return {}
    uses_popart = flags.get("use_popart", False)
    if uses_popart:
        flags["value_heads"] = "game"
    flags.setdefault("reward_clipping", default_reward_clipping(uses_popart))
    return {**flags, "env": ",".join(run.games)}


def group_runs(runs: Sequence[RunRecords], unit: str = "steps") -> list[Group]:
    """Puts runs together that differ only in their seed and, unless they are compared by ``hours``,
    in the use of the machine.

    Groups have the order of their first runs. Those that would have the same name are called as
    their first run. A run whose flags are unknown is a separate group.
    """
    unread = IGNORED_FLAGS if unit == "hours" else IGNORED_FLAGS | MACHINE_FLAGS
    groups: list[Group] = []
    for run in runs:
        flags = learning_flags(run, unread)
        for i, group in enumerate(groups):
            if flags and flags == group.flags:
                groups[i] = group._replace(runs=(*group.runs, run))
                break
        else:
            groups.append(Group("", flags, (run,)))
    names = [name_group(group.runs) for group in groups]
    return [
        group._replace(name=name if names.count(name) == 1 else group.runs[0].name)
        for group, name in zip(groups, names, strict=True)
    ]


def name_group(runs: Sequence[RunRecords]) -> str:
    """Returns the names of runs without a seed's number, if they then agree, else the first."""
    names = [run.name for run in runs]
    bases = {re.sub(r"([-_. ](s|seed))?[-_. ]?\d+$", "", name) for name in names}
    base = bases.pop() if len(names) > 1 and len(bases) == 1 else ""
    return base or names[0]


def describe_differences(groups: Sequence[Group]) -> list[str]:
    """Returns a line for every flag that groups differ in: ``--beta: 0.1 in a; 0.2 in b``.

    Flags of the machine are listed for each run: runs of one group may differ in them.
    """
    known = [(group.name, group.flags) for group in groups if group.flags]
    names = sorted({name for _, flags in known for name in flags} - MACHINE_FLAGS)
    runs = [(run.name, run.flags) for group in groups for run in group.runs if run.flags]
    pairs = [*((name, known) for name in names), *((name, runs) for name in sorted(MACHINE_FLAGS))]
    return [line for name, flags in pairs if (line := _describe_difference(name, flags))]


def _describe_difference(name: str, flags: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    by_value: dict[str, list[str]] = {}
    for owner, values in flags:
        value = values.get(name)
        by_value.setdefault("not set" if value is None else str(value), []).append(owner)
    if len(by_value) < 2:
        return ""
    return f"--{name}: " + "; ".join(f"{v} in {', '.join(o)}" for v, o in by_value.items())


# Evaluations come at the first learner step that reaches a multiple of steps: records this much
# behind a point, relative to it, count for it.
TOLERANCE = 0.01


class Source(NamedTuple):
    """Where returns come from."""

    table: str
    """scores.csv: full games of the agent at that step; logs.csv: the last hundred full games of
    training."""
    policy: str
    """greedy or sampled, for scores.csv; training samples."""

    def curve(self, run: RunRecords, game: str) -> Curve:
        """Returns the returns of one run in one game."""
        if self.table == "scores.csv":
            return run.score_curve(game, self.policy)
        return run.curve(game)

    def __str__(self) -> str:
        if self.table == "scores.csv":
            return f"mean return of full games with {self.policy} actions (scores.csv)"
        return "mean return of the last 100 full games of training (logs.csv)"


class CommonScores(NamedTuple):
    """Groups of runs, and where they are compared."""

    groups: list[Group]
    games: list[str]
    """Games that every run has."""
    source: Source
    unit: str
    """steps or hours."""
    curves: dict[tuple[Path, str], Curve]
    """By the run's directory and the game."""
    env_ids: dict[str, str]
    """By game: an environment of the user's may be called as a game that has a human score."""

    @property
    def has_seeds(self) -> bool:
        """Whether some group has seeds enough for intervals over seeds."""
        return any(len(group.runs) >= aggregates.MIN_SEEDS for group in self.groups)

    @property
    def runs(self) -> list[RunRecords]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group.runs]

    def position(self, curve: Curve) -> np.ndarray:
        """Returns a curve's steps or hours, ``[N]``."""
        if self.unit == "steps":
            return curve.steps
        assert curve.hours is not None
        return curve.hours

    def range(self, groups: Sequence[Group]) -> tuple[float, float]:
        """Returns the steps or hours for which all runs have records in all games: first and
        last.
        """
        ends = [
            (x[0], x[-1])
            for group in groups
            for run in group.runs
            for game in self.games
            if len(x := self.position(self.curves[run.path, game]))
        ]
        if not ends:
            raise UsageError("The runs have no scores yet")
        first, last = zip(*ends, strict=True)
        return float(min(max(first), min(last))), float(min(last))

    def points(self, group: Group, most: int) -> np.ndarray:
        """Returns the steps or hours of a group's records in its :meth:`range`, ``[N]``, ``most``
        of them; none where it has no records.
        """
        curves = [self.curves[run.path, game] for run in group.runs for game in self.games]
        points = np.unique(np.concatenate([self.position(curve) for curve in curves]))
        if not len(points):
            return points
        first, last = self.range([group])
        points = points[(points >= first) & (points <= last)]
        return points[np.linspace(0, len(points) - 1, min(most, len(points))).round().astype(int)]

    def returns(self, group: Group, game: str, point: float) -> np.ndarray:
        """Returns of a group's runs in a game at ``point``, ``[S]``: the last records until then.

        Runs without a record until then, and those that :meth:`ended` before, are left out.
        """
        values = (self._last_return(run, game, point) for run in group.runs)
        return np.array([value for value in values if value is not None])

    def _last_return(self, run: RunRecords, game: str, point: float) -> float | None:
        curve = self.curves[run.path, game]
        count = np.searchsorted(self.position(curve), point * (1 + TOLERANCE), side="right")
        return float(curve.mean[count - 1]) if count and not self._has_ended(run, point) else None

    def ended(self, point: float) -> list[RunRecords]:
        """Returns the runs that ended before ``point``."""
        return [run for run in self.runs if self._has_ended(run, point)]

    def unscored(self, point: float) -> list[RunRecords]:
        """Returns the runs that go on to ``point`` and lack a return of some game until then."""
        return [
            run
            for run in self.runs
            if not self._has_ended(run, point)
            and any(self._last_return(run, game, point) is None for game in self.games)
        ]

    def _has_ended(self, run: RunRecords, point: float) -> bool:
        positions = (self.position(self.curves[run.path, game]) for game in self.games)
        # The final agent is evaluated after the last row of logs.csv.
        last = max([run.length(self.unit), *(x[-1] for x in positions if len(x))])
        return bool(last * (1 + TOLERANCE) < point)

    def normalized(self, group: Group, games: Sequence[str], point: float) -> list[np.ndarray]:
        """Returns human-normalised returns at ``point``, an array ``[S]`` per game."""
        return [
            np.array([human_normalized(env_id, x) for x in self.returns(group, game, point)])
            for game, env_id in ((game, self.env_ids[game]) for game in games)
        ]

    def normalized_games(self, point: float) -> list[str]:
        """Returns the games with a human score in which every group has a return at ``point``.

        Groups without any return at that point do not count.
        """
        known = [g for g in self.groups if any(len(self.returns(g, x, point)) for x in self.games)]
        return [
            game
            for game in self.games
            if human_normalized(self.env_ids[game], 0.0) is not None
            and all(len(self.returns(group, game, point)) for group in known)
        ]


def find_common(
    groups: list[Group], *, unit: str, policy: str, table: str | None = None
) -> CommonScores:
    """Finds what groups have in common.

    Args:
        groups: the groups.
        unit: compare at the same ``steps`` or ``hours``.
        policy: greedy or sampled.
        table: scores.csv or logs.csv; by default scores.csv if every run has it. The two are never
            mixed: one is of a single agent, the other of all agents of the last hundred games.

    Raises:
        UsageError: the runs share no game, or some lack the scores that were asked for.
    """
    runs = [run for group in groups for run in group.runs]
    games = [game for game in runs[0].games if all(game in run.games for run in runs)]
    if not games:
        raise UsageError("The runs have no game in common")
    missing = [run.name for run in runs if not run.has_scores]
    if table == "scores.csv" and missing:
        raise UsageError(
            f"No scores.csv in {', '.join(missing)}: train with --evaluate_every, or compare "
            "with --table logs.csv"
        )
    table = table or ("logs.csv" if missing else "scores.csv")
    if table == "logs.csv" and policy != "sampled":
        raise UsageError(
            f"--policy {policy}: training samples its actions; only scores.csv has others "
            "(--evaluate_every)"
        )
    source = Source(table, policy)
    curves = {(run.path, game): source.curve(run, game) for run in runs for game in games}
    env_ids = {}
    for game in games:
        ids = [run.env_id(game) for run in runs]
        # Where one run's environment has no human score, the game has none.
        without = [env_id for env_id in ids if human_normalized(env_id, 0.0) is None]
        env_ids[game] = (without or ids)[0]
    return CommonScores(groups, games, source, unit, curves, env_ids)


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
        help="File for a picture of the curves. (default: none)",
    )
    add(
        "--summary",
        action="store_true",
        help="Draw the human-normalised curves only, not those of each game.",
    )
    return parser


def format_value(
    scores: Sequence[np.ndarray],
    statistic: Any = aggregates.mean,
    form: str = ".2f",
    bootstrap: Any = aggregates.bootstrap,
) -> str:
    """Formats a statistic and its interval: ``18.20 [17.90, 18.50]``; a dash where there is no
    score.

    Args:
        scores: arrays ``[S]``, one per game.
        statistic: one of :mod:`torchbeast.analysis.statistics`.
        form: a format specification.
        bootstrap: how the interval is computed; see :mod:`torchbeast.analysis.statistics`.
    """
    if not all(len(game) for game in scores):
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
    groups = common.groups
    rows = [["", "random", "human", *map(str, groups)]]
    for game in common.games:
        known = find_reference(common.env_ids[game])
        references = ["-" if score is None else f"{score:.2f}" for score in known]
        values = [format_value([common.returns(group, game, point)]) for group in groups]
        rows.append([game, *references, *values])
    games = common.normalized_games(point)
    bootstrap = aggregates.bootstrap if common.has_seeds else aggregates.bootstrap_games
    if games:
        scores = [common.normalized(group, games, point) for group in groups]
        rows.append([f"human-normalised, {len(games)} games", *("" for _ in rows[0][1:])])
        for name, statistic in STATISTICS.items():
            cells = [format_value(s, statistic, ".1%", bootstrap) for s in scores]
            rows.append([f"  {name}", "0.0%", "100.0%", *cells])
    rows += _count_ahead(common, point)
    at = f"{point:,.0f} agent steps" if common.unit == "steps" else f"{point:.2f} hours"
    lines = [f"At {at}: {common.source}", "", *format_rows(rows), ""]
    left_out = [game for game in common.games if game not in games]
    if left_out and games:
        lines.append(f"Not in the human-normalised rows: {', '.join(left_out)}")
    ended = common.ended(point)
    if ended:
        lines.append(f"Left out, because they end before: {', '.join(r.name for r in ended)}")
    unscored = common.unscored(point)
    if unscored:
        lines.append(f"No score yet in some game: {', '.join(run.name for run in unscored)}")
    interval = f"[low, high]: {aggregates.CONFIDENCE:.0%} bootstrap interval over"
    resamples = f"{aggregates.RESAMPLES:,} resamples"
    if common.has_seeds:
        lines.append(f"{interval} seeds, {resamples}")
    elif len(games) >= aggregates.MIN_GAMES:
        lines.append(f"{interval} the {len(games)} games, {resamples}; seeds may differ by more")
    return [*lines, *describe_differences(groups)]


def _count_ahead(common: CommonScores, point: float) -> list[list[str]]:
    """The rows of the table that count games: ahead of random play and of the first group."""
    groups = common.groups
    scores = {game: find_reference(common.env_ids[game]).random for game in common.games}
    random = {game: np.array([score]) for game, score in scores.items() if score is not None}
    rows = []
    if random:
        returns = [[common.returns(group, game, point) for game in random] for group in groups]
        cells = [format_ahead(group, list(random.values())) for group in returns]
        rows.append(["games ahead of random play", "", "", *cells])
    if len(groups) > 1:
        returns = [[common.returns(g, game, point) for game in common.games] for g in groups]
        cells = [format_ahead(group, returns[0]) for group in returns[1:]]
        rows.append([f"games ahead of {groups[0]}", "", "", "", *cells])
    return rows


def draw(common: CommonScores, summary: bool = False) -> Any:
    """Draws the groups' curves: human-normalised statistics, and unless it is a summary each game.

    Raises UsageError if there is nothing to draw.
    """
    from matplotlib.ticker import EngFormatter, PercentFormatter

    is_steps = common.unit == "steps"
    first, _ = common.range(common.groups)
    games = common.normalized_games(first)
    normalized = {f"Human-normalised {name}": s for name, s in STATISTICS.items() if games}
    titles = [*normalized, *(() if summary else common.games)]
    if not titles:
        raise UsageError("--summary: no game of all runs has a human score")
    heading = str(common.source).capitalize()
    if common.has_seeds:
        heading += f"; band: {aggregates.CONFIDENCE:.0%} interval over seeds"
    figure, panels = make_panels(titles, heading)
    for group in common.groups:
        points = common.points(group, DRAWN_POINTS)
        of_all = [common.normalized(group, games, point) for point in points]
        for panel, title in zip(panels, titles, strict=True):
            if title in normalized:
                panel.yaxis.set_major_formatter(PercentFormatter(1.0))
                draw_group(panel, group, points, of_all, normalized[title])
            else:
                scores = [[common.returns(group, title, point)] for point in points]
                draw_group(panel, group, points, scores, aggregates.mean)
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
    if any(intervals):
        low, high = zip(*(i or (np.nan, np.nan) for i in intervals), strict=True)
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)


def compare(flags: argparse.Namespace) -> None:
    """Prints the comparison and draws it. Raises UsageError."""
    groups = group_runs(find_runs([path.expanduser() for path in flags.runs]), flags.by)
    common = find_common(groups, unit=flags.by, policy=flags.policy, table=flags.table)
    point = flags.at if flags.at is not None else common.range(groups)[1]
    if common.ended(point) == common.runs:
        raise UsageError(f"--at {point:g}: no run has so many {flags.by}")
    print("\n".join(format_comparison(common, point)))
    if flags.output is not None:
        print(save(common, flags.output.expanduser(), flags.summary))


def save(common: CommonScores, output: Path, summary: bool) -> Path:
    """Draws the curves into a file, a PNG if it has no suffix. Raises UsageError."""
    import matplotlib

    matplotlib.use("Agg")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        figure = draw(common, summary)
        return save_panels(figure, output if output.suffix else output.with_suffix(".png"))
    except (OSError, ValueError) as error:  # No place, or a suffix that is no picture's.
        raise UsageError(f"--output {output}: {error}") from error


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    flags = make_parser().parse_args(argv)
    return run_command("compare", lambda _: compare(flags))


if __name__ == "__main__":
    sys.exit(main())
