"""The ResNet's max pooling: our kernel beside torch's, in turn, on one core.

    python benchmarks/max_pool.py

First each of the three pooling layers alone, forward and backward; then the whole ResNet, learning
from a rollout of 81 rows and acting in a batch of 16. CPU time per row, medians over repetitions.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import Tensor

from torchbeast.core.precision import keep_freed_pages
from torchbeast.models import AgentConfig, ResNet, max_pool

LAYERS = ((16, 84), (32, 42), (32, 21))  # Channels, side.
LEARNED_ROWS, ACTING_ROWS = 81, 16
REPETITIONS = 7
OUR_KERNEL = max_pool._kernel


def compare(name: str, work: Callable[[], Any], rows: int) -> None:
    """Prints CPU time per row with torch's kernel and with ours."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(REPETITIONS + 1):
        for ours, times in seconds.items():
            max_pool._kernel = OUR_KERNEL if ours else lambda: None  # type: ignore[assignment]
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    torchs, ours = (statistics.median(times[1:]) / rows * 1e6 for times in seconds.values())
    print(f"{name:32}{torchs:8.0f} us{ours:8.0f} us{torchs / ours:7.2f} x", flush=True)


def make_pictures(channels: int, side: int) -> Tensor:
    pictures = torch.randn(LEARNED_ROWS, channels, side, side).bfloat16()
    return pictures.contiguous(memory_format=torch.channels_last).requires_grad_()


def main() -> None:
    if OUR_KERNEL() is None:
        sys.exit("This processor cannot run the kernel, or nothing was compiled")
    keep_freed_pages()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'':32}{'torch':>11}{'ours':>11}{'ratio':>9}")
    pool = max_pool.MaxPool()
    for channels, side in LAYERS:
        pictures = make_pictures(channels, side)
        size = f"{channels} x {side} x {side}"

        def learn(pictures: Tensor = pictures) -> None:
            torch.autograd.grad(pool(pictures).sum(), pictures)

        def infer(pictures: Tensor = pictures) -> None:
            with torch.no_grad():
                pool(pictures)

        compare(f"{size}, forward", infer, LEARNED_ROWS)
        compare(f"{size}, both ways", learn, LEARNED_ROWS)

    agent = ResNet(AgentConfig(num_actions=6))
    agent.compute_dtype = torch.bfloat16
    acting = agent.inference_copy()

    def make_inputs(rows: int, batch: int) -> dict[str, Tensor]:
        frame = torch.randint(256, (rows, batch, 84, 84, 4), dtype=torch.uint8)
        done = torch.zeros(rows, batch, dtype=torch.bool)
        return {"frame": frame.permute(0, 1, 4, 2, 3), "reward": done.float(), "done": done}

    rollout, batch = make_inputs(LEARNED_ROWS, 1), make_inputs(1, ACTING_ROWS)

    def learn_from_rollout() -> None:
        output, _ = agent(rollout)
        loss = output.policy_logits.square().sum() + output.baseline.sum()
        torch.autograd.grad(loss, list(agent.parameters()))

    def act() -> None:
        with torch.inference_mode():
            for _ in range(5):
                acting(batch)

    compare("ResNet, learning", learn_from_rollout, LEARNED_ROWS)
    compare("ResNet, acting", act, 5 * ACTING_ROWS)


if __name__ == "__main__":
    main()
