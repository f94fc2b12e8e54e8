"""Which run is trained when: the one furthest behind its target first, a slice of time each."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.shipped.plan import Run
from tools.shipped.processes import Training
from tools.shipped.records import Slice, is_finished, now, read_progress
from tools.shipped.resumable import load_state
from torchbeast.core.types import RunError, UsageError
from torchbeast.runtime.text import human_time
from torchbeast.runtime.threads import available_cores

# A run that fails this often in succession is left out.
MAX_FAILURES = 3
POLL_S = 0.2
# Exit codes of a run that was stopped and has saved.
STOPPED = (0, 143)


class Settings(NamedTuple):
    """How the runs share the machine."""

    slice_s: float
    cores: tuple[tuple[int, ...], ...]
    """Numbers of the cores of each run that is trained at the same time."""
    priority: str
    min_free_bytes: int
    """Space on the disk below which nothing is trained."""


def divide_cores(jobs: int, cores: int | None) -> tuple[tuple[int, ...], ...]:
    """Divides this process's cores among runs that are trained side by side.

    Args:
        jobs: how many runs.
        cores: how many cores to use; None: all.

    Returns:
        The numbers of the cores of each run.

    Raises:
        UsageError: there are too few cores.
    """
    if hasattr(os, "sched_getaffinity"):
        numbers = sorted(os.sched_getaffinity(0))[: available_cores()]
    else:
        numbers = list(range(available_cores()))
    if cores is not None and cores > len(numbers):
        raise UsageError(f"--cores {cores}: there are {len(numbers)}")
    numbers = numbers[:cores]
    if jobs > len(numbers):
        raise UsageError(f"--jobs {jobs} needs as many cores, and there are {len(numbers)}")
    ends = [len(numbers) * i // jobs for i in range(jobs + 1)]
    return tuple(tuple(numbers[a:b]) for a, b in itertools.pairwise(ends))


class Trainer:
    """Trains runs in turn until all have reached their targets."""

    def __init__(self, runs: Sequence[Run], directory: Path, settings: Settings) -> None:
        self._runs = runs
        self._directory = directory
        self._settings = settings
        self._trainings: list[Training | None] = [None] * len(settings.cores)
        self._failures: Counter[Run] = Counter()
        self._is_ending = False

    @property
    def left_out(self) -> list[Run]:
        """The runs that failed too often."""
        return [run for run in self._runs if self._failures[run] >= MAX_FAILURES]

    def train(self, is_stopped: Callable[[], bool]) -> None:
        """Trains until nothing is left to train or it is stopped. Then all runs have saved.

        Args:
            is_stopped: whether the user wants it to end.

        Raises:
            RunError: the disk is full, or a process cannot be started.
        """
        for run in self._runs:
            if load_state(run, self._directory):
                _say(f"{run.name}: copied its state from models/{run.shipped_name}")
        try:
            while not is_stopped():
                self._check_space()
                self._collect()
                self._end_slices()
                self._fill()
                if not any(self._trainings):
                    return
                time.sleep(POLL_S)
        finally:
            self._stop_all()

    def _check_space(self) -> None:
        free = shutil.disk_usage(self._directory).free
        if free < self._settings.min_free_bytes:
            raise RunError(
                f"{free / 1e6:.0f} MB are free in {self._directory}, less than --min_free_mb"
            )

    def _share(self, run: Run) -> float:
        """How much of its target a run has reached, from 0 to 1."""
        return read_progress(self._directory / run.name).steps / run.steps

    def _next(self) -> Run | None:
        """The run that is trained next: of those that wait, the one furthest behind."""
        active = [training.run for training in self._trainings if training is not None]
        waiting = [
            run
            for run in self._runs
            if run not in active
            and self._failures[run] < MAX_FAILURES
            and not is_finished(run, self._directory)
        ]
        return min(waiting, key=self._share, default=None)

    def _fill(self) -> None:
        """Starts runs where there is room."""
        for i, training in enumerate(self._trainings):
            run = self._next() if training is None else None
            if run is None:
                continue
            cores = self._settings.cores[i]
            _say(f"{run.name}: {self._share(run):.1%} of {run.steps:,} steps; cores {cores}")
            self._trainings[i] = Training(
                run, self._directory, cores, self._settings.slice_s, self._settings.priority
            )

    def _end_slices(self) -> None:
        """Stops the runs whose time is over if another one is further behind."""
        for training in self._trainings:
            if training is None or training.is_stopping or not training.is_slice_over:
                continue
            waiting = self._next()
            is_last = waiting is None or self._share(waiting) > self._share(training.run)
            # Starting costs time, too: a busy machine would never get beyond it. A run that took no
            # step although it had the time stays furthest behind; its end counts as failure.
            if training.is_starved:
                _say(f"{training.run.name}: took no step, had no processor time; it goes on")
                training.extend()
            elif is_last and training.has_stepped:
                training.extend()
            else:
                training.stop()

    def _collect(self) -> None:
        """Takes note of the runs that have ended."""
        for i, training in enumerate(self._trainings):
            done = training.poll() if training is not None else None
            if training is None or done is None:
                continue
            self._trainings[i] = None
            self._judge(training, done)

    def _judge(self, training: Training, done: Slice) -> None:
        """Counts failures in succession, and says what a slice has brought."""
        run = training.run
        steps = done.last_step - done.first_step
        is_done = done.exit_code == 0 and done.last_step >= run.steps
        took_a_step = steps > 0 or is_done or self._is_ending
        # A process that fails after it has saved loses nothing.
        if took_a_step and (done.exit_code in STOPPED or training.has_saved):
            self._failures[run] = 0
            speed = steps / max(done.seconds, 1e-9)
            late = "" if done.exit_code in STOPPED else f"; exit code {done.exit_code} after saving"
            _say(
                f"{run.name}: {steps:,} steps in {human_time(done.seconds)}, {speed:.0f} steps/s; "
                f"{done.last_step / run.steps:.1%} done{late}"
            )
            return
        self._failures[run] += 1
        count = self._failures[run]
        what = "took no step" if done.exit_code in STOPPED else f"exit code {done.exit_code}"
        _say(f"{run.name}: failed {count} of {MAX_FAILURES} times ({what}): {training.last_line()}")
        if count >= MAX_FAILURES:
            _say(f"{run.name}: left out; its messages are in {training.log}")

    def _stop_all(self) -> None:
        self._is_ending = True
        for training in self._trainings:
            if training is not None:
                training.stop()
        while any(self._trainings):
            self._collect()
            time.sleep(POLL_S)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # Nobody may be there to read it; the runs are to be saved.
        print(f"{now()} {text}", flush=True)
