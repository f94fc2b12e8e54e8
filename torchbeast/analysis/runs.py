"""The records of training runs, as arrays."""

from __future__ import annotations

import csv
import functools
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.records.csv_tables import Table
from torchbeast.records.run_files import LATEST
from torchbeast.records.scores import SCORE_FIELDS

log = logging.getLogger("torchbeast")


class Curve(NamedTuple):
    """One game of one run, or of a reference; arrays ``[N]``. ``hours`` is None if unknown."""

    name: str
    steps: np.ndarray  # Agent steps of the run, in all its games together.
    hours: np.ndarray | None
    mean: np.ndarray  # Full-game returns.
    std: np.ndarray
    game_steps: np.ndarray | None = None  # Agent steps in this game; None if unknown.

    def position(self, unit: str) -> np.ndarray | None:
        """Returns the curve's ``steps``, ``game_steps`` or ``hours``, ``[N]``; None if unknown."""
        return getattr(self, unit)


class NoRecordsError(UsageError):
    """A run has not written any record yet."""


class RunRecords:
    """A run's meta.json, logs.csv and scores.csv.

    Args:
        name: what to call it; by default the name of its directory.

    Raises:
        UsageError: logs.csv cannot be read.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.is_named = name is not None
        self.name = name or path.resolve().name
        try:
            self._logs = Table(path / "logs.csv")
        except OSError as error:
            raise UsageError(f"{path} is not a run: {error.strerror}") from error
        if not self._logs.rows or "step" not in self._logs.fields:
            raise NoRecordsError(f"{path / 'logs.csv'} has no records yet")

    @property
    def games(self) -> list[str]:
        """The run's games, by short name."""
        prefix = "mean_episode_return/"
        return [f.removeprefix(prefix) for f in self._logs.fields if f.startswith(prefix)]

    def length(self, unit: str) -> float:
        """Returns the ``steps`` or ``hours`` of the run's last record."""
        last = self._logs.rows[-1:]  # Not whole columns: a figure asks at each of its points.
        if unit == "steps":
            return float(self._logs.column("step", last)[0])
        return float(self._logs.column("seconds", last)[0]) / 3600

    @functools.cached_property
    def _meta(self) -> dict[str, Any]:
        from torchbeast.records.checkpoint import read_meta  # With torch, which --help needs not.

        return read_meta(self.path / "model.tar")

    @property
    def flags(self) -> dict[str, Any]:
        """The flags that the run was started with; empty where they are unknown."""
        return self._meta.get("args", {})

    @property
    def seed(self) -> int | None:
        """The run's seed; None where it is unknown."""
        return self._meta.get("seed", self.flags.get("seed"))

    def env_id(self, game: str) -> str:
        """Returns the id of the environment that has a short name; the name where it is unknown."""
        ids = (str(env_id) for env_id in self._meta.get("tasks", ()))
        return next((env_id for env_id in ids if short_name(env_id) == game), game)

    @property
    def has_scores(self) -> bool:
        """Whether the run was evaluated while it trained."""
        return self._scores is not None and bool(self._scores.rows)

    @functools.cached_property
    def _scores(self) -> Table | None:
        path = self.path / "scores.csv"
        if not path.exists():
            return None
        table = Table(path)
        if table.fields != SCORE_FIELDS:
            raise UsageError(f"{path} is not what --evaluate_every writes")
        return table

    def score_curve(self, game: str) -> Curve:
        """Returns the game's scores with sampled actions, from scores.csv; there are some if
        :attr:`has_scores`.
        """
        table = self._scores
        assert table is not None
        rows = [row for row in table.rows if (row["game"], row["policy"]) == (game, "sampled")]
        columns = ("step", "seconds", "mean", "std")
        steps, seconds, mean, std = (table.column(name, rows) for name in columns)
        return Curve(self.name, steps, seconds / 3600, mean, std)

    def curve(self, game: str) -> Curve:
        """Returns mean return of the last hundred full games of training, from the first full game
        on.
        """
        logs = self._logs
        mean = logs.column(f"mean_episode_return/{game}")
        known = np.isfinite(mean)
        std, game_steps = f"std_episode_return/{game}", f"steps/{game}"
        return Curve(
            self.name,
            logs.column("step")[known],
            logs.column("seconds")[known] / 3600,
            mean[known],
            np.nan_to_num(logs.column(std))[known] if std in logs.fields else 0 * mean[known],
            logs.column(game_steps)[known] if game_steps in logs.fields else None,
        )

    def moments(self, game: str) -> Curve | None:
        """Returns PopArt's mu and sigma of a game as mean and deviation; None without PopArt."""
        if f"mu/{game}" not in self._logs.fields:
            return None
        steps, mu, sigma = map(self._logs.column, ("step", f"mu/{game}", f"sigma/{game}"))
        return Curve(self.name, steps, None, mu, sigma)


