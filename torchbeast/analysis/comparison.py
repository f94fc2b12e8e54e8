"""Filter distances between agents over training: which pairs, computed in parallel, on disk."""

from __future__ import annotations

import concurrent.futures
import csv
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from torchbeast.analysis import filters
from torchbeast.analysis.agents import (
    MULTI,
    MULTIPOP,
    SINGLE,
    UNTRAINED,
    RunAgent,
    Snapshot,
    SnapshotReader,
    spread,
)
from torchbeast.analysis.filters import Distance
from torchbeast.analysis.progress import track
from torchbeast.analysis.results import make_directory, write_arrays, write_table
from torchbeast.core.types import UsageError


class Pair(NamedTuple):
    """Two checkpoints to compare."""

    comparison: str
    a: Snapshot
    b: Snapshot


# From a pair to its layers' distances, by game and layer; "" where no game matters. A layer that
# cannot be compared is left out.
Measure = Callable[[Pair], dict[str, dict[str, Distance]]]


class Row(NamedTuple):
    """One layer of one pair under one metric; of ``cka`` the three numbers are the same."""

    comparison: str
    agent_a: str
    agent_b: str
    step_a: int
    step_b: int
    layer: str
    match: str
    game: str  # Whose frames the agents saw, of ``cka``; else empty.
    sum: float
    mean: float
    relative: float


def agent_pairs(
    agents: list[RunAgent], comparison: str, only: str | None = None
) -> list[tuple[RunAgent, RunAgent]]:
    """Lists the agents that ``comparison`` compares; with ``only``, single_single with this one
    alone.
    """
    kinds = (SINGLE, MULTI, MULTIPOP, UNTRAINED)
    by_kind = {k: [a for a in agents if a.kind == k] for k in kinds}
    trained = [agent for agent in agents if agent.kind != UNTRAINED]
    if comparison == "untrained":
        return list(itertools.combinations(by_kind[UNTRAINED], 2))
    if comparison == "same_games":
        pairs = itertools.combinations(trained, 2)
        return [(a, b) for a, b in pairs if a.kind == b.kind and a.games and a.games == b.games]
    if comparison == "time_steps":
        return [(agent, agent) for agent in trained]
    if comparison == "single_single":
        pairs = itertools.combinations(by_kind[SINGLE], 2)
        return [p for p in pairs if only is None or only in (p[0].name, p[1].name)]
    first, second = comparison.split("_")
    return list(itertools.product(by_kind[first], by_kind[second]))


def choose_steps(a: RunAgent, b: RunAgent, count: int, match_steps: bool) -> list[tuple[int, int]]:
    """Returns the steps of ``a`` and ``b`` to compare: as far in training each, or at equal
    steps.
    """
    if a is b:
        steps = spread(list(a.checkpoints), count)
        return list(itertools.pairwise(steps))
    if not match_steps:
        fewer, more = (a, b) if len(a.checkpoints) <= len(b.checkpoints) else (b, a)
        end, other_end = max(fewer.checkpoints), max(more.checkpoints)
        pairs = []
        for step in spread(list(fewer.checkpoints), count):
            # Where steps are unknown there is one checkpoint, the last one.
            wanted = other_end * step / end if end else other_end
            pairs.append((step, min(more.checkpoints, key=lambda x: abs(x - wanted))))
        return pairs if fewer is a else [(one, other) for other, one in pairs]
    end = min(max(a.checkpoints), max(b.checkpoints))
    steps = spread([step for step in a.checkpoints if step <= end] or list(a.checkpoints), count)
    return [(step, min(b.checkpoints, key=lambda other: abs(other - step))) for step in steps]


def have_seeds(a: RunAgent, b: RunAgent, wanted: str) -> bool:
    """Whether the seeds of two agents are as ``wanted``: ``same``, ``other`` or ``all``.

    Untrained networks, and an agent beside itself, are controls for either.
    """
    if a is b or a.kind == UNTRAINED:
        return True
    are_same = a.seed is not None and a.seed == b.seed
    return wanted == "all" or are_same == (wanted == "same")


