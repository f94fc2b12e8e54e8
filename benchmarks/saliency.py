"""Saliency: all masks in batches, beside one blurred picture at a time.

    python benchmarks/saliency.py [--model models/PongResNet] [--masks 200]

Seconds per frame of Pong at density 2, policy and value map. The other method makes a mask, blurs
the picture and asks the network once per place, in float32: for the policy's map and once more for
the value's, as the program published with Greydanus et al. does, or once for both. It is timed on
some of the places and scaled up.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from torchbeast.analysis.saliency import Perturbation, parse_scores
from torchbeast.core.precision import choose_dtype, keep_freed_pages
from torchbeast.core.threads import available_cores
from torchbeast.evaluate.playing import GameLoop, make_games, read_trained

MODELS = Path(__file__).parent.parent / "models"
GAME = "PongNoFrameskip-v4"
DENSITY, RADIUS = 2, 5
FRAMES = 3
HEADS = ("policy_logits", "baseline")


def squared_change(before, after, field: str) -> float:
    return 0.5 * (getattr(after, field) - getattr(before, field)).square().sum().item()


def one_at_a_time(
    agent, inputs, places: list[tuple[int, int]], heads: tuple[str, ...]
) -> np.ndarray:
    """Scores ``[places, heads]``."""
    frame = inputs.frame[0, 0].numpy().astype(np.float32)
    fields = inputs._asdict()
    scores = []
    with torch.no_grad():
        before, _ = agent(fields)
        for row, column in places:
            mask = np.zeros(frame.shape[1:], np.float32)
            mask[row, column] = 1
            mask = gaussian_filter(mask, RADIUS, truncate=30, mode="constant")
            mask /= mask.max()
            blurred = np.stack([gaussian_filter(plane, 3) for plane in frame])
            picture = frame * (1 - mask) + blurred * mask
            fields["frame"] = torch.from_numpy(picture).view(1, 1, *frame.shape)
            after, _ = agent(fields)
            scores.append([squared_change(before, after, head) for head in heads])
    return np.array(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODELS / "PongResNet")
    parser.add_argument("--masks", type=int, default=200, help="Timed one at a time.")
    flags = parser.parse_args()
    keep_freed_pages()
    torch.set_num_threads(available_cores())
    trained = read_trained(flags.model / "model.tar", flags.model.name)
    agent = trained.agent
    loop = GameLoop(trained, GAME, make_games(trained, GAME))
    for _ in range(60):
        loop.step()

    rng = np.random.default_rng(0)
    count = len(range(0, 84, DENSITY))
    chosen = rng.choice(count * count, size=flags.masks, replace=False)
    places = [(DENSITY * (i // count), DENSITY * (i % count)) for i in chosen.tolist()]
    seconds = {}
    slow = np.zeros((0, 0))
    for passes in ([HEADS], [HEADS[:1], HEADS[1:]]):
        start = time.perf_counter()
        scores = [one_at_a_time(agent, loop.inputs, places, heads) for heads in passes]
        seconds[len(passes)] = (time.perf_counter() - start) / len(places) * count * count
        slow = np.concatenate(scores, axis=1)
    baseline = seconds[2]
    print(f"one picture at a time, per map      {baseline:8.2f} s a frame")
    print(
        f"one picture at a time, both maps    {seconds[1]:8.2f} s a frame, "
        f"{baseline / seconds[1]:5.1f} x"
    )
    for dtype in dict.fromkeys((torch.float32, choose_dtype("auto", torch.device("cpu")))):
        agent.compute_dtype = dtype
        saliency = PerturbationSaliency(agent, 0, density=DENSITY, radius=RADIUS)
        maps = saliency(loop.inputs, loop.state)
        start = time.perf_counter()
        for _ in range(FRAMES):
            saliency(loop.inputs, loop.state)
        fast_seconds = (time.perf_counter() - start) / FRAMES
        errors = [
            np.abs(fast.ravel()[chosen] - slow[:, i]).max() / slow[:, i].max()
            for i, fast in enumerate(maps)
        ]
        name = str(dtype).removeprefix("torch.")
        print(
            f"batches of masks, {name:16}  {fast_seconds:8.2f} s a frame, "
            f"{baseline / fast_seconds:5.1f} x, "
            f"largest difference {max(errors):.1e} of the peak"
        )


if __name__ == "__main__":
    main()
