"""Every agent learns: its return on two tiny environments, beside the best that luck gives.

    python benchmarks/learning.py [AGENT ...] [--program monobeast]

MovingTarget (tests/moving_target.py) wants what changes between pictures and looking ahead; chance
is -1/3. Recall (tests/recall.py) wants memory; without it nobody gets more than 0. The best return
is 1 in both. A run ends when its last hundred games average 0.95, or after --total_steps.
"""

from __future__ import annotations

import argparse
import csv
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOLVED = 0.95
FLAGS = [
    "--num_actors=8",
    "--unroll_length=20",
    "--batch_size=4",
    "--entropy_cost=0.01",
    "--discounting=0.9",
    "--seed=1",
]
AGENTS = {
    "atari": ["--agent_type=atari", "--learning_rate=0.001"],
    "atari-lstm": ["--agent_type=atari", "--use_lstm", "--learning_rate=0.001"],
    "resnet": ["--agent_type=resnet", "--learning_rate=0.0005"],
    "resnet-lstm": ["--agent_type=resnet", "--use_lstm", "--learning_rate=0.0005"],
    "aaa": ["--agent_type=aaa", "--learning_rate=0.0007"],
}
MODULES = {"MovingTarget": "moving_target", "Recall": "recall"}


def last_return(run: Path, env: str) -> tuple[int, float]:
    """Agent steps and mean return of the newest row; (0, nan) before the first."""
    try:
        with open(run / "logs.csv") as file:
            row = list(csv.DictReader(file))[-1]
        return int(row["step"]), float(row[f"mean_episode_return/{env}"] or "nan")
    except (OSError, IndexError, KeyError):
        return 0, float("nan")


def learn(program: str, name: str, env: str, total_steps: int) -> str:
    """A line about one run."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as savedir:
        command = [sys.executable, "-m", f"torchbeast.{program}", "--savedir", savedir]
        command += ["--xpid=run", f"--env=tests.{MODULES[env]}:{env}-v0", *FLAGS]
        command += [*AGENTS[name], f"--total_steps={total_steps}"]
        with open(Path(savedir) / "out", "w") as out:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
            steps, mean = 0, float("nan")
            while process.poll() is None:
                time.sleep(1)
                steps, mean = last_return(Path(savedir) / "run", env)
                if mean >= SOLVED:
                    process.send_signal(signal.SIGINT)
                    process.wait()
        if process.returncode not in (0, 130):
            return f"failed: {(Path(savedir) / 'out').read_text()[-300:]}"
    verdict = "solved" if mean >= SOLVED else "not solved"
    seconds = time.perf_counter() - start
    return f"{mean:6.2f}  {verdict:10} {steps:8,} steps  {seconds:5.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=", ".join(AGENTS))
    parser.add_argument("--program", default="monobeast", choices=["monobeast", "polybeast"])
    parser.add_argument("--total_steps", type=int, default=60_000)
    parser.add_argument("--env", choices=MODULES)
    flags = parser.parse_args()
    print(f"{'agent':12} {'environment':13} return")
    for name in flags.agents or AGENTS:
        for env in [flags.env] if flags.env else MODULES:
            line = learn(flags.program, name, env, flags.total_steps)
            print(f"{name:12} {env:13} {line}", flush=True)


if __name__ == "__main__":
    main()
