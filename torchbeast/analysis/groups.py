"""Runs grouped by what they were started with: those of a group differ in their seed only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from torchbeast.analysis.runs import RunRecords

# Flags that say where a run is written, how it is watched and where its servers are, not what it
# learns; and those of other modes, which every command line has.
IGNORED_FLAGS = {
    *("seed", "xpid", "savedir", "mode", "disable_checkpoint", "checkpoint_interval_s"),
    *("save_model_every_nsteps", "track_gradients", "write_profiler_trace", "pipes_basename"),
    *("evaluate_every", "evaluation_episodes", "evaluation_share", "record_every"),
    *("saliency_every", "num_episodes", "greedy", "json", "actions", "movie"),
    *("movie_steps", "intermediate_model_id"),
    *("logger", "start_servers", "join_address", "env_addresses", "tls_dir"),
    *("step_timeout_s", "max_environment_failures", "failure_window_s"),
}


class Group(NamedTuple):
    """Runs that differ in their seed only."""

    name: str
    flags: dict[str, Any]
    """What they have in common, without the ignored flags."""
    runs: tuple[RunRecords, ...]

    def __str__(self) -> str:
        return self.name if len(self.runs) == 1 else f"{self.name} ({len(self.runs)} seeds)"


def group_runs(runs: Sequence[RunRecords]) -> list[Group]:
    """Puts runs together that differ in their seed only, in the order of their first.

    Groups that would have the same name are called as their first run. A run whose flags are
    unknown is a separate group.
    """
    groups: list[Group] = []
    for run in runs:
        flags = {k: v for k, v in run.flags.items() if k not in IGNORED_FLAGS}
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
    return bases.pop() if len(names) > 1 and len(bases) == 1 else names[0]


def describe_differences(groups: Sequence[Group]) -> list[str]:
    """Returns a line for every flag that groups differ in: ``--beta: 0.1 in a, 0.2 in b``."""
    known = [group for group in groups if group.flags]
    names = sorted({name for group in known for name in group.flags})
    lines = []
    for name in names:
        values = [str(group.flags.get(name, "default")) for group in known]
        if len(set(values)) > 1:
            parts = (f"{v} in {group.name}" for v, group in zip(values, known, strict=True))
            lines.append(f"--{name}: {', '.join(parts)}")
    return lines
