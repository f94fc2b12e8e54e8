"""What evaluation takes from training: steps per second with and without it, in one run.

    python benchmarks/evaluation.py [flags of torchbeast.polybeast]

PolyBeast trains on six games and is evaluated all the time. The evaluator's process is stopped and
continued in turn, so both speeds are of the same minutes. It catches up after each pause, so it
takes up to twice --evaluation_share then. Printed are the median speeds, their ratio, and the share
of the cores that the evaluator took. Linux only.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil

from tools.shipped.records import read_progress
from torchbeast.runtime.threads import available_cores

WARM_UP_SECONDS = 30
PERIODS = 12
PERIOD_SECONDS = 15
# At the start of a period: what was evaluated or queued before it.
SETTLING_SECONDS = 2
FLAGS = ("--preset=small", "--env=six", "--use_popart", "--evaluate_every=1000")


class Period(NamedTuple):
    steps_per_second: float
    evaluator_cores: float


def find_evaluator(root: int) -> psutil.Process:
    for process in psutil.Process(root).children(recursive=True):
        if any("torchbeast.evaluator" in argument for argument in process.cmdline()):
            return process
    raise SystemExit("error: there is no evaluator")


def measure(run: Path, evaluator: psutil.Process) -> Period:
    def cpu_seconds() -> float:
        times = evaluator.cpu_times()
        return float(times.user + times.system)

    time.sleep(SETTLING_SECONDS)
    before, cpu = read_progress(run), cpu_seconds()
    time.sleep(PERIOD_SECONDS)
    after, later = read_progress(run), cpu_seconds()
    if after.steps == before.steps:
        raise SystemExit("error: the run does not train")
    speed = (after.steps - before.steps) / (after.seconds - before.seconds)
    return Period(speed, (later - cpu) / PERIOD_SECONDS)


def measure_periods(run: Path, evaluator: psutil.Process) -> Iterator[tuple[bool, Period]]:
    """Yields whether the evaluator ran, and what was measured."""
    for period in range(PERIODS):
        runs = period % 2 == 0
        evaluator.send_signal(signal.SIGCONT if runs else signal.SIGSTOP)
        yield runs, measure(run, evaluator)


def main() -> None:
    arguments = sys.argv[1:]
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        return
    with tempfile.TemporaryDirectory() as savedir:
        command = [sys.executable, "-m", "torchbeast.polybeast", *FLAGS, *arguments]
        command += [f"--savedir={savedir}", "--xpid=run", "--total_steps=1000000000"]
        process = subprocess.Popen(
            command, cwd=Path(__file__).parent.parent, stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(WARM_UP_SECONDS)
            evaluator = find_evaluator(process.pid)
            periods = list(measure_periods(Path(savedir) / "run", evaluator))
            evaluator.send_signal(signal.SIGCONT)
        finally:
            process.terminate()
            process.wait()
    speeds, cores = (
        {
            runs: statistics.median(getattr(period, field) for r, period in periods if r == runs)
            for runs in (True, False)
        }
        for field in Period._fields
    )
    print(f"without evaluation: {speeds[False]:7.0f} steps/s")
    print(
        f"with evaluation:    {speeds[True]:7.0f} steps/s, {speeds[True] / speeds[False]:.2f} of it"
    )
    print(f"the evaluator took {cores[True] / available_cores():.2f} of the cores")


if __name__ == "__main__":
    main()
