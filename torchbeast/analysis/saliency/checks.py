"""Whether a map is right: tests that a map of noise, of edges or of the wrong network fails.

- Randomisation (Adebayo et al. 2018, arXiv:1810.03292): layers are shuffled one after the other,
  from the output down. A map that explains the network changes at once. Maps have the energy of
  the blur in common, which is the picture's: the correlation without it is computed, too.
- Deletion and insertion (Petsiuk et al. 2018, arXiv:1806.07421): the places that a map ranks
  highest are blurred first, or restored first in a blurred picture. With a good map the outputs
  change early.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from torchbeast.analysis.overlays import Grid, enlarge
from torchbeast.analysis.panels import make_panels, save_figure
from torchbeast.analysis.saliency.drawing import Film
from torchbeast.analysis.saliency.explain import Explainer, Score, Step
from torchbeast.analysis.saliency.objects import (
    Counterfactual,
    agreement,
    check_objects,
    find_background,
)
from torchbeast.analysis.saliency.perturbation import Evaluation, Outputs, Perturbation, blur
from torchbeast.models import Agent
from torchbeast.runtime.text import format_rows

DENSITY = 6  # Of the masks of the maps that are checked, in pixels.
POINTS = 33  # Of a curve.
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


class Faithfulness(NamedTuple):
    """One score's curves, averaged over steps, under the map's order and two controls."""

    of_map: Curves
    of_random: Curves
    of_edges: Curves

    @property
    def over_random(self) -> float:
        """The map's gain over random orders: 1 is the best possible, 0 none."""
        return _gain(self.of_map.faithfulness, self.of_random.faithfulness)

    @property
    def over_edges(self) -> float:
        """The same over the order of an edge detector."""
        return _gain(self.of_map.faithfulness, self.of_edges.faithfulness)


def _gain(value: float, control: float) -> float:
    return (value - control) / (1 - control) if control < 1 else 0.0


class Randomisation(NamedTuple):
    """Spearman correlations with the agent's own maps, by the layer that was shuffled last."""

    correlations: dict[str, float]
    partial: dict[str, float]
    """The same without what both maps share with the energy of the blur."""


def evaluate(agent: Agent, step: Step, frames: np.ndarray) -> Outputs:
    """Computes the outputs for frames ``[N, C, H, W]`` in a step's place, as one row under
    masks.
    """
    changed = torch.from_numpy(np.ascontiguousarray(frames)).float()
    original = step.inputs.frame[0].float()
    network = Evaluation(agent, original, step.inputs, step.state)
    with torch.inference_mode():
        before, after = network.evaluate(), network.evaluate_frames(changed)
    logits, values, normalized = (x[0].numpy() for x in before)
    return Outputs(logits, values, normalized, after[0].numpy()[None], after[2].numpy()[None])


def strength(score: Score, outputs: Outputs, action: int) -> np.ndarray:
    """Computes how much a score's subject changes, ``[rows, columns]``; linear, not squared."""
    return np.sqrt(score(outputs, action))


def find_edges(step: Step) -> np.ndarray:
    """Detects edges, float ``[H, W]``: what a map without any agent would be."""
    planes = step.inputs.frame[0, 0].numpy().astype(np.float32)
    return np.mean([np.hypot(cv2.Sobel(p, -1, 1, 0), cv2.Sobel(p, -1, 0, 1)) for p in planes], 0)


def trace(agent: Agent, step: Step, score: Score, ranking: np.ndarray) -> tuple[np.ndarray, ...]:
    """Computes unscaled deletion and insertion curves ``[POINTS]``.

    Args:
        agent: is asked.
        step: what it sees.
        score: what is measured.
        ranking: ``[H, W]``, the highest are blurred or restored first.
    """
    frame = step.inputs.frame[0].float()
    blurred = blur(frame[0])[None].numpy()
    order = np.argsort(-ranking.ravel(), kind="stable")
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    counts = np.linspace(0, order.size, POINTS).round()
    chosen = place.reshape(1, *ranking.shape) < counts[:, None, None]
    deleted = np.where(chosen[:, None], blurred, frame.numpy())
    inserted = np.where(chosen[:, None], frame.numpy(), blurred)
    outputs = evaluate(agent, step, np.concatenate([deleted, inserted]))
    changes = strength(score, outputs, step.action)[0]
    return changes[:POINTS], changes[POINTS:]


