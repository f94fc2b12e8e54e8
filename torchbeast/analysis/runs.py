"""The records of training runs, as arrays."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchbeast.core.types import UsageError
from torchbeast.records.checkpoint import read_meta


class Curve(NamedTuple):
    """One game of one run, or of a reference; arrays ``[N]``. ``hours`` is None if unknown."""

    name: str
    steps: np.ndarray  # Agent steps of the run, in all its games together.
    hours: np.ndarray | None
    mean: np.ndarray  # Full-game returns.
    std: np.ndarray
    game_steps: np.ndarray | None = None  # Agent steps in this game; None if unknown.


class Moments(NamedTuple):
    """PopArt's statistics of one game of one run; arrays ``[N]``."""

    name: str
    steps: np.ndarray
    mu: np.ndarray
    sigma: np.ndarray


class RunRecords:
    """A run's meta.json, logs.csv and scores.csv. Raises UsageError if logs.csv cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        try:
            with open(path / "logs.csv", newline="") as file:
                reader = csv.DictReader(file)
                rows = list(reader)
                self._fields = reader.fieldnames or []
        except OSError as error:
            raise UsageError(f"{path} is no run: {error.strerror}") from error
        if not rows or "step" not in self._fields:
            raise UsageError(f"{path / 'logs.csv'} has no records yet")
        self._rows = rows

    @property
    def games(self) -> list[str]:
        prefix = "mean_episode_return/"
        return [f.removeprefix(prefix) for f in self._fields if f.startswith(prefix)]

    @functools.cached_property
    def flags(self) -> dict[str, Any]:
        """The flags that the run was started with; empty where they are unknown."""
        flags: dict[str, Any] = read_meta(self.path / "model.tar").get("args", {})
        return flags

    @property
    def has_scores(self) -> bool:
        """Whether the run was evaluated while it trained."""
        return bool(self._score_rows)

    @functools.cached_property
    def _score_rows(self) -> list[dict[str, str]]:
        try:
            with open(self.path / "scores.csv", newline="") as file:
                # The last row may be half a one.
                return [row for row in csv.DictReader(file) if None not in row.values()]
        except FileNotFoundError:
            return []

    def score_curve(self, game: str, policy: str) -> Curve:
        """The game's scores under one policy, ``greedy`` or ``sampled``, from scores.csv."""
        rows = [r for r in self._score_rows if (r["game"], r["policy"]) == (game, policy)]
        columns = ("step", "seconds", "mean", "std")
        steps, seconds, mean, std = (np.array([float(r[c]) for r in rows]) for c in columns)
        return Curve(self.name, steps, seconds / 3600, mean, std)

    def _column(self, name: str) -> np.ndarray:
        return np.array([float(row.get(name) or "nan") for row in self._rows])

    def curve(self, game: str) -> Curve:
        """Mean return of the last hundred full games of training, from the first full game on."""
        mean = self._column(f"mean_episode_return/{game}")
        known = np.isfinite(mean)
        std = np.nan_to_num(self._column(f"std_episode_return/{game}"))
        has_game_steps = f"steps/{game}" in self._fields
        return Curve(
            self.name,
            self._column("step")[known],
            self._column("seconds")[known] / 3600,
            mean[known],
            std[known],
            self._column(f"steps/{game}")[known] if has_game_steps else None,
        )

    def gradient_norms(self) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
        """Steps and, by parameter, norms of gradients; None if they were not tracked."""
        path = self.path / "gradients.csv"
        if not path.exists():
            return None
        with open(path, newline="") as file:
            rows = [row for row in csv.DictReader(file) if None not in row.values()]
        names = [n.removesuffix("/norm") for n in (rows[0] if rows else {}) if n.endswith("/norm")]
        norms = {n: np.array([float(row[f"{n}/norm"]) for row in rows]) for n in names}
        return np.array([float(row["step"]) for row in rows]), norms

    def moments(self, game: str) -> Moments | None:
        """None without PopArt."""
        if f"mu/{game}" not in self._fields:
            return None
        columns = (self._column(name) for name in ("step", f"mu/{game}", f"sigma/{game}"))
        return Moments(self.name, *columns)


def find_runs(paths: list[Path]) -> list[RunRecords]:
    """The runs that ``paths`` are, or contain. Raises UsageError if there is none."""
    directories: list[Path] = []
    for path in paths:
        if (path / "logs.csv").exists():
            directories.append(path)
            continue
        inside = [p.parent for p in sorted(path.glob("*/logs.csv")) if not p.parent.is_symlink()]
        if not inside:
            raise UsageError(f"{path} is no run, and no directory of runs")
        directories += inside
    # A run may be named twice, as itself and by its directory.
    return [RunRecords(d) for d in {d.resolve(): d for d in directories}.values()]


def read_reference(path: Path) -> dict[str, Curve]:
    """Curves to compare with, by game, from a CSV.

    Its columns are ``env`` or ``game``, ``agent_steps`` or ``step``, one that starts with
    ``return_mean`` and, if known, ``return_std``. Raises UsageError.
    """
    from torchbeast.envs.games import short_name

    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        fields = list(rows[0])
        game = next(f for f in fields if f in ("env", "game"))
        step = next(f for f in fields if f in ("agent_steps", "step"))
        mean = next(f for f in fields if f.startswith("return_mean"))
        points: dict[str, list[tuple[float, float, float]]] = {}
        for row in rows:
            point = (float(row[step]), float(row[mean]), float(row.get("return_std") or 0))
            points.setdefault(short_name(row[game]), []).append(point)
    except OSError as error:
        raise UsageError(f"--reference {path}: {error.strerror}") from error
    except (IndexError, StopIteration, ValueError) as error:
        raise UsageError(
            f"--reference {path}: needs columns env, agent_steps and return_mean"
        ) from error
    curves = {}
    for name, values in points.items():
        steps, means, stds = np.array(values).T
        curves[name] = Curve(path.stem, steps, None, means, stds)
    return curves
