"""Runs that are written by hand, for the tests of comparisons."""

import json

from torchbeast.analysis.common_scores import find_common
from torchbeast.analysis.groups import group_runs
from torchbeast.analysis.runs import find_runs

# Return of a random agent and of a human in Pong: -20.7 and 14.6; in Breakout 1.7 and 30.5.
LOG_FIELDS = ["step", "seconds", *(f"mean_episode_return/{g}" for g in ("Pong", "Breakout"))]


def write_table(path, *rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


def write_run(path, logs, **flags):
    """Writes what a run with these flags and rows of logs.csv leaves behind."""
    path.mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps({"args": flags}))
    write_table(path / "logs.csv", LOG_FIELDS, *logs)
    return path


def find(savedir, unit="steps", table=None, names=("popart-1", "popart-2", "clipped")):
    runs = find_runs([savedir / name for name in names])
    return find_common(group_runs(runs), unit, table)
