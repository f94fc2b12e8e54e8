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


def write_three_runs(directory):
    """Writes two seeds with PopArt and one without; logs.csv only."""
    flags = {"total_steps": 300, "use_popart": True}
    logs = [(100, 360, -20.7, 1.7), (200, 720, -3.05, 1.7), (300, 1080, 14.6, 30.5)]
    write_run(directory / "popart-1", logs, seed=1, xpid="popart-1", **flags)
    write_run(
        directory / "popart-2",
        [(100, 360, -20.7, 1.7), (200, 1800, 14.6, 30.5)],
        seed=2,
        xpid="popart-2",
        **flags,
    )
    write_run(
        directory / "clipped",
        [(150, 720, -20.7, 30.5), (250, 1080, 14.6, 30.5)],
        **{**flags, "use_popart": False},
    )


def find(savedir, unit="steps", table=None):
    runs = find_runs([savedir / name for name in ("popart-1", "popart-2", "clipped")])
    return find_common(group_runs(runs), unit, table)
