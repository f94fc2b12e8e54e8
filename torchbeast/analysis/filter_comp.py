"""``filter_comp``: distances between the filters of trained agents over training, with controls."""

from __future__ import annotations

import concurrent.futures
import csv
import functools
import io
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
from threadpoolctl import threadpool_limits

from torchbeast.analysis import filters
from torchbeast.analysis.filter_agents import (
    MULTI,
    MULTIPOP,
    SINGLE,
    UNTRAINED,
    AgentCheckpoint,
    RunAgent,
    read_checkpoint,
)
from torchbeast.analysis.filters import Distance
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.records import run_files
from torchbeast.runtime.progress_bar import track


def spread(steps: list[int], count: int) -> list[int]:
    """Chooses ``count`` of ``steps``, evenly spread, the last one always among them.

    >>> spread([10, 20, 30, 40, 50], 3), spread([10, 20], 3), spread([10, 20], 1)
    ([10, 30, 50], [10, 20], [20])
    """
    count = min(count, len(steps))
    if count == 1:
        return steps[-1:]
    return [steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count)]


class Pair(NamedTuple):
    """Two checkpoints to compare."""

    comparison: str
    a: AgentCheckpoint
    b: AgentCheckpoint
    seeds: str = ""
    """As of :func:`compare_seeds`."""


# From a pair to its layers' distances, by name. A layer that cannot be compared is left out.
Compare = Callable[[Pair], dict[str, Distance]]


class Measure(NamedTuple):
    """A way to compare agents."""

    compare: Compare
    game: str = ""
    """The game whose frames the agents see; empty if they see none."""


class Row(NamedTuple):
    """One layer of one pair under one metric; of ``cka`` the three numbers are the same."""

    comparison: str
    agent_a: str
    agent_b: str
    step_a: int
    step_b: int
    layer: str
    match: str
    game: str  # That of the measure.
    seeds: str  # As of the pair.
    sum: float
    mean: float
    relative: float


def agent_pairs(
    agents: list[RunAgent], comparison: str, only: str | None = None
) -> list[tuple[RunAgent, RunAgent]]:
    """Lists the pairs of agents that a comparison compares.

    Args:
        comparison: a value of ``--comp_between``.
        only: the name of an agent that each pair of single_single must have; None for every pair.
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
    """Chooses the checkpoints of two agents that are compared.

    Args:
        b: may be ``a``: its checkpoints are compared with the next ones.
        count: checkpoints of each agent at most; of one agent and itself at least two.
        match_steps: whether the steps are as near as possible; else the shares of the runs are.

    Returns:
        Pairs of a step of ``a`` and a step of ``b``.
    """
    if a is b:
        return list(itertools.pairwise(spread(list(a.checkpoints), max(count, 2))))
    if len(a.checkpoints) > len(b.checkpoints):
        return [(one, other) for other, one in choose_steps(b, a, count, match_steps)]
    end_a, end_b = max(a.checkpoints), max(b.checkpoints)
    if match_steps:
        steps = [step for step in a.checkpoints if step <= end_b] or list(a.checkpoints)
        return [(step, _nearest(b, step)) for step in spread(steps, count)]
    # Where steps are unknown there is one checkpoint, the last one.
    return [
        (step, _nearest(b, end_b * step / end_a if end_a else end_b))
        for step in spread(list(a.checkpoints), count)
    ]


def _nearest(agent: RunAgent, step: float) -> int:
    return min(agent.checkpoints, key=lambda other: abs(other - step))


def compare_seeds(a: RunAgent, b: RunAgent) -> str:
    """Returns ``same`` or ``other`` for the seeds of two agents.

    It is empty for untrained networks, and for an agent beside itself.
    """
    if a is b or a.kind == UNTRAINED:
        return ""
    return "same" if a.seed is not None and a.seed == b.seed else "other"


def make_pairs(
    agents: list[RunAgent],
    comparisons: Iterable[str],
    count: int,
    *,
    match_steps: bool = False,
    only: str | None = None,
) -> list[Pair]:
    """Lists all pairs of checkpoints. Raises UsageError if there is none.

    Args:
        comparisons: which kinds of agents are compared.
        count: checkpoints of each agent at most.
        match_steps: whether checkpoints of equal steps are compared.
        only: see :func:`agent_pairs`.
    """
    comparisons = tuple(comparisons)
    singles = [agent.name for agent in agents if agent.kind == SINGLE]
    if "single_single" in comparisons and only is not None and only not in singles:
        names = ", ".join(singles) or "none"
        raise UsageError(f"--comp_single_single_model {only}: single-task agents are {names}")
    read = functools.cache(read_checkpoint)  # Each once.
    pairs = []
    for comparison in comparisons:
        for one, other in agent_pairs(agents, comparison, only):
            for step_a, step_b in choose_steps(one, other, count, match_steps):
                a = read(one.name, step_a, one.checkpoints[step_a])
                b = read(other.name, step_b, other.checkpoints[step_b])
                if a is not None and b is not None:
                    pairs.append(Pair(comparison, a, b, compare_seeds(one, other)))
    if not pairs:
        kinds = ", ".join(f"{agent.name} ({agent.kind})" for agent in agents)
        raise UsageError(f"There is nothing to compare among {kinds}")
    return pairs


def in_each_layer(function: Callable[[np.ndarray, np.ndarray], Distance]) -> Compare:
    """Makes a function that compares each layer separately."""

    def compare_layers(pair: Pair) -> dict[str, Distance]:
        a, b = filters.comparable(pair.a.weights, pair.b.weights)
        return {name: function(a[name], b[name]) for name in filters.LAYER_NAMES if name in a}

    return compare_layers


def of_kernels(function: Callable[[np.ndarray, np.ndarray], Distance]) -> Compare:
    """Makes a function that compares each kernel of a layer separately, as in 2019."""
    return in_each_layer(lambda a, b: function(filters.kernels(a), filters.kernels(b)))


MEASURES: dict[str, Measure] = {
    "default": Measure(in_each_layer(filters.in_order)),
    "optimal": Measure(in_each_layer(filters.optimal)),
    "rebasin": Measure(
        lambda pair: filters.carried(*filters.comparable(pair.a.weights, pair.b.weights))
    ),
    "kernels": Measure(of_kernels(filters.in_order)),
    "optimal_kernels": Measure(of_kernels(filters.optimal)),
}
# Measures that look for the best way to pair filters.
MATCHED = ("optimal", "rebasin", "optimal_kernels")


def compare(pair: Pair, measures: dict[str, Measure]) -> list[Row]:
    """Measures all layers of a pair with all ``measures``."""
    key = (pair.comparison, pair.a.agent, pair.b.agent, pair.a.step, pair.b.step)
    return [
        Row(*key, layer, name, short_name(measure.game), pair.seeds, *distance)
        for name, measure in measures.items()
        for layer, distance in measure.compare(pair).items()
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


def save(rows: list[Row], directory: Path) -> Path:
    """Writes ``filter_comp.csv``, a row per layer, or leaves what was there."""
    path = directory / "filter_comp.csv"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([Row._fields, *rows])
    run_files.replace_file(path, text.getvalue().encode())
    return path


def load(directory: Path) -> list[Row]:
    """Loads what :func:`save` wrote. Raises UsageError."""
    path, kinds = directory / "filter_comp.csv", get_type_hints(Row)
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise UsageError(f"{path} has no rows: --mode filter_comp could compare no layer")
        return [Row(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows]
    except OSError as error:
        raise UsageError(f"No {path}: run --mode filter_comp first") from error
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise UsageError(f"{path} is not what --mode filter_comp writes") from error
