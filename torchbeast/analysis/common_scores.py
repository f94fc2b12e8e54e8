"""Scores of several runs in the same games, at the same steps or hours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchbeast.analysis.groups import Group
from torchbeast.analysis.runs import Curve, RunRecords
from torchbeast.core.types import UsageError
from torchbeast.envs.human_scores import human_normalized

# Evaluations come at the first learner step that reaches a multiple of steps: records this much
# behind a point, relative to it, count for it.
TOLERANCE = 0.01


class CommonScores(NamedTuple):
    """Groups of runs, and where they are compared."""

    groups: list[Group]
    games: list[str]
    """Games that every run has."""
    table: str
    """Where returns come from: scores.csv or logs.csv."""
    unit: str
    """steps or hours."""
    curves: dict[tuple[Path, str], Curve]
    """By the run's directory and the game."""
    env_ids: dict[str, str]
    """By game: an environment of the user's may be called as a game that has a human score."""

    @property
    def runs(self) -> list[RunRecords]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group.runs]

    def position(self, curve: Curve) -> np.ndarray:
        """Returns a curve's steps or hours, ``[N]``."""
        x = curve.position(self.unit)
        assert x is not None
        return x

    def common_range(self, groups: Sequence[Group]) -> tuple[float, float]:
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

    def sample_points(self, group: Group, count: int) -> np.ndarray:
        """Returns the steps or hours of a group's records in its :meth:`common_range`, ``[N]``: at
        most ``count``, evenly spread; none if it has no score.
        """
        curves = [self.curves[run.path, game] for run in group.runs for game in self.games]
        points = np.unique(np.concatenate([self.position(curve) for curve in curves]))
        if not len(points):
            return points
        first, last = self.common_range([group])
        points = points[(points >= first) & (points <= last)]
        return points[np.linspace(0, len(points) - 1, min(count, len(points))).round().astype(int)]

    def returns_at(self, group: Group, game: str, point: float) -> np.ndarray:
        """Returns of a group's runs in a game at ``point``, ``[S]``: the last records until then.

        Runs without a record until then, and those that ended before, are left out.
        """
        values = (self._last_return(run, game, point) for run in group.runs)
        return np.array([value for value in values if value is not None])

    def _last_return(self, run: RunRecords, game: str, point: float) -> float | None:
        curve = self.curves[run.path, game]
        count = np.searchsorted(self.position(curve), point * (1 + TOLERANCE), side="right")
        return float(curve.mean[count - 1]) if count and not self.has_ended(run, point) else None

    def incomplete(self, point: float) -> list[RunRecords]:
        """Returns the runs without a return of some game at ``point``."""
        return [
            run
            for run in self.runs
            if any(self._last_return(run, game, point) is None for game in self.games)
        ]

    def has_ended(self, run: RunRecords, point: float) -> bool:
        """Whether a run ended before ``point``."""
        positions = (self.position(self.curves[run.path, game]) for game in self.games)
        # The final agent is evaluated after the last row of logs.csv.
        last = max([run.length(self.unit), *(x[-1] for x in positions if len(x))])
        return bool(last * (1 + TOLERANCE) < point)

    def normalized(self, group: Group, games: Sequence[str], point: float) -> np.ndarray:
        """Returns human-normalised returns at ``point``, ``[games, S]``.

        Runs that lack one of these games are left out, so that a place is one seed in all games.
        """
        returns = np.array(
            [[self._last_return(run, game, point) for game in games] for run in group.runs], float
        )
        complete = returns[~np.isnan(returns).any(axis=1)]
        return np.array(
            [
                [human_normalized(self.env_ids[game], x) for x in of_game]
                for game, of_game in zip(games, complete.T, strict=True)
            ]
        )

    def normalized_games(self, point: float) -> list[str]:
        """Returns the games with a human score in which every group has a return at ``point``.

        Groups without any return at that point do not count.
        """
        known = [
            group
            for group in self.groups
            if any(len(self.returns_at(group, game, point)) for game in self.games)
        ]
        return [
            game
            for game in self.games
            if human_normalized(self.env_ids[game], 0.0) is not None
            and all(len(self.returns_at(group, game, point)) for group in known)
        ]


def find_common(groups: list[Group], unit: str, table: str | None = None) -> CommonScores:
    """Finds what groups have in common.

    Args:
        unit: compare at the same ``steps`` or ``hours``.
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
    curve = RunRecords.score_curve if table == "scores.csv" else RunRecords.curve
    curves = {(run.path, game): curve(run, game) for run in runs for game in games}
    env_ids = {}
    for game in games:
        ids = [run.env_id(game) for run in runs]
        # Where one run's environment has no human score, the game has none.
        without = [env_id for env_id in ids if human_normalized(env_id, 0.0) is None]
        env_ids[game] = (without or ids)[0]
    return CommonScores(groups, games, table, unit, curves, env_ids)
