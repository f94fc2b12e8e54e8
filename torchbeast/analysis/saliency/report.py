"""``--check``: the checks of an agent's maps, as numbers and as a figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchbeast.analysis.panels import PALETTE, make_panels, save_figure
from torchbeast.analysis.saliency.checks import (
    EDGES,
    GRADIENTS,
    MAP,
    POINTS,
    RANDOM,
    Curves,
    Faithfulness,
    GradientCheck,
    Randomisation,
    check_faithfulness,
    check_gradients,
    check_randomisation,
)
from torchbeast.analysis.saliency.film import SaliencyFilm
from torchbeast.analysis.saliency.maps import Explainer
from torchbeast.runtime.signals import StopSignals
from torchbeast.runtime.text import format_rows

CHECKED_STEPS = 6
COLUMNS = (
    *("score", "faithful", "over edges", "heads shuffled", "heads, partial", "all shuffled"),
    *("IG", "IG, partial", "IG faithful"),
)
LEGEND = (
    "faithful: gain over random orders in deletion and insertion; 1 is best, 0 none",
    "over edges: the same gain over the order of an edge detector",
    "shuffled: rank correlation with the maps after layers are shuffled; 0 is best",
    "partial: the same without what both maps share with the energy of the blur",
    "IG: rank correlation with integrated gradients; 1 is best",
)
COLOURS = {MAP: PALETTE[1], GRADIENTS: PALETTE[0], RANDOM: "gray", EDGES: PALETTE[2]}


class Check(NamedTuple):
    """The evidence about one score's maps."""

    score: str
    faithfulness: Faithfulness
    randomisation: Randomisation
    gradients: GradientCheck

    def row(self) -> tuple[float, ...]:
        """Returns the numbers of ``COLUMNS`` behind the score's name."""
        correlations, partial = (list(x.values()) for x in self.randomisation)
        return (
            self.faithfulness.gain(),
            self.faithfulness.gain(over=EDGES),
            correlations[0],
            partial[0],
            correlations[-1],
            self.gradients.correlation,
            self.gradients.partial,
            self.faithfulness.gain(GRADIENTS),
        )


def run_checks(explainer: Explainer, film: SaliencyFilm, signals: StopSignals) -> list[Check]:
    """Checks the maps of all scores on some steps, evenly spread over a film.

    Raises StopRequestedError after a signal.
    """
    signals.check()
    count = min(CHECKED_STEPS, len(film.steps))
    chosen = np.linspace(0, len(film.steps) - 1, count).round().astype(int)
    steps = [film.steps[i] for i in chosen]
    agent, grid = explainer.trained.agent, steps[0].grid
    randomisations = check_randomisation(agent, steps, film.scores, explainer.config)
    signals.check()
    checks = []
    for score in film.scores:
        maps = [film.maps[score.name][i] for i in chosen]
        gradients = check_gradients(agent, steps, score, maps, explainer.perturbation)
        signals.check()
        both = {MAP: maps, GRADIENTS: gradients.maps}
        faithfulness = check_faithfulness(agent, steps, score, both, grid)
        signals.check()
        checks.append(Check(score.name, faithfulness, randomisations[score.name], gradients))
    return checks


def format_table(checks: Sequence[Check]) -> str:
    """Formats a row per score, and what the columns mean."""
    rows = [
        COLUMNS,
        *([check.score, *(f"{number:.2f}" for number in check.row())] for check in checks),
    ]
    return "\n".join([*format_rows(rows), *LEGEND])


def save_checks(directory: Path, checks: Sequence[Check]) -> None:
    """Writes ``check.json`` and ``check.png``."""
    described = [
        {
            **dict(zip(COLUMNS, (check.score, *check.row()), strict=True)),
            **check.randomisation._asdict(),
        }
        for check in checks
    ]
    (directory / "check.json").write_text(json.dumps(described, indent=2) + "\n")
    save_figure(draw_checks(checks), directory / "check.png")


def draw_checks(checks: Sequence[Check]) -> Any:
    """Draws three panels per score: deletion, insertion, randomisation."""
    titles = []
    for check in checks:
        titles += [
            f"{check.score}: faithful {check.faithfulness.gain():.2f}",
            "restored",
            "layers shuffled from the top",
        ]
    figure, axes = make_panels(titles)
    shares = np.linspace(0, 1, POINTS)
    for check, row in zip(checks, np.reshape(np.array(axes, dtype=object), (-1, 3)), strict=True):
        for panel, kind, what in zip(row, Curves._fields, ("blurred", "restored"), strict=False):
            for name, curves in check.faithfulness.curves.items():
                panel.plot(shares, getattr(curves, kind), color=COLOURS[name], label=name)
            panel.set_xlabel(f"share of the picture that is {what}")
            panel.set_ylabel("change of the output")
            panel.legend(fontsize="small")
        correlations, partial = check.randomisation
        layers = list(correlations)
        row[2].plot(list(correlations.values()), "o-", color=PALETTE[0], label="maps")
        row[2].plot(list(partial.values()), "s--", color=PALETTE[3], label="without blur energy")
        row[2].legend(fontsize="small")
        row[2].set_xticks(range(len(layers)), layers, rotation=90, fontsize="x-small")
        row[2].set_ylabel("rank correlation of maps")
        row[2].set_ylim(-1.05, 1.05)
    return figure
