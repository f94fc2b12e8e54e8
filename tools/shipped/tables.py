"""Tables of several shipped agents in Markdown: how they were trained, their scores side by side,
and curves at equal steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from tools.shipped.card import (
    NETWORKS,
    Facts,
    format_known,
    format_rewards,
    format_score,
    format_share,
    format_table,
)
from tools.shipped.scoring import (
    Evaluation,
    Score,
    normalized_median,
    read_evaluation,
    score_returns,
)
from torchbeast.analysis import aggregates
from torchbeast.analysis.runs import Curve, RunRecords
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.runtime.text import human_return

T = TypeVar("T")

# A curve ends near a step rather than at it: it may be this share away.
TOLERANCE = 0.05


def format_agents(agents: Sequence[Facts]) -> str:
    """Returns a table of how agents were trained, a row each."""
    header = ["agent", "network", "games", "steps", "target", "PopArt", "rewards", "seed"]
    rows = []
    for facts in agents:
        args = facts.args
        games = list(map(short_name, facts.meta["tasks"]))
        cells = [
            facts.name,
            NETWORKS.get(args["agent_type"], args["agent_type"]).partition(" (")[0],
            games[0] if len(games) == 1 else f"{len(games)}: {', '.join(games)}",
            f"{facts.steps:,}",
            f"{args['total_steps']:,}",
            "yes" if args.get("use_popart") else "no",
            format_rewards(facts),
            str(facts.meta["seed"]),
        ]
        rows.append(cells)
    return format_table(header, rows)


class Column(NamedTuple):
    """Agents of one kind, such as those that learned one game each."""

    name: str
    returns: dict[str, np.ndarray]
    """By short name of the game: returns of full games ``[N]``."""


def make_column(name: str, evaluations: Mapping[Path, Evaluation], policy: str) -> Column:
    """Collects the games that agents of one kind played.

    Args:
        name: of the column.
        evaluations: by directory of the agent.
        policy: greedy or sampled.

    Raises:
        UsageError: two of the agents know the same game.
    """
    parts = (
        (agent, [(short_name(game), x[policy]) for game, x in evaluation.returns.items()])
        for agent, evaluation in evaluations.items()
    )
    return Column(name, merge_games(name, parts))


def merge_games(name: str, parts: Iterable[tuple[Path, Iterable[tuple[str, T]]]]) -> dict[str, T]:
    """Collects what several agents of one kind have, by game.

    Args:
        name: of the kind.
        parts: the directory of each agent, and what it has of each game, by its short name.

    Raises:
        UsageError: two of the agents know the same game.
    """
    merged: dict[str, T] = {}
    for agent, of_games in parts:
        for game, value in of_games:
            if game in merged:
                raise UsageError(f"{name}: {agent} is the second agent of {game}")
            merged[game] = value
    return merged


def choose_games(column: Column, games: Sequence[str]) -> Column:
    """Returns a column with some of its games alone, by their short names.

    Raises:
        UsageError: it lacks one.
    """
    missing = [game for game in games if game not in column.returns]
    if missing:
        raise UsageError(f"{column.name} has no games of {missing[0]}")
    return column._replace(returns={game: column.returns[game] for game in games})


def format_scores(columns: Sequence[Column], difference: tuple[str, str] | None = None) -> str:
    """Returns a table with a row per game and a column per kind of agent.

    Below the games is the median over games of human-normalised scores, over the games that all
    kinds know and for which a human score is published.

    Args:
        columns: the kinds of agents.
        difference: names of two columns, whose difference is a further column.

    Raises:
        UsageError: there is no column of a name.
    """
    pair = [find_column(columns, name) for name in difference or ()]
    header = ["game", *(column.name for column in columns), "random", "human"]
    if difference:
        header.append(f"{difference[0]} minus {difference[1]}")
    rows = []
    games = list(dict.fromkeys(game for column in columns for game in column.returns))
    for game in games:
        cells = [format_returns(column.returns.get(game)) for column in columns]
        cells += format_known(game)
        if pair:
            cells.append(format_difference(*(column.returns.get(game) for column in pair)))
        rows.append([game, *cells])
    common = [game for game in games if all(game in column.returns for column in columns)]
    medians = [
        normalized_median({game: column.returns[game] for game in common}) for column in columns
    ]
    if any(medians):
        cells = [f"{format_share(median)} %" for median in medians]
        name = "human-normalised median"
        rows.append([name, *cells, *[""] * (len(header) - len(cells) - 1)])
    return format_table(header, rows)


def find_column(columns: Sequence[Column], name: str) -> Column:
    """Returns the column of a name. Raises UsageError."""
    for column in columns:
        if column.name == name:
            return column
    raise UsageError(f"No column is called {name}: {', '.join(c.name for c in columns)}")


def format_returns(returns: np.ndarray | None) -> str:
    """Formats the mean of returns ``[N]`` with its interval; empty for None."""
    if returns is None:
        return ""
    return format_score(score_returns(returns))


def format_difference(a: np.ndarray | None, b: np.ndarray | None) -> str:
    """Formats the difference of the means of returns ``[N]`` with a 95 % bootstrap interval over
    the games of both; empty if one is None.
    """
    if a is None or b is None:
        return ""
    resampled = aggregates.resample_means(a) - aggregates.resample_means(b, seed=1)
    low, high = (float(end) for end in aggregates.percentiles(resampled))
    interval = None if math.isnan(low) else aggregates.Interval(low, high)
    return format_score(Score(float(a.mean() - b.mean()), interval))


class Group(NamedTuple):
    """Runs of one kind of agent, such as those that learned one game each."""

    name: str
    runs: dict[str, RunRecords]
    """By short name of the game."""


def make_group(name: str, runs: Sequence[RunRecords]) -> Group:
    """Collects the runs of one kind of agent.

    Raises:
        UsageError: two of the runs know the same game.
    """
    parts = ((run.path, [(game, run) for game in run.games]) for run in runs)
    return Group(name, merge_games(name, parts))


def format_curves(
    groups: Sequence[Group],
    references: Sequence[Mapping[str, Curve]],
    steps: Sequence[int],
    count: str = "game",
) -> str:
    """Returns a table of mean returns at equal steps: a row per game and step.

    Args:
        groups: a column each.
        references: curves of agents of one game each to compare with, by game.
        steps: agent steps.
        count: ``game``: steps in the game of the row. ``all``: steps in all games of an agent.
    """
    names = dict.fromkeys(curve.name for curves in references for curve in curves.values())
    header = ["game", "agent steps", *(group.name for group in groups), *names]
    rows = []
    for game in dict.fromkeys(game for group in groups for game in group.runs):
        known = {c[game].name: c[game] for c in references if game in c}
        curves = [
            *(read_curve(group.runs.get(game), game, count) for group in groups),
            *(known.get(name) for name in names),
        ]
        for step in steps:
            cells = [format_value(curve, step) for curve in curves]
            rows.append([game, f"{step:,}", *cells])
    return format_table(header, rows)


def read_curve(run: RunRecords | None, game: str, count: str) -> Curve | None:
    """Returns a run's curve in a game, whose steps are those in this game or in all games; None
    without a run, or where its steps in the game are unknown.
    """
    if run is None:
        return None
    curve = run.curve(game)
    if count == "all" or len(run.games) == 1:
        return curve
    return None if curve.game_steps is None else curve._replace(steps=curve.game_steps)


def format_value(curve: Curve | None, step: int) -> str:
    """Formats a curve's mean at a step, between its records; empty where it has none."""
    if curve is None or not len(curve.steps):
        return ""
    first, last = curve.steps[0] * (1 - TOLERANCE), curve.steps[-1] * (1 + TOLERANCE)
    if not first <= step <= last:
        return ""
    return human_return(float(np.interp(step, curve.steps, curve.mean)))


def read_evaluations(agents: Sequence[Path]) -> dict[Path, Evaluation]:
    """Reads the games that shipped agents played. Raises UsageError if one has played none."""
    found = {}
    for agent in agents:
        evaluation = read_evaluation(agent)
        if evaluation is None:
            raise UsageError(f"{agent} has no games: run python tools/model_card.py {agent}")
        found[agent] = evaluation
    return found