def make_pairs(
    agents: list[RunAgent],
    comparisons: Iterable[str],
    count: int,
    *,
    match_steps: bool = False,
    only: str | None = None,
    seeds: str = "all",
) -> list[Pair]:
    """Lists all pairs of checkpoints. Raises UsageError if there is none.

    Args:
        agents: to choose from.
        comparisons: which kinds of agents are compared.
        count: checkpoints of each agent at most.
        match_steps: whether checkpoints of equal steps are compared.
        only: see :func:`agent_pairs`.
        seeds: see :func:`have_seeds`. Agents of one seed began with the same weights.
    """
    comparisons = tuple(comparisons)
    singles = [agent.name for agent in agents if agent.kind == SINGLE]
    if "single_single" in comparisons and only is not None and only not in singles:
        names = ", ".join(singles) or "none"
        raise UsageError(f"--comp_single_single_model {only}: agents of one game are {names}")
    reader = SnapshotReader()
    pairs = []
    for comparison in comparisons:
        for one, other in agent_pairs(agents, comparison, only):
            if not have_seeds(one, other, seeds):
                continue
            for step_a, step_b in choose_steps(one, other, count, match_steps):
                a, b = reader.read(one, step_a), reader.read(other, step_b)
                if a is not None and b is not None:
                    pairs.append(Pair(comparison, a, b))
    if not pairs:
        kinds = ", ".join(f"{agent.name} ({agent.kind})" for agent in agents)
        raise UsageError(f"There is nothing to compare among {kinds}")
    return pairs


def in_each_layer(function: Callable[[np.ndarray, np.ndarray], Distance]) -> Measure:
    """Makes a measure that compares each layer separately."""

    def measure(pair: Pair) -> dict[str, dict[str, Distance]]:
        a, b = filters.comparable(pair.a.weights, pair.b.weights)
        return {"": {name: function(a[name], b[name]) for name in filters.LAYER_NAMES if name in a}}

    return measure


def carried(pair: Pair) -> dict[str, dict[str, Distance]]:
    """Measures the layers of a pair with permutations carried through the network."""
    return {"": filters.carried(*filters.comparable(pair.a.weights, pair.b.weights))}


def of_kernels(function: Callable[[np.ndarray, np.ndarray], Distance]) -> Measure:
    """Makes a measure that compares each kernel of a layer separately, as in 2019."""
    return in_each_layer(lambda a, b: function(filters.kernels(a), filters.kernels(b)))


MEASURES: dict[str, Measure] = {
    "default": in_each_layer(filters.in_order),
    "optimal": in_each_layer(filters.optimal),
    "rebasin": carried,
    "kernels": of_kernels(filters.in_order),
    "optimal_kernels": of_kernels(filters.optimal),
}
# Measures that look for the best way to pair filters.
MATCHED = ("optimal", "rebasin", "optimal_kernels")


def compare(pair: Pair, measures: dict[str, Measure]) -> list[Row]:
    """Measures all layers of a pair with all ``measures``."""
    key = (pair.comparison, pair.a.agent, pair.b.agent, pair.a.step, pair.b.step)
    return [
        Row(*key, layer, name, game, *distance)
        for name, measure in measures.items()
        for game, distances in measure(pair).items()
        for layer, distance in distances.items()
    ]


def compare_all(pairs: list[Pair], measures: dict[str, Measure], workers: int) -> list[Row]:
    """Measures all pairs in parallel threads; NumPy and SciPy release the interpreter's lock."""
    # The workers are the parallelism: further BLAS threads would wait for each other.
    with (
        threadpool_limits(1, user_api="blas"),
        concurrent.futures.ThreadPoolExecutor(workers) as executor,
    ):
        results = executor.map(lambda pair: compare(pair, measures), pairs)
        return [row for rows in track(results, total=len(pairs), unit="pairs") for row in rows]


def save(rows: list[Row], directory: Path) -> list[Path]:
    """Writes ``filter_comp.csv``, a row per layer, and ``filter_comp.npz`` with its columns."""
    make_directory(directory)
    table, arrays = directory / "filter_comp.csv", directory / "filter_comp.npz"
    write_table(table, Row._fields, rows)
    columns: dict[str, Any] = {n: np.array([getattr(r, n) for r in rows]) for n in Row._fields}
    write_arrays(arrays, columns)
    return [table, arrays]


def load(directory: Path) -> list[Row]:
    """Loads what :func:`save` wrote. Raises UsageError."""
    path = directory / "filter_comp.csv"
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            Row(
                row["comparison"],
                row["agent_a"],
                row["agent_b"],
                int(row["step_a"]),
                int(row["step_b"]),
                row["layer"],
                row["match"],
                row["game"],
                float(row["sum"]),
                float(row["mean"]),
                float(row["relative"]),
            )
            for row in rows
        ]
    except OSError as error:
        raise UsageError(f"No {path}: run --mode filter_comp first") from error
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise UsageError(f"{path} is not what --mode filter_comp writes") from error
