"""Which agents are trained for models/, and how: models/models.toml."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

from torchbeast.core.types import UsageError
from torchbeast.envs.games import parse_games
from torchbeast.polybeast import make_parser

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
PLAN = MODELS / "models.toml"
# Flags that the plan sets from other entries.
RESERVED = ("mode", "savedir", "xpid", "seed", "total_steps")


class Run(NamedTuple):
    """One agent with one seed."""

    agent: str
    seed: int
    steps: int
    """Agent steps to train for."""
    flags: tuple[str, ...]
    """Flags of torchbeast.polybeast, without those of ``RESERVED``."""
    is_first: bool
    """Whether the seed is the first of its agent."""

    @property
    def name(self) -> str:
        """Name of the run's directory while it is trained."""
        return f"{self.agent}-s{self.seed}"

    @property
    def shipped_name(self) -> str:
        """Name of its directory in models/: the agent's, for the first seed."""
        return self.agent if self.is_first else self.name

    def arguments(self, directory: Path) -> list[str]:
        """Returns the command line of the run behind ``python -m torchbeast.polybeast``."""
        return [
            *self.flags,
            f"--seed={self.seed}",
            f"--total_steps={self.steps}",
            f"--savedir={directory}",
            f"--xpid={self.name}",
        ]

    def values(self) -> dict[str, Any]:
        """Returns the values of all flags of the run."""
        return vars(parse(self.arguments(Path())))

    def games(self) -> tuple[str, ...]:
        """Returns the ids of the games."""
        return parse_games(self.values()["env"] or "Pong")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parses a command line of torchbeast.polybeast.

    Raises:
        UsageError: it is not one.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return make_parser().parse_args(arguments)
    except SystemExit as error:
        reason = errors.getvalue().strip().removeprefix("polybeast: error: ")
        raise UsageError(reason.removesuffix(" (see --help)")) from error


def read_plan(path: Path = PLAN) -> list[Run]:
    """Reads the runs in a plan, in its order.

    Raises:
        UsageError: the file cannot be read, or its content is not a plan.
    """
    if sys.version_info < (3, 11):
        raise UsageError("Reading models.toml needs Python 3.11 or newer (module tomllib)")
    import tomllib

    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError are ones.
        raise UsageError(f"{path}: {error}") from error
    try:
        runs = [
            run
            for entry in document["agent"]
            for run in _read_agent(document.get("recipe", {}), entry)
        ]
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise UsageError(f"{path} is no plan: {type(error).__name__}: {error}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    names = [run.name for run in runs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(f"{path} has {repeated[0]} twice")
    return runs


def _read_agent(recipe: dict[str, Any], entry: dict[str, Any]) -> list[Run]:
    """The runs of one agent; raises what :func:`read_plan` reports."""
    unknown = (recipe.keys() - {"flags", "copies", "evaluations"}) | (
        entry.keys() - {"name", "flags", "steps", "seeds"}
    )
    if unknown:
        raise UsageError(f"unknown entry {min(unknown)}")
    name, steps = entry["name"], int(entry["steps"])
    flags = [*shlex.split(recipe.get("flags", "")), *shlex.split(entry.get("flags", ""))]
    for number, flag in (
        ("copies", "save_model_every_nsteps"),
        ("evaluations", "evaluate_every"),
    ):
        if number in recipe:
            flags.append(f"--{flag}={max(1, steps // int(recipe[number]))}")
    reserved = [f for f in flags if f.partition("=")[0].lstrip("-") in RESERVED]
    if reserved:
        raise UsageError(f"{name}: {reserved[0]} is set by name, seeds and steps")
    seeds = [int(seed) for seed in entry["seeds"]]
    runs = [Run(name, seed, steps, tuple(flags), seed == seeds[0]) for seed in seeds]
    for run in runs:
        try:
            run.games()
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
    return runs


def choose(runs: list[Run], names: str | None) -> list[Run]:
    """Chooses runs by the names of agents or runs, separated by commas; all for None.

    Raises:
        UsageError: a name is unknown.
    """
    if names is None:
        return runs
    chosen = names.split(",")
    known = {run.name for run in runs} | {run.agent for run in runs}
    for name in chosen:
        if name not in known:
            raise UsageError(f"There is no agent {name}; there are {', '.join(sorted(known))}")
    return [run for run in runs if run.name in chosen or run.agent in chosen]
