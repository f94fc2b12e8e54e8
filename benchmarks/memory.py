"""Memory of a training run: does it stay small, does it stay flat?

    python benchmarks/memory.py [--minutes M] [flags of torchbeast.polybeast]

Trains and sums, every 10 s, the proportional set size of the whole process tree (pages that
several processes share count once). Printed are the size after the warm-up, the largest, and what
a straight line through the second half grows by in an hour. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _processes import process_tree, proportional_set_size

SAMPLE_SECONDS = 10
WARM_UP_SECONDS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    options, arguments = parser.parse_known_args()
    root = Path(__file__).parent.parent
    samples = []
    with tempfile.TemporaryDirectory() as savedir:
        command = [sys.executable, "-m", "torchbeast.polybeast", *arguments]
        command += [f"--savedir={savedir}", "--xpid=run", "--total_steps=1000000000"]
        with subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as process:
            start = time.monotonic()
            try:
                while time.monotonic() - start < 60 * options.minutes:
                    time.sleep(SAMPLE_SECONDS)
                    if process.poll() is not None:
                        sys.exit(f"the run ended with exit code {process.returncode}")
                    size = sum(map(proportional_set_size, process_tree(process.pid)))
                    samples.append((time.monotonic() - start, size))
            finally:
                process.terminate()
    warm = [sample for sample in samples if sample[0] >= WARM_UP_SECONDS] or samples
    half = warm[len(warm) // 2 :]
    print(f"after {warm[0][0]:.0f} s: {warm[0][1] / 1e6:7.0f} MB")
    print(f"at most:    {max(size for _, size in warm) / 1e6:7.0f} MB")
    print(f"at the end: {warm[-1][1] / 1e6:7.0f} MB")
    if len(half) > 1:
        slope = statistics.linear_regression(*zip(*half, strict=True)).slope  # Bytes a second.
        print(f"growth in the second half: {slope * 3600 / 1e6:+.1f} MB an hour")


if __name__ == "__main__":
    main()
