"""``--check``: the checks of an agent's maps, as numbers and as a figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchbeast.analysis.panels import make_panels, save_figure
from torchbeast.analysis.saliency.checks import (
    POINTS,
    Faithfulness,
    Randomisation,
    check_faithfulness,
    check_randomisation,
)
from torchbeast.analysis.saliency.drawing import Film
from torchbeast.analysis.saliency.maps import Explainer
from torchbeast.analysis.saliency.objects import (
    Counterfactual,
    agreement,
    check_objects,
    find_background,
)
from torchbeast.runtime.text import format_rows

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
