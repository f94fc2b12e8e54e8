"""Whether a map is right: tests that a map of noise, of edges or of the wrong network fails.

- Randomisation (Adebayo et al. 2018, arXiv:1810.03292): layers are shuffled one after the other,
  from the output down. A map that explains the network changes at once. Maps have the energy of
  the blur in common, which is the picture's: the correlation without it is computed, too.
- Deletion and insertion (Petsiuk et al. 2018, arXiv:1806.07421): the places that a map ranks
  highest are blurred first, or restored first in a blurred picture. With a good map the outputs
  change early.
- Integrated gradients: a map of another method, and how well it does in deletion and insertion.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from torchbeast.analysis.overlays import Grid, enlarge, scale_to
from torchbeast.analysis.saliency.gradients import integrated_gradients
from torchbeast.analysis.saliency.maps import Score, Step
from torchbeast.analysis.saliency.perturbation import (
    Perturbation,
    SaliencyConfig,
    blur,
    compute_outputs,
)
from torchbeast.models import Agent

DENSITY = 6  # Pixels between the masks of the maps that are checked.
POINTS = 33  # The points of a curve.
RANDOM_ORDERS = 4


class Curves(NamedTuple):
    """How much outputs have changed when a share of the picture is blurred, or restored.

    Each is float ``[POINTS]``, shares from 0 to 1, in units of the largest change of all.
    """

    deletion: np.ndarray
    insertion: np.ndarray

    @property
    def faithfulness(self) -> float:
        """1: the first places decide all; about 0.5: a random order."""
        # At both ends, nothing and everything is blurred, whatever the order.
        return (float(self.deletion[1:-1].mean()) + 1 - float(self.insertion[1:-1].mean())) / 2


# What ranks the places.
MAP, GRADIENTS, RANDOM, EDGES = "map", "gradients", "random", "edges"


class Faithfulness(NamedTuple):
    """One score's curves, averaged over steps, by what ranked the places."""

    curves: dict[str, Curves]

    def gain(self, ranking: str = MAP, over: str = RANDOM) -> float:
        """Returns a ranking's gain over another: 1 is the best possible, 0 none."""
        value, control = (self.curves[name].faithfulness for name in (ranking, over))
        return (value - control) / (1 - control) if control < 1 else 0.0


class GradientCheck(NamedTuple):
    """Integrated gradients of one score, pooled into the cells of its maps."""

    maps: list[np.ndarray]
    correlation: float
    """Spearman correlation with the maps, the mean over steps."""
    partial: float
    """The same without what both share with the energy of the blur."""


class Randomisation(NamedTuple):
    """Spearman correlations with the agent's own maps, by the layer that was shuffled last."""

    correlations: dict[str, float]
    partial: dict[str, float]
    """The same without what both maps share with the energy of the blur."""


def find_edges(step: Step) -> np.ndarray:
    """Detects edges, float ``[H, W]``: what a map without any agent would be."""
    planes = step.inputs.frame[0, 0].numpy().astype(np.float32)
    return np.mean([np.hypot(cv2.Sobel(p, -1, 1, 0), cv2.Sobel(p, -1, 0, 1)) for p in planes], 0)


@torch.inference_mode()
def trace(agent: Agent, step: Step, score: Score, ranking: np.ndarray) -> np.ndarray:
    """Computes unscaled deletion and insertion curves ``[2, POINTS]``, roots of scores.

    For squared scores the root is the size of the change. For ``action`` it stretches the scale.

    Args:
        ranking: ``[H, W]``, the highest are blurred or restored first.
    """
    frame = step.inputs.frame[0].float()
    blurred = blur(frame[0])[None]
    order = np.argsort(-ranking.ravel(), kind="stable")
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    counts = np.linspace(0, order.size, POINTS).round()
    chosen = torch.from_numpy(place.reshape(ranking.shape) < counts[:, None, None])[:, None]
    deleted, inserted = torch.where(chosen, blurred, frame), torch.where(chosen, frame, blurred)
    frames = torch.cat([frame, deleted, inserted])
    logits, _, values = compute_outputs(agent, frames, step.inputs, step.state)
    change = score.change((logits[0], values[0]), (logits[1:], values[1:]), step.action)
    return change.sqrt().numpy().reshape(2, POINTS)


def check_gradients(
    agent: Agent,
    steps: Sequence[Step],
    score: Score,
    maps: Sequence[np.ndarray],
    perturbation: Perturbation,
) -> GradientCheck:
    """Computes integrated gradients, and how they agree with maps.

    Args:
        score: what maps are of.
        maps: of the steps, ``[rows, columns]``.
    """
    found = [perturbation.pool(integrated_gradients(agent, step, score)) for step in steps]
    energies = [perturbation.blur_energy(step.inputs) for step in steps]
    return GradientCheck(found, *mean_correlations(maps, found, energies))


