"""What the files of a run say about its progress."""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tools.shipped.plan import MODELS, Run
from torchbeast.core.types import UsageError
from torchbeast.envs.games import parse_games
from torchbeast.records.tables import Table

SLICES = "slices.csv"
# Rows of logs.csv have some hundred characters.
TAIL_BYTES = 65536
RETURN = "mean_episode_return/"
# What must be equal for a shipped agent to be the one that the plan describes.
COMPARED = ("agent_type", "use_popart", "learning_rate", "total_steps", "seed")


class Progress(NamedTuple):
    """How far a run is, by its logs.csv."""

    steps: int = 0
    seconds: float = 0.0
    """Time that it has been trained for."""
    returns: Mapping[str, float] = MappingProxyType({})
    """Mean return of the last hundred full games, by short name of the game."""

    @property
    def steps_per_second(self) -> float | None:
        """Mean speed of the whole training; None before there is one."""
        return self.steps / self.seconds if self.seconds > 0 else None


class Slice(NamedTuple):
    """A slice of time in which a run was trained: a row of slices.csv in its directory."""

    date: str
    first_step: int
    last_step: int
    seconds: float
    cores: int
    """Cores that the run could use."""
    machine: str
    exit_code: int
    """0: it reached its target; 143: stopped at the end of the slice; 137: it had to be killed."""


def read_progress(run: Path) -> Progress:
    """Reads how far the run in a directory is; nothing done where there is no logs.csv."""
    row = last_row(run / "logs.csv")
    if not row:
        return Progress()
    returns = {
        k.removeprefix(RETURN): float(v) for k, v in row.items() if k.startswith(RETURN) and v
    }
    return Progress(int(row["step"]), float(row["seconds"]), returns)


def last_row(path: Path) -> dict[str, str]:
    """Returns the last complete row of a CSV with a header; empty where there is none.

    Only both ends of the file are read.
    """
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        header = file.readline().decode()
        start = file.tell()
        file.seek(0, 2)
        file.seek(max(start, file.tell() - TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    # Behind the last line break is nothing, or a row that is being written. After a seek the first
    # line may be a part of one.
    names = header.strip().split(",")
    for line in reversed(lines[:-1]):
        cells = line.strip().split(",")
        if len(cells) == len(names):
            return dict(zip(names, cells, strict=True))
    return {}


def check_files(agent: Path) -> None:
    """Raises UsageError if a run or a shipped agent lacks its checkpoint or its records."""
    for name in ("model.tar", "meta.json", "logs.csv"):
        if not (agent / name).exists():
            raise UsageError(f"{agent} has no {name}")
    if not last_row(agent / "logs.csv"):
        raise UsageError(f"{agent / 'logs.csv'} has no records yet")


def read_slices(run: Path) -> list[Slice]:
    """Reads the slices of time in which the run in a directory was trained."""
    try:
        rows = Table(run / SLICES).rows
    except (OSError, UsageError):  # There is none, or it is damaged: the run itself is not.
        return []
    slices = []
    for row in rows:
        with contextlib.suppress(KeyError, ValueError):  # A damaged row.
            slices.append(
                Slice(
                    row["date"],
                    int(row["first_step"]),
                    int(row["last_step"]),
                    float(row["seconds"]),
                    int(row["cores"]),
                    row["machine"],
                    int(row["exit_code"]),
                )
            )
    return slices


def append_slice(run: Path, done: Slice) -> None:
    """Adds a row to the run's slices.csv. A damaged table is put aside."""
    path = run / SLICES
    run.mkdir(parents=True, exist_ok=True)
    header = ",".join(Slice._fields)
    if path.exists():
        with open(path, "rb") as file:
            is_damaged = file.readline() != f"{header}\n".encode()
        if is_damaged:
            path.replace(path.with_suffix(".damaged"))
    is_new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(Slice._fields)
        writer.writerow(done)


def now() -> str:
    """Returns the present time in UTC, in whole seconds."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def machine() -> str:
    """Returns the name of this machine's processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass  # Not Linux.
    return platform.processor() or platform.machine()


def is_finished(run: Run, directory: Path) -> bool:
    """Whether a run has reached its target and ended as it should: nothing is left to train."""
    return is_done(run, directory) or is_shipped(run)


def is_done(run: Run, directory: Path) -> bool:
    """Whether a run has reached its target in a directory."""
    slices = read_slices(directory / run.name)
    return bool(slices) and slices[-1].exit_code == 0 and slices[-1].last_step >= run.steps


def is_shipped(run: Run, models: Path = MODELS) -> bool:
    """Whether models/ has this agent already, trained to its target."""
    path = models / run.shipped_name
    try:
        args: dict[str, Any] = json.loads((path / "meta.json").read_text())["args"]
    except (OSError, ValueError, KeyError):
        return False
    if read_progress(path).steps < run.steps:
        return False
    values = run.values()
    games = parse_games(args.get("env") or "Pong")
    return games == run.games() and all(args.get(name) == values[name] for name in COMPARED)