def distinct_ends(paths: Sequence[Path]) -> list[str]:
    """Returns as many of the last names of each path as tell it from the others.

    >>> distinct_ends([Path("/old/Pong"), Path("/new/Pong"), Path("/new/AirRaid")])
    ['old/Pong', 'new/Pong', 'AirRaid']
    """
    all_parts = [path.resolve().parts for path in paths]

    def end(parts: tuple[str, ...]) -> str:
        for count in range(1, len(parts)):
            if sum(other[-count:] == parts[-count:] for other in all_parts) == 1:
                return "/".join(parts[-count:])
        return str(Path(*parts))

    return [end(parts) for parts in all_parts]


def rename_apart(runs: Sequence[RunRecords]) -> None:
    """Renames runs that are called as their directories, so that no two names are equal."""
    unnamed = [run for run in runs if not run.is_named]
    for run, name in zip(unnamed, distinct_ends([run.path for run in unnamed]), strict=True):
        run.name = name


def find_runs(paths: Sequence[Path], name: str | None = None) -> list[RunRecords]:
    """Finds the runs that ``paths`` are, or contain.

    A run inside a directory of runs that has no records yet is named in a warning and left out.

    Args:
        paths: runs, or directories of runs.
        name: what to call all of them; by default each has the name of its directory, after that of
            the directory's parent where two would have the same.

    Raises:
        UsageError: there is none.
    """
    directories: list[Path] = []
    named = [path for path in paths if (path / "logs.csv").exists()]
    for path in paths:
        if path in named:
            directories.append(path)
            continue
        inside = [p.parent for p in sorted(path.glob("*/logs.csv")) if p.parent.name != LATEST]
        if not inside:
            empty = "it has no logs.csv, and contains no run"
            reason = empty if path.is_dir() else "no such directory"
            raise UsageError(f"{path} is not a run: {reason}")
        directories += inside
    # A run may be named twice, as itself and by its directory.
    runs, missing = [], []
    for directory in {d.resolve(): d for d in directories}.values():
        try:
            runs.append(RunRecords(directory, name))
        except NoRecordsError as error:
            if directory in named:
                raise
            log.warning("%s is left out: it has no records yet", directory)
            missing.append(error)
    if missing and not runs:
        raise missing[-1]
    rename_apart(runs)
    return runs


def read_references(paths: Sequence[Path]) -> list[dict[str, Curve]]:
    """Reads files of :func:`read_reference`, and names their curves apart. Raises UsageError."""
    unique = list({path.resolve(): path for path in paths}.values())
    names = distinct_ends(unique)
    short = [os.path.splitext(name)[0] for name in names]
    chosen = short if len(set(short)) == len(short) else names
    return [read_reference(path, name) for path, name in zip(unique, chosen, strict=True)]


def read_reference(path: Path, shown_as: str | None = None) -> dict[str, Curve]:
    """Reads curves to compare with, by game, from a CSV.

    Its columns are ``env`` or ``game``, ``agent_steps`` or ``step``, one that starts with
    ``return_mean`` and, if known, ``return_std``. Where a lost life counts as the end of an
    episode, as in 2019, ``lives`` is the number of lives of a game: returns are multiplied by it.
    A row with an empty one is left out, because its return cannot be compared with that of a full
    game. Raises UsageError.
    """
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        fields = list(rows[0])
        game = next(f for f in fields if f in ("env", "game"))
        step = next(f for f in fields if f in ("agent_steps", "step"))
        mean = next(f for f in fields if f.startswith("return_mean"))
        points: dict[str, list[tuple[float, float, float]]] = {}
        for row in rows:
            if row.get("lives") == "":
                continue
            lives = float(row.get("lives") or 1)
            # The lives of a game are taken as independent.
            std = lives**0.5 * float(row.get("return_std") or 0)
            points.setdefault(short_name(row[game]), []).append(
                (float(row[step]), lives * float(row[mean]), std)
            )
    except OSError as error:
        raise UsageError(f"--reference {path}: {error.strerror}") from error
    except (AttributeError, IndexError, StopIteration, ValueError, TypeError, csv.Error) as error:
        raise UsageError(
            f"--reference {path}: needs columns env, agent_steps and return_mean"
        ) from error
    curves = {}
    for name, values in points.items():
        steps, means, stds = np.array(sorted(values)).T
        curves[name] = Curve(shown_as or path.stem, steps, None, means, stds)
    return curves