def check_faithfulness(
    agent: Agent,
    steps: Sequence[Step],
    score: Score,
    maps: Mapping[str, Sequence[np.ndarray]],
    grid: Grid,
) -> Faithfulness:
    """Computes deletion and insertion in the order of maps, at random, and by an edge detector.

    Args:
        maps: of the steps, ``[rows, columns]``, by the name of what made them.
        grid: where the maps' cells are.
    """
    rng = np.random.default_rng(0)
    size = (grid.height, grid.width)
    totals = {name: np.zeros((2, POINTS)) for name in (*maps, RANDOM, EDGES)}
    for i, step in enumerate(steps):
        # Noise too small to matter decides among equals, which would else come row by row.
        tie = 1e-6 * rng.random(size)
        random = [trace(agent, step, score, rng.random(size)) for _ in range(RANDOM_ORDERS)]
        curves = {
            RANDOM: np.mean(random, axis=0),
            EDGES: trace(agent, step, score, find_edges(step) + tie),
        }
        for name, of_steps in maps.items():
            ranked = enlarge(scale_to(of_steps[i], float(of_steps[i].max())), grid, *size)
            curves[name] = trace(agent, step, score, ranked + tie)
        peak = max(curve.max() for curve in curves.values())
        for name, curve in curves.items():
            # An agent that reacts to nothing: no order is better than another.
            totals[name] += curve / peak if peak > 0 else 0.5
    return Faithfulness({name: Curves(*total / len(steps)) for name, total in totals.items()})


def layers_from_top(agent: Agent, step: Step) -> list[tuple[str, list[nn.Module]]]:
    """Returns the layers with weights in the reverse order of their use.

    Policy and values are one.
    """
    names = {
        module: name
        for name, module in agent.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    }
    used: list[nn.Module] = []
    with (
        torch.inference_mode(),
        register_module_forward_hook(lambda module, *_: used.append(module)),
    ):
        compute_outputs(agent, step.inputs.frame[0].float(), step.inputs, step.state)
    heads: list[nn.Module] = [agent.policy, agent.baseline]
    # No hook sees the LSTM, whose weights are used without a call of the module. It is used last.
    in_order = dict.fromkeys([*(module for module in used if module in names), *names])
    below = [module for module in in_order if module not in heads]
    return [("heads", heads), *((names[module], [module]) for module in reversed(below))]


def shuffle_from_top(agent: Agent, step: Step) -> Iterator[tuple[str, Agent]]:
    """Copies of an agent: with shuffled heads, with the layer below shuffled, too, and so on.

    Every parameter keeps its numbers and gets them in another order.
    """
    agent = copy.deepcopy(agent)
    agent.compute_dtype = torch.float32  # A kernel for bfloat16 would hide layers from the hook.
    generator = torch.Generator().manual_seed(0)
    for name, modules in layers_from_top(agent, step):
        with torch.no_grad():
            for module in modules:
                for parameter in module.parameters(recurse=False):
                    order = torch.randperm(parameter.numel(), generator=generator)
                    parameter.copy_(parameter.flatten()[order].view(parameter.shape))
        yield name, agent


def check_randomisation(
    agent: Agent, steps: Sequence[Step], scores: Sequence[Score], config: SaliencyConfig
) -> dict[str, Randomisation]:
    """Computes rank correlations with the agent's own maps after each layer's shuffling.

    Args:
        agent: whose layers are shuffled, in a copy.
        scores: what maps are of.
        config: of the maps; their masks are ``DENSITY`` pixels apart instead.

    Returns:
        By score: means over the steps; 0 for maps without any influence.
    """
    config = replace(config, density=DENSITY)
    perturbation = Perturbation(agent, config)
    own = make_maps(perturbation, steps, scores)
    energies = [perturbation.blur_energy(step.inputs) for step in steps]
    result = {score.name: Randomisation({}, {}) for score in scores}
    for layer, shuffled in shuffle_from_top(agent, steps[0]):
        maps = make_maps(Perturbation(shuffled, config), steps, scores)
        for name, found in result.items():
            found.correlations[layer], found.partial[layer] = mean_correlations(
                own[name], maps[name], energies
            )
    return result


def make_maps(
    perturbation: Perturbation, steps: Sequence[Step], scores: Sequence[Score]
) -> dict[str, list[np.ndarray]]:
    """Computes maps of all steps, by score."""
    outputs = [perturbation(step.inputs, step.state) for step in steps]
    return {
        score.name: [score(o, step.action) for o, step in zip(outputs, steps, strict=True)]
        for score in scores
    }


def mean_correlations(
    maps: Iterable[np.ndarray], others: Iterable[np.ndarray], energies: Iterable[np.ndarray]
) -> tuple[float, float]:
    """Computes the mean rank correlation of maps with others, and the mean of what is left of it
    without the energy of the blur.
    """
    triples = list(zip(maps, others, energies, strict=True))
    whole = np.mean([rank_correlation(a, b) for a, b, _ in triples])
    return float(whole), float(np.mean([partial_rank_correlation(*x) for x in triples]))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Computes Spearman's rank correlation; 0 if either array is constant."""
    # Imported late: it takes a second or more, and only --check needs it.
    from scipy.stats import spearmanr

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a.ravel(), b.ravel()).statistic)


def partial_rank_correlation(a: np.ndarray, b: np.ndarray, control: np.ndarray) -> float:
    """Computes Spearman's rank correlation of what is left of ``a`` and ``b`` after a regression on
    ``control``; 0 if nothing is left.
    """
    ab, ac, bc = (rank_correlation(x, y) for x, y in ((a, b), (a, control), (b, control)))
    rest = (1 - ac**2) * (1 - bc**2)
    return (ab - ac * bc) / float(np.sqrt(rest)) if rest > 1e-12 else 0.0
