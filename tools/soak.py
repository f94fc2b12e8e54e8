"""Trains for minutes or hours while servers are killed and environments raise and hang.

    make soak ARGS="--minutes 120 --samples soak.csv --figure soak.png"

Checks that no step is lost or counted twice without being accounted for, that nothing grows, and
that nothing is left behind. Draws memory, threads and file descriptors over time; ``--draw`` draws
the samples of an earlier run.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.shipped.records import read_progress
from torchbeast.analysis.results import write_table
from torchbeast.records import checkpoint

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
NUM_ACTORS, NUM_SERVERS, UNROLL_LENGTH, BATCH_SIZE = 12, 3, 20, 4
# Seconds between the faults of the whole run.
RAISE_S, HANG_S, KILL_S, STEP_TIMEOUT_S = 4.0, 60.0, 20.0, 5
SAMPLE_S = 5.0
# What may be added from the first quarter of a run to its last.
MAX_GROWTH = 0.1
GAME = "Faulty"


class Sample(NamedTuple):
    """The whole family of processes at one moment."""

    seconds: float
    memory_mb: float
    learner_mb: float
    threads: int
    descriptors: int
    steps: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="default: %(default)g")
    parser.add_argument("--figure", type=Path, help="picture of the samples (default: none)")
    parser.add_argument("--samples", type=Path, help="CSV file for the samples (default: none)")
    parser.add_argument(
        "--draw", type=Path, help="draw these --samples of an earlier run; nothing is trained"
    )
    flags = parser.parse_args()
    if flags.draw is not None:
        if flags.figure is None:
            parser.error("--draw needs --figure: the picture's file")
        draw(read_samples(flags.draw), flags.figure)
        return 0
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        samples, kills, code, err = run(Path(directory), 60 * flags.minutes)
        if code == 130:
            problems = [*check_steps(Path(directory), err, kills), *check_growth(samples)]
        else:  # Its files may be missing.
            problems = [f"exit code {code} instead of 130; it said:\n{err[-2000:]}"]
    if flags.samples is not None:
        write_samples(samples, flags.samples)
    if flags.figure is not None:
        draw(samples, flags.figure)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("failed" if problems else "passed")
    return 1 if problems else 0


def run(directory: Path, seconds: float) -> tuple[list[Sample], int, int, str]:
    """Trains for so long; returns samples, number of kills, exit code and standard error."""
    (directory / "steps").mkdir()
    (directory / "tmp").mkdir()
    environment = {
        **os.environ,
        "SOAK_DIRECTORY": str(directory / "steps"),
        "SOAK_RAISE_S": str(RAISE_S * NUM_ACTORS),
        "SOAK_HANG_S": str(HANG_S * NUM_ACTORS),
        "TMPDIR": str(directory / "tmp"),
    }
    command = [
        sys.executable, "-m", "torchbeast.polybeast", "--env=tests.faulty:Faulty-v0",
        "--agent_type=atari", "--fixed_input_scale", f"--savedir={directory}", "--xpid=run",
        f"--num_actors={NUM_ACTORS}", f"--num_servers={NUM_SERVERS}", "--total_steps=1e9",
        f"--unroll_length={UNROLL_LENGTH}", f"--batch_size={BATCH_SIZE}",
        f"--step_timeout_s={STEP_TIMEOUT_S}", "--max_environment_failures=1000000",
        "--checkpoint_interval_s=30", "--seed=1",
    ]  # fmt: skip
    with open(directory / "err", "w+") as err:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=err)
        try:
            samples, kills = torment(process, directory, seconds)
            process.send_signal(signal.SIGINT)
            family = find_family(process)
            code = process.wait(timeout=120)
            _, alive = psutil.wait_procs(family, timeout=5)
        finally:
            for relative in find_family(process):
                relative.kill()
        err.seek(0)
        text = err.read()
    if alive or list((directory / "tmp").glob("torchbeast-*")):
        text += f"\nleft behind: {alive} {list((directory / 'tmp').iterdir())}"
        code = -1
    return samples, kills, code, text


def find_family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The process and its descendants, as far as they live."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    return []


def torment(
    process: subprocess.Popen[bytes], directory: Path, seconds: float
) -> tuple[list[Sample], int]:
    """Kills a server now and then and takes samples, until the time is over."""
    start = time.monotonic()
    samples: list[Sample] = []
    kills, next_kill = 0, start + KILL_S
    while time.monotonic() < start + seconds and process.poll() is None:
        time.sleep(SAMPLE_S)
        family = find_family(process)
        steps = read_progress(directory / "run").steps
        samples.append(take_sample(time.monotonic() - start, family, steps))
        print(
            "{0.seconds:6.0f} s  {0.steps:9,} steps  {0.memory_mb:6.0f} MB  learner "
            "{0.learner_mb:5.0f} MB  {0.threads:4} threads  {0.descriptors:5} descriptors".format(
                samples[-1]
            ),
            flush=True,
        )
        if time.monotonic() > next_kill:
            next_kill += KILL_S
            servers = [p for p in family if is_server(p)]
            if servers:
                random.choice(servers).kill()
                kills += 1
    return samples, kills


def is_server(process: psutil.Process) -> bool:
    """Whether this is an environment server: a child of a fork server."""
    with contextlib.suppress(psutil.Error, AttributeError):
        return all("forkserver" in " ".join(p.cmdline()) for p in (process, process.parent()))
    return False


def take_sample(seconds: float, family: list[psutil.Process], steps: int) -> Sample:
    totals = [0, 0, 0, 0]
    for process in family:
        with contextlib.suppress(psutil.Error), process.oneshot():
            memory = process.memory_info().rss
            counts = (memory, memory * (process is family[0]), process.num_threads())
            for i, count in enumerate((*counts, process.num_fds())):
                totals[i] += count
    return Sample(seconds, totals[0] / 1e6, totals[1] / 1e6, totals[2], totals[3], steps)


def check_steps(directory: Path, err: str, kills: int) -> list[str]:
    """What is wrong with the numbers of steps."""
    contents = checkpoint.load(directory / "run" / "model.tar")
    with open(directory / "run" / "logs.csv") as file:
        rows = list(csv.DictReader(file))
    learned = contents["steps"]
    taken = sum(struct.unpack("q", p.read_bytes())[0] for p in (directory / "steps").iterdir())
    dropped = taken - learned
    failures = err.count("; starting it again")
    hangs = err.count("hung in its environment")
    # A stream that breaks drops the unfinished rollouts of its environments; the end those of all
    # actors, and what waits for the learner.
    per_server = (UNROLL_LENGTH + 1) * NUM_ACTORS // NUM_SERVERS
    at_end = (UNROLL_LENGTH + 1) * (NUM_ACTORS + 4 * BATCH_SIZE)
    most = (kills + hangs) * per_server + at_end
    print(
        f"{taken:,} steps taken, {learned:,} learned from, {dropped:,} dropped (at most {most:,}): "
        f"{kills} servers killed, {hangs} hung, {failures} exceptions"
    )
    problems = []
    if not 0 <= dropped <= most:
        problems.append(f"{dropped:,} steps were dropped, between 0 and {most:,} may be")
    counts = {
        "logs.csv": int(rows[-1]["step"]),
        f"steps/{GAME}": int(rows[-1][f"steps/{GAME}"]),
        "task_steps": sum(contents["task_steps"]),
        "progress": sum(contents["progress"]["task_steps"]),
    }
    problems += [
        f"{name} counts {count:,} steps, the checkpoint {learned:,}"
        for name, count in counts.items()
        if count != learned
    ]
    steps = [int(row["step"]) for row in rows]
    if steps != sorted(set(steps)):
        problems.append("the steps in logs.csv do not rise")
    if not (kills and failures):
        problems.append(f"there were too few faults: {kills} kills, {failures} exceptions")
    return problems


def check_growth(samples: list[Sample]) -> list[str]:
    """What has grown from the first quarter, less the start, to the last."""
    quarter = len(samples) // 4
    if quarter == 0:
        return [f"{len(samples)} samples are too few to see growth: give it more --minutes"]
    problems = []
    for name in ("memory_mb", "learner_mb", "threads", "descriptors"):
        values = [getattr(sample, name) for sample in samples]
        first = sum(values[quarter : 2 * quarter]) / quarter
        last = sum(values[-quarter:]) / quarter
        if last > first * (1 + MAX_GROWTH):
            problems.append(f"{name} grew from {first:.0f} to {last:.0f}")
    return problems


def write_samples(samples: list[Sample], path: Path) -> None:
    """Writes samples as CSV, a row each, with the fields of Sample as columns."""
    write_table(path, Sample._fields, ([round(value, 1) for value in s] for s in samples))


def read_samples(path: Path) -> list[Sample]:
    """Reads what :func:`write_samples` wrote."""
    with open(path, newline="") as file:
        return [
            Sample(
                seconds=float(row["seconds"]),
                memory_mb=float(row["memory_mb"]),
                learner_mb=float(row["learner_mb"]),
                threads=int(row["threads"]),
                descriptors=int(row["descriptors"]),
                steps=int(row["steps"]),
            )
            for row in csv.DictReader(file)
        ]


def draw(samples: list[Sample], path: Path) -> None:
    """Draws the samples over time."""
    titles = {
        "steps": "steps learned from",
        "memory_mb": "memory, all processes [MB]",
        "learner_mb": "memory, learner [MB]",
        "threads": "threads",
        "descriptors": "file descriptors",
    }
    figure, axes = plt.subplots(len(titles), sharex=True, figsize=(7, 8), layout="constrained")
    minutes = [sample.seconds / 60 for sample in samples]
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        axis.plot(minutes, [getattr(sample, name) for sample in samples])
        axis.set_title(title, loc="left", fontsize="small")
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
