"""The compiled kernels beside torch's operations, in turn, on one core.

    python benchmarks/kernels.py

First each kernel alone: the ResNet's three sections, and the normalisation of frames of six games.
Then whole networks: they learn from a batch, with the step of the optimizer, and act in a batch of
16. CPU time, medians over repetitions.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from _rollouts import random_rollout
from torch import Tensor, nn

from torchbeast.core.optimizer import make_optimizer
from torchbeast.core.types import OptimizerConfig
from torchbeast.models import AgentConfig, ResNet, kernels, make_agent
from torchbeast.models.kernels import residual_section
from torchbeast.models.normalization import normalize_frames
from torchbeast.runtime.precision import keep_freed_pages

SECTIONS = ((4, 16, 84), (16, 32, 42), (32, 32, 21))  # Channels of inputs and outputs, side.
ROWS = 81
NORMALIZED_ROWS, GAMES = 80, 6
# Agent, rows of a rollout, rollouts of a batch: those of the presets on two cores.
NETWORKS = (("atari", 21, 4), ("resnet", 81, 1))
ACTING_ROWS = 16
REPETITIONS = 9
COMPILED = kernels.compiled


def compare(name: str, work: Callable[[], Any], rows: int = 1) -> None:
    """Prints CPU time per row with torch's operations and with the kernels."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(REPETITIONS + 1):
        for ours, times in seconds.items():
            kernels.compiled = COMPILED if ours else lambda: None  # type: ignore[assignment]
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    theirs, mine = (statistics.median(times[1:]) / rows * 1e6 for times in seconds.values())
    print(f"{name:44}{theirs:8.0f} us{mine:8.0f} us{theirs / mine:7.2f} x", flush=True)


def make_pictures(channels: int, side: int) -> Tensor:
    pictures = torch.randn(ROWS, channels, side, side).bfloat16()
    return pictures.contiguous(memory_format=torch.channels_last)


def compare_sections() -> None:
    agent = ResNet(AgentConfig())
    sections = zip(agent.feat_convs, agent.resnet1, agent.resnet2, strict=True)
    for (inputs, outputs, side), section in zip(SECTIONS, sections, strict=True):
        pictures = make_pictures(inputs, side).requires_grad_(inputs > 4)
        leaves: list[Tensor] = [p for part in section for p in part.parameters()]
        if pictures.requires_grad:
            leaves.append(pictures)

        def learn(
            pictures: Tensor = pictures,
            section: tuple[nn.Module, ...] = section,
            leaves: list[Tensor] = leaves,
        ) -> None:
            with torch.autocast("cpu", torch.bfloat16):
                result = residual_section(pictures, *section)
            torch.autograd.grad(result.sum(), leaves)

        compare(f"section {inputs} to {outputs} x {side} x {side}, both ways", learn, ROWS)


def compare_normalization() -> None:
    frames = random_rollout(NORMALIZED_ROWS, 1, 1)[0].frame[:, 0]
    mean = (255 * torch.rand(GAMES, 84, 84, 4)).permute(0, 3, 1, 2)
    scale, task = torch.ones(GAMES), torch.arange(NORMALIZED_ROWS, dtype=torch.int32) % GAMES
    compare(
        "normalisation of a stack of frames",
        lambda: normalize_frames(frames, mean, scale, task, torch.bfloat16),
        NORMALIZED_ROWS,
    )


def compare_network(agent_type: str, rows: int, batch: int) -> None:
    agent = make_agent(AgentConfig(agent_type, num_actions=6))
    agent.compute_dtype = torch.bfloat16
    acting = agent.inference_copy()
    parameters = list(agent.parameters())
    optimizer = make_optimizer(parameters, OptimizerConfig())
    rollouts, _ = random_rollout(rows, batch, 6)
    observations, _ = random_rollout(1, ACTING_ROWS, 6)

    def learn() -> None:
        output, _ = agent(rollouts)
        loss = output.policy_logits.square().sum() + output.baseline.sum()
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    def act() -> None:
        with torch.inference_mode():
            for _ in range(5):
                acting(observations)

    compare(f"{agent_type}: learning from {batch} x {rows} rows, a row", learn, rows * batch)
    compare(f"{agent_type}: acting in a batch of {ACTING_ROWS}, a row", act, 5 * ACTING_ROWS)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if COMPILED() is None:
        sys.exit("This processor cannot run the kernels, or nothing was compiled")
    keep_freed_pages()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'':44}{'torch':>11}{'ours':>11}{'ratio':>9}")
    compare_sections()
    compare_normalization()
    for network in NETWORKS:
        compare_network(*network)


if __name__ == "__main__":
    main()
