"""Saliency: masks in batches, beside one picture at a time.

    python benchmarks/saliency.py [--model models/Pong] [--masks 40] [--repeats 5]

CPU seconds per frame of a game at density 2, for both maps (policy and value): every method runs
on one thread, so that other work on the machine changes the figures little, and methods take turns.
The method as published makes a mask, blurs the picture and asks the network once per place, in
float32, for the policy's map and once more for the value's; it is timed on some of the places and
scaled up. The last line is the time on all cores.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from torchbeast.analysis.saliency import Outputs, Perturbation, SaliencyConfig
from torchbeast.analysis.saliency.maps import Score
from torchbeast.core.types import AgentOutput, EnvOutput
from torchbeast.models import Agent
from torchbeast.models.agent import CoreState
from torchbeast.play.agents import read_agent
from torchbeast.play.game_loop import GameLoop, open_games
from torchbeast.runtime.precision import choose_dtype, keep_freed_pages
from torchbeast.runtime.threads import available_cores

AGENT = Path(__file__).parent.parent / "models" / "Pong"
DENSITY, RADIUS = 2, 5


def squared_changes(before: AgentOutput, after: AgentOutput) -> list[float]:
    """Of the policy, and of the value of the first game."""
    policy = after.policy_logits - before.policy_logits
    value = (after.normalized_baseline - before.normalized_baseline)[..., 0]
    return [0.5 * change.square().sum().item() for change in (policy, value)]


def one_at_a_time(
    agent: Agent, inputs: EnvOutput, state: CoreState, places: list[tuple[int, int]]
) -> np.ndarray:
    """Scores ``[places, 2]``: of the policy and the value."""
    frame = inputs.frame[0, 0].numpy().astype(np.float32)
    fields = inputs._asdict()
    scores = []
    with torch.no_grad():
        before, _ = agent(fields, state)
        for row, column in places:
            mask = np.zeros(frame.shape[1:], np.float32)
            mask[row, column] = 1
            mask = gaussian_filter(mask, RADIUS, truncate=30, mode="constant")
            mask /= mask.max()
            blurred = np.stack([gaussian_filter(plane, 3) for plane in frame])
            picture = frame * (1 - mask) + blurred * mask
            fields["frame"] = torch.from_numpy(picture).view(1, 1, *frame.shape)
            after, _ = agent(fields, state)
            scores.append(squared_changes(before, after))
    return np.array(scores)


def choose_places(count: int) -> list[tuple[int, int]]:
    """Random cells of the grid of masks."""
    side = len(range(0, 84, DENSITY))
    chosen = np.random.default_rng(0).choice(side * side, size=count, replace=False)
    return [(i // side, i % side) for i in chosen.tolist()]


def largest_difference(outputs: Outputs, slow: np.ndarray, places: list[tuple[int, int]]) -> float:
    """How far both maps are from the plain loop's scores at ``places``, as a share of its peak."""
    maps = (
        Score("policy", "policy", "logits²/2")(outputs, 0),
        Score("value", "value", "returns²/2", 0)(outputs, 0),
    )
    rows, columns = np.array(places).T
    return max(
        float(np.abs(scores[rows, columns] - slow[:, i]).max() / slow[:, i].max())
        for i, scores in enumerate(maps)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--masks", type=int, default=40, help="Timed one at a time.")
    parser.add_argument("--repeats", type=int, default=5, help="The fastest of so many counts.")
    parser.add_argument("--model", type=Path, default=AGENT, help="Directory of an agent.")
    flags = parser.parse_args()
    keep_freed_pages()
    torch.set_num_threads(1)
    trained = read_agent(flags.model)
    agent = trained.agent
    game = agent.config.tasks[0]
    with open_games(trained, game) as envs:
        loop = GameLoop(trained, game, envs)
        for _ in range(60):
            loop.step()

    cells = choose_places(flags.masks)
    places = [(DENSITY * row, DENSITY * column) for row, column in cells]
    methods: dict[str, Callable[[], Any]] = {
        "one picture at a time": lambda: one_at_a_time(agent, loop.inputs, loop.state, places)
    }
    for dtype in dict.fromkeys((torch.float32, choose_dtype("auto", torch.device("cpu")))):
        made = Perturbation(agent, SaliencyConfig(DENSITY, RADIUS, dtype=dtype))
        name = f"batches, {str(dtype).removeprefix('torch.')}"
        methods[name] = functools.partial(made, loop.inputs, loop.state)
    seconds = {name: float("inf") for name in methods}
    results = {}
    for _ in range(flags.repeats):
        for name, method in methods.items():
            start = time.process_time()
            results[name] = method()
            seconds[name] = min(seconds[name], time.process_time() - start)
    first = next(iter(methods))
    side = len(range(0, 84, DENSITY))
    # One pass for each of both maps.
    seconds[first] *= 2 * side * side / len(places)
    for name, taken in seconds.items():
        line = f"{name:32}{taken:8.2f} CPU s a frame, {seconds[first] / taken:6.1f} x"
        if name != first:
            line += f", off by {largest_difference(results[name], results[first], cells):.1e}"
        print(line)
    torch.set_num_threads(available_cores())
    fastest = Perturbation(agent, SaliencyConfig(DENSITY, RADIUS, dtype=dtype))
    times = []
    for _ in range(flags.repeats):
        start = time.perf_counter()
        fastest(loop.inputs, loop.state)
        times.append(time.perf_counter() - start)
    print(f"the last on {available_cores()} cores: {min(times):.2f} s a frame")


if __name__ == "__main__":
    main()
