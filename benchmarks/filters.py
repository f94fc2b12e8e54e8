"""Filter comparison: whole distance matrices, beside one pair of filters at a time.

    python benchmarks/filters.py [--agents 8] [--checkpoints 10]

First one pair of ResNets with the best matching in every layer. Then the whole command on a
directory of agents: six single-task ones, one multi-task, one with PopArt (more or fewer with
--agents), in order, matched and carried through the network; weights are random.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from torchbeast.analysis import filters
from torchbeast.envs.games import SIX
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files

REPEATS = 5


def one_at_a_time(a: np.ndarray, b: np.ndarray) -> float:
    """The least sum of squared differences, from a distance matrix filled pair by pair."""
    distances = np.zeros((len(a), len(b)))
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            distances[i, j] = ((one - other) ** 2).sum()
    return float(distances[linear_sum_assignment(distances)].sum())


def save_agents(directory: Path, num_agents: int, num_checkpoints: int) -> None:
    multi = AgentConfig(tasks=SIX, num_actions=18)
    kinds = [multi, multi._replace(use_popart=True)]
    kinds += [AgentConfig(tasks=(SIX[i % len(SIX)],)) for i in range(num_agents - len(kinds))]
    for i, kind in enumerate(kinds[:num_agents]):
        for step in range(1, num_checkpoints + 1):
            agent = make_agent(kind)
            contents = {
                "agent": agent.config._asdict(),
                "model_state_dict": agent.state_dict(),
                "steps": step,
            }
            checkpoint.save(run_files.intermediate_path(directory / f"agent{i}", step), contents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--checkpoints", type=int, default=10)
    flags = parser.parse_args()
    torch.manual_seed(0)
    a, b = (filters.read_weights(make_agent(AgentConfig()).state_dict()) for _ in range(2))
    start = time.perf_counter()
    slow = [one_at_a_time(a[name], b[name]) for name in filters.LAYER_NAMES]
    baseline = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(REPEATS):
        fast = [filters.optimal(a[name], b[name]).sum for name in filters.LAYER_NAMES]
    seconds = (time.perf_counter() - start) / REPEATS
    np.testing.assert_allclose(fast, slow)
    print(f"one pair of networks, filter by filter  {1000 * baseline:7.1f} ms")
    print(f"whole matrices, the same distances      {1000 * seconds:7.1f} ms, "
          f"{baseline / seconds:.1f} x")  # fmt: skip

    with tempfile.TemporaryDirectory() as directory:
        save_agents(Path(directory), flags.agents, flags.checkpoints)
        command = [sys.executable, "-m", "torchbeast.analysis.analyze_resnet"]
        command += ["--load_path", directory, "--comp_num_models", str(flags.checkpoints)]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(
            f"all comparisons of {flags.agents} agents with {flags.checkpoints} checkpoints  "
            f"{time.perf_counter() - start:.1f} s"
        )


if __name__ == "__main__":
    main()
