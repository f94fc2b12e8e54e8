"""Which runs are one experiment, and in which flags experiments differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from torchbeast.analysis.runs import RunRecords
from torchbeast.cli.flags import PLAYING_FLAGS
from torchbeast.cli.training_flags import resolve_flags

# Flags that say where a run is written, how it is watched and where its servers are, not what it
# learns; the preset, which is the values of others; and those of other modes, which every command
# line has.
IGNORED_FLAGS = {
    *("seed", "xpid", "savedir", "mode", "preset", "disable_checkpoint", "checkpoint_interval_s"),
    *("save_model_every_nsteps", "track_gradients", "write_profiler_trace", "pipes_basename"),
    *("evaluate_every", "evaluation_episodes", *PLAYING_FLAGS),
    *("logger", "start_servers", "tls_dir", "ray_address", "step_timeout_s"),
}
# Flags that say how the machine is used: how fast a run learns by the clock, hardly what it learns.
MACHINE_FLAGS = {
    *("cores", "disable_cuda", "num_inference_threads", "num_learner_threads", "num_servers"),
}


class Group(NamedTuple):
    """Runs of one experiment, with several seeds; see :func:`group_runs`."""

    name: str
    flags: dict[str, Any]
    """What they have in common: flags that say what is learned, as :func:`learning_flags` has
    them."""
    runs: tuple[RunRecords, ...]

    @property
    def unit(self) -> str:
        """What there are several of: seeds, or runs if two have one seed."""
        return "seeds" if len({run.seed for run in self.runs}) == len(self.runs) else "runs"

    def __str__(self) -> str:
        count = len(self.runs)
        return self.name if count == 1 else f"{self.name} ({count} {self.unit})"


def learning_flags(run: RunRecords, unread: Set[str]) -> dict[str, Any]:
    """Returns the flags of a run with the values that took effect; empty where they are unknown.

    Flags of value None and those in ``unread`` are left out.
    """
    flags = {k: v for k, v in run.flags.items() if k not in unread and v is not None}
    # A damaged logs.csv may name no game.
    return flags and flags | resolve_flags(flags, len(run.games) or 1)


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
    lines = [
        *(_describe_difference(name, known) for name in names),
        *(_describe_difference(name, runs) for name in sorted(MACHINE_FLAGS)),
    ]
    return [line for line in lines if line]


def _describe_difference(name: str, flags: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    by_value: dict[str, list[str]] = {}
    for owner, values in flags:
        value = values.get(name)
        by_value.setdefault("not set" if value is None else str(value), []).append(owner)
    if len(by_value) < 2:
        return ""
    return f"--{name}: " + "; ".join(f"{v} in {', '.join(o)}" for v, o in by_value.items())
