"""How alike two agents respond, beside what agents without common learning reach.

Linear CKA (Kornblith et al. 2019) of untrained networks is far from 0, and it depends on the number
of frames. Here it is computed from unbiased estimates (Song et al. 2012, equation 5), with
intervals over frames. Beside it are the band of pairs of untrained networks and, where there is
one, a pair of agents of the same game from other seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchbeast.analysis.activations import debiased_cka, gram, respond
from torchbeast.analysis.moments import play_frames
from torchbeast.analysis.panels import make_panels, save_figure
from torchbeast.analysis.results import make_directory, write_table
from torchbeast.analysis.untrained import make_untrained
from torchbeast.envs.games import short_name
from torchbeast.evaluate.trained import Trained
from torchbeast.models import Agent

UNTRAINED_PAIRS = 4
SUBSAMPLES = 200
INTERVAL = (2.5, 97.5)  # Percentiles.


class LayerSimilarity(NamedTuple):
    """One layer's CKA on one game; intervals are over frames, the band over untrained pairs."""

    game: str
    layer: str
    cka: float
    low: float
    high: float
    untrained_low: float
    untrained_high: float
    control: float  # Of the pair of the same game and other seeds; NaN without one.


def find_interval(a: np.ndarray, b: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Computes an interval for :func:`debiased_cka` over the choice of frames.

    From halves of the frames, drawn without replacement: they vary as much around the whole as
    whole samples around the truth. A bootstrap would pair frames with themselves.
    """
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(SUBSAMPLES):
        chosen = rng.choice(len(a), len(a) // 2, replace=False)
        part = np.ix_(chosen, chosen)
        values.append(debiased_cka(a[part], b[part]))
    low, high = np.percentile(values, INTERVAL)
    return float(low), float(high)


def find_layers(agent: Agent) -> dict[str, nn.Module]:
    """Finds the encoder's convolutions and linear layers, by name, in the order of the data."""
    found: list[str] = []
    names = {
        module: name
        for name, module in agent.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
        and name.split(".")[0] not in agent.float32_modules
    }
    hooks = [
        module.register_forward_hook(lambda module, *_: found.append(names[module]))
        for module in names
    ]
    try:
        with torch.inference_mode():
            agent.encode_frames(
                torch.zeros(1, *agent.config.observation_shape), torch.zeros(1, dtype=torch.int64)
            )
    finally:
        for hook in hooks:
            hook.remove()
    return {name: agent.get_submodule(name) for name in found}


def respond_by_layer(agent: Agent, frames: Tensor, task: int) -> dict[str, np.ndarray]:
    """Computes the :func:`gram` matrix of every layer's outputs, as :func:`respond` does."""
    return respond(agent, find_layers(agent), frames, task, gram)


def compare_on_game(
    a: Trained,
    b: Trained,
    game: str,
    num_frames: int,
    control: Sequence[Trained] = (),
    *,
    seed: int = 0,
) -> list[LayerSimilarity]:
    """Compares two agents layer by layer on frames of one game, which the first one plays.

    Args:
        a: one agent.
        b: another of the same network.
        game: id.
        num_frames: how many.
        control: two agents of the same game from other seeds.
        seed: of the frames.

    Raises:
        UsageError: the first one cannot play the game.
    """
    agents = [a, b, *control]
    frames = play_frames(a, game, num_frames, seed=seed)
    one, other, *rest = (respond_by_layer(x.agent, frames, x.find_task(game)) for x in agents)
    untrained = [
        respond_by_layer(make_untrained(a.agent, number), frames, a.find_task(game))
        for number in range(UNTRAINED_PAIRS + 1)
    ]
    rows = []
    for layer in one:
        first, *others = (grams[layer] for grams in untrained)
        band = [debiased_cka(first, second) for second in others]
        same = debiased_cka(*(grams[layer] for grams in rest)) if rest else float("nan")
        pair = one[layer], other[layer]
        interval = find_interval(*pair)
        rows.append(
            LayerSimilarity(
                short_name(game), layer, debiased_cka(*pair), *interval, min(band), max(band), same
            )
        )
    return rows


def save(rows: Sequence[LayerSimilarity], directory: Path, title: str) -> list[Path]:
    """Writes ``similarity.csv`` and ``similarity.png``. Raises UsageError."""
    make_directory(directory)
    table, picture = directory / "similarity.csv", directory / "similarity.png"
    write_table(table, LayerSimilarity._fields, rows)
    return [table, save_figure(draw(rows, title), picture)]


def draw(rows: Sequence[LayerSimilarity], title: str) -> Any:
    """Draws a panel per game, all under one scale."""
    import matplotlib

    matplotlib.use("Agg")
    games = list(dict.fromkeys(row.game for row in rows))
    figure, axes = make_panels(games, title, height=4.2)
    for axis, game in zip(axes, games, strict=True):
        of_game = [row for row in rows if row.game == game]
        x = np.arange(len(of_game))
        columns = zip(*(row[2:] for row in of_game), strict=True)
        cka, low, high, untrained_low, untrained_high, control = map(np.array, columns)
        axis.fill_between(
            x, untrained_low, untrained_high, color="#999999", alpha=0.5, label="untrained pairs"
        )
        if np.isfinite(control).all():
            label = "same game, other seed"
            axis.plot(x, control, "s--", ms=4, color="#009E73", label=label)
        reach = np.clip([cka - low, high - cka], 0, None)
        axis.errorbar(x, cka, reach, fmt="o-", ms=4, color="#0072B2", label="these two")
        axis.set_xticks(x, [row.layer for row in of_game], rotation=90, fontsize="small")
        axis.set_ylim(-0.05, 1.05)
        axis.set_ylabel("CKA, debiased")
    axes[0].legend(fontsize="small")
    return figure
