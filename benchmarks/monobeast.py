"""MonoBeast beside PolyBeast, same flags, one after the other: steps per second and memory.

    python benchmarks/monobeast.py [--seconds S] [flags of both, for example --agent_type atari]

Sixteen environments of Pong each. Memory is the proportional set size of the process tree. Linux
only.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _processes import process_tree, proportional_set_size

# Processes start, queues fill: not counted.
WARM_UP_SECONDS = 25


def measure(module: str, arguments: list[str], seconds: float) -> tuple[float, int]:
    """Steps per second and bytes."""
    with tempfile.TemporaryDirectory() as savedir:
        command = [sys.executable, "-m", f"torchbeast.{module}", "--num_actors=16", *arguments]
        command += [f"--savedir={savedir}", "--xpid=run", "--total_steps=1000000000"]
        root = Path(__file__).parent.parent
        process = subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL)
        time.sleep(WARM_UP_SECONDS + seconds)
        memory = sum(map(proportional_set_size, process_tree(process.pid)))
        process.terminate()
        process.wait()
        with open(Path(savedir) / "run" / "logs.csv") as file:
            rows = [(float(r["seconds"]), int(r["step"])) for r in csv.DictReader(file)]
    rows = [row for row in rows[:-1] if row[0] >= WARM_UP_SECONDS]
    return (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0]), memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    options, arguments = parser.parse_known_args()
    baseline = None
    for module in ("monobeast", "polybeast"):
        speed, memory = measure(module, arguments, options.seconds)
        baseline = baseline or speed
        print(f"{module:10} {speed:6.0f} steps/s {speed / baseline:5.1f} x {memory / 1e6:7.0f} MB")


if __name__ == "__main__":
    main()