def check_faithfulness(
    agent: Agent, steps: Sequence[Step], score: Score, maps: Sequence[np.ndarray], grid: Grid
) -> Faithfulness:
    """Computes deletion and insertion under a map's order, random ones and an edge detector's.

    Args:
        agent: is asked.
        steps: where.
        score: what maps are of.
        maps: of the steps, ``[rows, columns]``.
        grid: where the maps' cells are.
    """
    rng = np.random.default_rng(0)
    totals = np.zeros((3, 2, POINTS))
    for step, scores in zip(steps, maps, strict=True):
        size = (grid.height, grid.width)
        # Noise too small to matter decides among equals, which would else come row by row.
        tie = 1e-6 * rng.random(size)
        ranked = enlarge(scores / max(float(scores.max()), 1e-30), grid, *size) + tie
        random = [trace(agent, step, score, rng.random(size)) for _ in range(RANDOM_ORDERS)]
        curves = np.array(
            [
                trace(agent, step, score, ranked),
                np.mean(random, axis=0),
                trace(agent, step, score, find_edges(step) + tie),
            ]
        )
        peak = curves.max()
        # An agent that reacts to nothing: no order is better than another.
        totals += curves / peak if peak > 0 else 0.5
    return Faithfulness(*(Curves(*pair) for pair in totals / len(steps)))


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
    hooks = [
        module.register_forward_hook(lambda module, *_: used.append(module)) for module in names
    ]
    try:
        evaluate(agent, step, step.inputs.frame[0].numpy())
    finally:
        for hook in hooks:
            hook.remove()
    # Some are called by their weights, not as modules (the LSTM).
    used += [module for module in names if module not in used]
    heads: list[nn.Module] = [agent.policy, agent.baseline]
    below = [module for module in dict.fromkeys(used) if module not in heads]
    if agent.core is not None:
        below = [module for module in below if module is not agent.core] + [agent.core]
    return [("heads", heads), *((names[module], [module]) for module in reversed(below))]


def shuffle_from_top(agent: Agent, step: Step) -> Iterator[tuple[str, Agent]]:
    """Copies of an agent: with shuffled heads, with the layer below shuffled, too, and so on.

    Every parameter keeps its numbers and gets them in another order.
    """
    agent = copy.deepcopy(agent)
    generator = torch.Generator().manual_seed(0)
    for name, modules in layers_from_top(agent, step):
        with torch.no_grad():
            for module in modules:
                for parameter in module.parameters(recurse=False):
                    order = torch.randperm(parameter.numel(), generator=generator)
                    parameter.copy_(parameter.flatten()[order].view(parameter.shape))
        yield name, agent


def check_randomisation(
    agent: Agent, steps: Sequence[Step], scores: Sequence[Score], *, radius: float
) -> dict[str, Randomisation]:
    """Computes rank correlations with the agent's own maps after each layer's shuffling.

    Args:
        agent: whose layers are shuffled, in a copy.
        steps: where maps are made.
        scores: what maps are of.
        radius: of the masks.

    Returns:
        By score: means over the steps; 0 for maps without any influence.
    """
    own = make_maps(agent, steps, scores, radius=radius)
    perturbation = Perturbation(agent, density=DENSITY, radius=radius)
    energies = [perturbation.blur_energy(step.inputs) for step in steps]
    result = {score.name: Randomisation({}, {}) for score in scores}
    for layer, shuffled in shuffle_from_top(agent, steps[0]):
        maps = make_maps(shuffled, steps, scores, radius=radius)
        for name, found in result.items():
            triples = list(zip(own[name], maps[name], energies, strict=True))
            found.correlations[layer] = float(
                np.mean([rank_correlation(a, b) for a, b, _ in triples])
            )
            found.partial[layer] = float(np.mean([partial_rank_correlation(*x) for x in triples]))
    return result


def make_maps(
    agent: Agent, steps: Sequence[Step], scores: Sequence[Score], *, radius: float
) -> dict[str, list[np.ndarray]]:
    """Computes coarse maps of all steps, by score."""
    perturbation = Perturbation(agent, density=DENSITY, radius=radius)
    outputs = [perturbation(step.inputs, step.state) for step in steps]
    return {
        score.name: [score(o, step.action) for o, step in zip(outputs, steps, strict=True)]
        for score in scores
    }


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Computes Spearman's rank correlation; 0 if either array is constant."""
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


CHECKED_STEPS = 6
COLUMNS = (
    *("score", "faithful", "over edges", "heads shuffled", "heads, partial", "all shuffled"),
    *("removed", "moved"),
)
LEGEND = (
    "faithful: gain over random orders in deletion and insertion; 1 is best, 0 none",
    "over edges: the same gain over the order of an edge detector",
    "shuffled: rank correlation with the maps after layers are shuffled; 0 is best",
    "partial: the same without what both maps share with the energy of the blur; 0 is best",
    "removed, moved: rank correlation with how much objects matter; 1 is best",
)


