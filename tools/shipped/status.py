"""The table of ``make models ARGS=--status``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from tools.shipped.plan import MODELS, Run
from tools.shipped.records import Progress, is_done, is_finished, read_progress, read_slices
from tools.shipped.trainer import MAX_FAILURES, STOPPED
from torchbeast.envs.scores import human_normalized
from torchbeast.runtime.locks import is_locked
from torchbeast.runtime.text import human_count, human_return, human_time

COLUMNS = ("agent", "seed", "steps", "target", "%", "hours", "steps/s", "left", "state", "returns")


def format_status(runs: Sequence[Run], directory: Path) -> str:
    """Returns the table: a row per run, and a line that sums up.

    Returns are means of the last hundred full games of training, whose actions are sampled.
    """
    is_training = is_locked(directory)
    states = [find_state(run, directory) for run in runs]
    progress = [
        read_progress(MODELS / run.shipped_name if state == "shipped" else directory / run.name)
        for run, state in zip(runs, states, strict=True)
    ]
    rows = [
        format_row(run, state, done)
        for run, state, done in zip(runs, states, progress, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    lines = []
    for row in (COLUMNS, *rows):
        first, *middle, state, returns = (
            cell.ljust(width) if i in (0, 8, 9) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *middle, state, returns]).rstrip())
    left = [remaining(r, s, p) for r, s, p in zip(runs, states, progress, strict=True)]
    known = [seconds for seconds in left if seconds is not None]
    text = f"{directory}: {'training' if is_training else 'nothing is trained now'}"
    if known and len(known) == len(runs):
        text += f"; {human_time(sum(known))} of training left at these speeds"
    return "\n".join([*lines, text])


def find_state(run: Run, directory: Path) -> str:
    """Returns what a run is doing: shipped, done, training, failing, waiting."""
    path = directory / run.name
    if is_finished(run, directory):
        return "done" if is_done(run, directory) else "shipped"
    if is_locked(path):  # As the trainer locks the directory of all, each run locks its own.
        return "training"
    last = [row.exit_code for row in read_slices(path)[-MAX_FAILURES:]]
    if len(last) == MAX_FAILURES and not any(code in STOPPED for code in last):
        return "failing"
    return "waiting"


def remaining(run: Run, state: str, done: Progress) -> float | None:
    """Returns the seconds of training that a run needs at its last speed; None if unknown."""
    if state in ("done", "shipped"):
        return 0.0
    if not done.steps_per_second:
        return None
    return max(0, run.steps - done.steps) / done.steps_per_second


def format_row(run: Run, state: str, done: Progress) -> tuple[str, ...]:
    """Returns the cells of a run, in the order of ``COLUMNS``."""
    left = remaining(run, state, done)
    speed = done.steps_per_second
    return (
        run.agent,
        str(run.seed),
        human_count(done.steps),
        human_count(run.steps),
        f"{100 * done.steps / run.steps:.1f}",
        f"{done.seconds / 3600:.1f}",
        "" if speed is None else f"{speed:.0f}",
        "" if left is None else human_time(left),
        state,
        format_returns(done),
    )


def format_returns(done: Progress) -> str:
    """Returns the mean returns per game and, of several games, the human-normalised median."""
    parts = [f"{game} {human_return(value)}" for game, value in done.returns.items()]
    known = [
        score
        for game, value in done.returns.items()
        if (score := human_normalized(game, value)) is not None
    ]
    if len(known) > 1:
        parts.append(f"median {statistics.median(known):.0%} of human")
    return ", ".join(parts)
