"""Figures of filter distances over training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from torchbeast.analysis.comparison import Row
from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.analysis.panels import make_panels


def draw(rows: list[Row], match: str, metric: str, *, heatmaps: bool = False) -> dict[str, Any]:
    """A figure per comparison, by name; a panel per pair of agents.

    ``metric``: sum or mean. Lines are layers, from dark (first) to light (last); with ``heatmaps``
    rows are layers.
    """
    figures = {}
    for comparison in dict.fromkeys(row.comparison for row in rows):
        chosen = [row for row in rows if row.comparison == comparison and row.match == match]
        panels: dict[tuple[str, str], list[Row]] = {}
        for row in chosen:
            panels.setdefault((row.agent_a, row.agent_b), []).append(row)
        if panels:
            title = f"{comparison}: {metric} of squared filter differences, {match} matching"
            if match == "cka":
                title = f"{comparison}: likeness of responses (linear CKA)"
            figures[comparison] = _figure(panels, title, metric, heatmaps)
    return figures


def _figure(
    panels: dict[tuple[str, str], list[Row]], title: str, metric: str, heatmaps: bool
) -> Any:
    titles = [a if a == b else f"{a} - {b}" for a, b in panels]
    figure, axes = make_panels(titles, title)
    for axis, rows in zip(axes, panels.values(), strict=True):
        steps = sorted({row.step_a for row in rows})
        values = np.full((len(LAYER_NAMES), len(steps)), np.nan)
        for row in rows:
            values[LAYER_NAMES.index(row.layer), steps.index(row.step_a)] = getattr(row, metric)
        if heatmaps:
            _heatmap(figure, axis, steps, values)
        else:
            _lines(axis, steps, values)
    if not heatmaps:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", title="layer", fontsize="small")
    return figure


def _lines(axis: Any, steps: list[int], values: np.ndarray) -> None:
    from matplotlib import pyplot

    colours = pyplot.get_cmap("viridis")
    millions = np.array(steps) / 1e6
    for i, (name, line) in enumerate(zip(LAYER_NAMES, values, strict=True)):
        colour = colours(i / (len(LAYER_NAMES) - 1))
        axis.plot(millions, line, "o-", ms=3, label=name, color=colour)
    axis.set_xlabel("million agent steps")


def _heatmap(figure: Any, axis: Any, steps: list[int], values: np.ndarray) -> None:
    image = axis.imshow(values, aspect="auto", cmap="viridis")
    axis.grid(visible=False)
    axis.set_yticks(range(len(LAYER_NAMES)), LAYER_NAMES, fontsize="small")
    axis.set_xticks(range(len(steps)), [f"{step / 1e6:.2g}M" for step in steps], rotation=45)
    figure.colorbar(image, ax=axis)


def save(figures: dict[str, Any], directory: Path, suffix: str) -> list[Path]:
    """Writes each figure as PNG."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(directory / f"{name}_{suffix}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths
