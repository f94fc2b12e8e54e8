"""One run as a process: started at low priority on some cores, ended so that it saves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.shipped.plan import ROOT, Run
from tools.shipped.records import Slice, append_slice, machine, now, read_progress
from torchbeast.core.types import RunError
from torchbeast.runtime.priority import NICEST, set_session_niceness
from torchbeast.runtime.workers import end_with_parent

# How long a run gets to save and end. On a busy machine a run of idle priority needs minutes.
PATIENCE_S = 600.0
PROGRAM = (sys.executable, "-m", "torchbeast.polybeast")
# What a run needs at most until its first step. One that had less and took no step had to leave the
# machine to other programs.
START_CPU_S = 60.0


def lower_priority(pid: int, kind: str) -> None:
    """Lowers the priority of a process that has just begun, and of all that it will start.

    This program keeps its own priority: it waits, and has to answer Ctrl-C on a busy machine.

    Args:
        pid: the process, the first of its session.
        kind: ``idle``: only time that nobody else wants (Linux). ``nice``: niceness 19.
            ``normal``: unchanged.
    """
    if kind == "normal":
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICEST)
    set_session_niceness(pid, NICEST)
    if kind == "idle" and hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def cpu_seconds(pid: int) -> float | None:
    """Returns the time that a process has had on cores; None if unknown (not Linux)."""
    try:
        # The name in brackets may have spaces. Behind it, user and system time are 12th and 13th.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


@contextlib.contextmanager
def confined(cores: Sequence[int]) -> Iterator[None]:
    """Confines this process, and with it those that it starts, to some cores (Linux)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Training:
    """A run that is being trained, for a slice of time that can be extended."""

    def __init__(
        self, run: Run, directory: Path, cores: Sequence[int], slice_s: float, priority: str
    ) -> None:
        """Starts the process.

        Args:
            run: the run.
            directory: of all runs.
            cores: numbers of the cores that it may use.
            slice_s: seconds of its slice.
            priority: see :func:`lower_priority`.

        Raises:
            RunError: it cannot be started.
        """
        self.run = run
        self._path = directory / run.name
        self._cores = cores
        self._slice_s = slice_s
        self._first_step = self._slice_step = self.steps()
        self._date, self._start = now(), time.monotonic()
        self._end = self._start + slice_s
        self._kill_at: float | None = None
        self._told_at = float("inf")
        self.log = directory / f"{run.name}.log"
        command = [*PROGRAM, *run.arguments(directory)]
        try:
            with open(self.log, "w") as log, confined(cores):
                # A session of its own: Ctrl-C reaches the run once, through this program.
                self._process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=end_with_parent,
                )
        except OSError as error:
            raise RunError(f"{run.name} cannot be started: {error}") from error
        lower_priority(self._process.pid, priority)

    def steps(self) -> int:
        """Returns the steps that the run has in logs.csv."""
        return read_progress(self._path).steps

    @property
    def is_stopping(self) -> bool:
        """Whether the run was told to end."""
        return self._kill_at is not None

    @property
    def is_slice_over(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self._end

    @property
    def has_stepped(self) -> bool:
        """Whether the run took a step in its slice."""
        return self.steps() > self._slice_step

    @property
    def is_starved(self) -> bool:
        """Whether the run had too little time on its cores to take a step."""
        used = cpu_seconds(self._process.pid)
        return used is not None and used < START_CPU_S and not self.has_stepped

    def extend(self) -> None:
        """Gives the run another slice."""
        self._slice_step = self.steps()
        self._end = time.monotonic() + self._slice_s

    def stop(self) -> None:
        """Tells the run to save and end."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + PATIENCE_S
            self._told_at = time.time()
            self._process.terminate()

    def poll(self) -> Slice | None:
        """Returns what was done once the process has ended; kills it if it does not end in time."""
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self.kill()
        code = self._process.poll()
        if code is None:
            return None
        done = Slice(
            date=self._date,
            first_step=self._first_step,
            last_step=self.steps(),
            seconds=round(time.monotonic() - self._start, 1),
            cores=len(self._cores),
            machine=machine(),
            exit_code=128 - code if code < 0 else code,
        )
        with contextlib.suppress(OSError):  # The disk is full; others are to be ended, too.
            append_slice(self._path, done)
        return done

    def kill(self) -> None:
        """Ends the process at once. Its servers end with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def has_saved(self) -> bool:
        """Whether the run was told to end and has saved since then."""
        path = self._path / "model.tar"
        # Times of files are coarser than the clock.
        return path.exists() and path.stat().st_mtime > self._told_at - 1

    def last_line(self) -> str:
        """Returns the last line that the process wrote."""
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