@dataclass(frozen=True)
class Check:
    """The evidence about one score's maps."""

    score: str
    faithfulness: Faithfulness
    randomisation: Randomisation
    counterfactuals: Sequence[Counterfactual]

    def row(self) -> tuple[float | None, ...]:
        """Returns the numbers of ``COLUMNS`` behind the score's name; None where too few objects
        are in the pictures.
        """
        correlations, partial = (list(x.values()) for x in self.randomisation)
        return (
            self.faithfulness.over_random,
            self.faithfulness.over_edges,
            correlations[0],
            partial[0],
            correlations[-1],
            agreement(self.counterfactuals),
            agreement(self.counterfactuals, "moved"),
        )


def run_checks(
    explainer: Explainer, film: Film, after_part: Callable[[], object] = lambda: None
) -> list[Check]:
    """Checks the maps of all scores on some steps, evenly spread over a film.

    ``after_part`` is called before the first check and after each; what it raises ends them.
    """
    after_part()
    count = min(CHECKED_STEPS, len(film.steps))
    chosen = np.linspace(0, len(film.steps) - 1, count).round().astype(int)
    steps = [film.steps[i] for i in chosen]
    agent, grid = explainer.trained.agent, steps[0].grid
    randomisations = check_randomisation(agent, steps, film.scores, radius=explainer.config.radius)
    after_part()
    background = find_background(explainer.trained, explainer.game)
    checks = []
    for score in film.scores:
        maps = [film.maps[score.name][i] for i in chosen]
        faithfulness = check_faithfulness(agent, steps, score, maps, grid)
        after_part()
        counterfactuals = check_objects(explainer.trained, steps, score, maps, grid, background)
        after_part()
        randomisation = randomisations[score.name]
        checks.append(Check(score.name, faithfulness, randomisation, counterfactuals))
    return checks


def format_table(checks: Sequence[Check]) -> str:
    """Formats a row per score, and what the columns mean."""
    rows = [COLUMNS, *([check.score, *map(_text, check.row())] for check in checks)]
    return "\n".join([*format_rows(rows), *LEGEND])


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def save_checks(directory: Path, checks: Sequence[Check]) -> list[Path]:
    """Writes ``check.json`` and ``check.png``."""
    path = directory / "check.json"
    path.write_text(json.dumps([_describe(check) for check in checks], indent=2) + "\n")
    return [path, save_figure(draw_checks(checks), directory / "check.png")]


def _describe(check: Check) -> dict[str, Any]:
    return {
        "score": check.score,
        **dict(zip(COLUMNS[1:], check.row(), strict=True)),
        **check.randomisation._asdict(),
        "counterfactuals": [{**c._asdict(), "box": c.box._asdict()} for c in check.counterfactuals],
    }


def draw_checks(checks: Sequence[Check]) -> Any:
    """Draws three panels per score: deletion and insertion, randomisation, objects."""
    import matplotlib

    matplotlib.use("Agg")
    titles = []
    for check in checks:
        gain = check.faithfulness.over_random
        titles += [
            f"{check.score}: faithful {gain:.2f}",
            "layers shuffled from the top",
            f"objects: agreement {_text(agreement(check.counterfactuals))}",
        ]
    figure, axes = make_panels(titles)
    for check, row in zip(checks, np.reshape(np.array(axes, dtype=object), (-1, 3)), strict=True):
        _draw_curves(row[0], check.faithfulness)
        correlations, partial = check.randomisation
        layers = list(correlations)
        row[1].plot(list(correlations.values()), "o-", color="#0072B2", label="maps")
        row[1].plot(list(partial.values()), "s--", color="#D55E00", label="without blur energy")
        row[1].legend(fontsize="small")
        row[1].set_xticks(range(len(layers)), layers, rotation=90, fontsize="x-small")
        row[1].set_ylabel("rank correlation of maps")
        row[1].set_ylim(-0.5, 1.05)
        for field, colour in (("removed", "#E69F00"), ("moved", "#56B4E9")):
            x = [c.predicted for c in check.counterfactuals]
            y = [getattr(c, field) for c in check.counterfactuals]
            row[2].plot(x, y, ".", color=colour, label=field)
        row[2].set_xlabel("map on the object")
        row[2].set_ylabel("change of the output")
        row[2].legend(fontsize="small")
    return figure


def _draw_curves(axis: Any, faithfulness: Faithfulness) -> None:
    shares = np.linspace(0, 1, POINTS)
    named = (
        ("map", faithfulness.of_map, "#E69F00"),
        ("random", faithfulness.of_random, "#999999"),
        ("edges", faithfulness.of_edges, "#009E73"),
    )
    for name, curves, colour in named:
        axis.plot(shares, curves.deletion, color=colour, label=f"{name}, blurred")
        axis.plot(shares, curves.insertion, "--", color=colour, label=f"{name}, restored")
    axis.set_xlabel("share of the picture")
    axis.set_ylabel("change of the output")
    axis.legend(fontsize="xx-small", framealpha=0.5)
