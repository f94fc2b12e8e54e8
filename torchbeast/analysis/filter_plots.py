"""Figures of filter distances over training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from torchbeast.analysis.filter_comp import Row
from torchbeast.analysis.filters import LAYER_NAMES, SECTIONS
from torchbeast.analysis.panels import PALETTE, add_legend, make_panels
from torchbeast.analysis.results import make_directory

# A colour per section of the network and a marker per position in it can be told apart better than
# fifteen colours.
POSITION_MARKERS = ("o", "s", "^", "v", "D")
MARGIN = 0.05  # Of the range of values, above and below.


def draw(rows: list[Row], match: str, metric: str, *, heatmaps: bool = False) -> dict[str, Any]:
    """Draws a figure per comparison with a panel per pair of agents, all under one scale.

    Args:
        rows: of one or several comparisons.
        match: which of their matchings.
        metric: sum, mean or relative.
        heatmaps: layers as rows of a picture instead of lines.

    Returns:
        matplotlib's figures by comparison.
    """
    figures = {}
    for comparison in dict.fromkeys(row.comparison for row in rows):
        chosen = [row for row in rows if row.comparison == comparison and row.match == match]
        panels: dict[tuple[str, str, str], list[Row]] = {}
        for row in chosen:
            panels.setdefault((row.agent_a, row.agent_b, row.game), []).append(row)
        if panels:
            title = f"{comparison}: squared filter differences ({metric}), {match} matching"
            if match == "cka":
                title = f"{comparison}: similarity of responses (debiased CKA)"
            figures[comparison] = _figure(panels, title, metric, heatmaps)
    return figures


def summarize(rows: list[Row], metric: str) -> Any:
    """Draws the mean over all layers of each pair against the share of its steps, in a panel per
    matching, of ``cka`` per game.

    It is the share of training. With --match_num_models it ends where the shorter of the two
    trainings ends.

    Args:
        rows: of one or several comparisons. An agent and itself one checkpoint later are a pair.
        metric: sum, mean or relative.

    Returns:
        matplotlib's figure.
    """
    # Two agents of one game are a control, not two single agents among others.
    controls = {(row.agent_a, row.agent_b) for row in rows if row.comparison == "same_games"}
    lines: dict[tuple[tuple[str, str], str, tuple[str, str]], list[Row]] = {}
    for row in rows:
        pair = (row.agent_a, row.agent_b)
        is_control = row.comparison == "single_single" and pair in controls
        if not is_control:
            lines.setdefault(((row.match, row.game), row.comparison, pair), []).append(row)
    subjects = list(dict.fromkeys(subject for subject, _, _ in lines))
    comparisons = list(dict.fromkeys(comparison for _, comparison, _ in lines))
    titles = [f"{m}: {f'similarity, {g}' if g else f'distance ({metric})'}" for m, g in subjects]
    figure, panels = make_panels(titles, "Pairs of agents over training, means over layers")
    for (subject, comparison, _), of_pair in lines.items():
        panel, colour = panels[subjects.index(subject)], PALETTE[comparisons.index(comparison)]
        _draw_means(panel, of_pair, metric, label=comparison, color=colour)
    for panel in panels:
        panel.set(xlabel="share of the steps compared", xlim=(0, 1 + MARGIN))
    add_legend(figure)
    return figure


def _draw_means(panel: Any, rows: list[Row], metric: str, **style: Any) -> None:
    """One pair: a curve, or a level line for two networks that were not trained."""
    steps, values = _table(rows, metric)
    means = np.nanmean(values, axis=0)
    end = max(max(pair) for pair in steps)
    if end == 0:
        panel.axhline(means[0], linestyle="--", **style)
        return
    panel.plot([max(pair) / end for pair in steps], means, marker="o", ms=3, **style)


def _figure(
    panels: dict[tuple[str, str, str], list[Row]], title: str, metric: str, heatmaps: bool
) -> Any:
    titles = [(a if a == b else f"{a} - {b}") + (game and f", {game}") for a, b, game in panels]
    figure, axes = make_panels(titles, title)
    tables = [_table(rows, metric) for rows in panels.values()]
    low = min(np.nanmin(table) for _, table in tables)
    high = max(np.nanmax(table) for _, table in tables)
    for axis, (steps, table), names in zip(axes, tables, panels, strict=True):
        if heatmaps:
            image = _heatmap(axis, table, low, high)
        else:
            _lines(axis, table)
            margin = MARGIN * max(high - low, 1e-12)
            axis.set_ylim(low - margin, high + margin)
        _label_steps(axis, steps, *names[:2])
    if heatmaps:
        figure.colorbar(image, ax=axes)
    else:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", title="layer", fontsize="small")
    return figure


def _table(rows: list[Row], metric: str) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Pairs of steps, and values ``[layers, pairs]``."""
    steps = sorted({(row.step_a, row.step_b) for row in rows})
    values = np.full((len(LAYER_NAMES), len(steps)), np.nan)
    for row in rows:
        column = steps.index((row.step_a, row.step_b))
        values[LAYER_NAMES.index(row.layer), column] = getattr(row, metric)
    return steps, values


def _label_steps(axis: Any, steps: list[tuple[int, int]], a: str, b: str) -> None:
    """Ticks with both agents' steps."""
    labels = [f"{one / 1e6:.3g}\n{other / 1e6:.3g}" for one, other in steps]
    axis.set_xticks(range(len(steps)), labels, fontsize="small")
    names = "before, below after" if a == b else f"of {a}, below of {b}"
    axis.set_xlabel(f"million agent steps {names}", fontsize="small")


def _lines(axis: Any, values: np.ndarray) -> None:
    per_section = len(LAYER_NAMES) // SECTIONS
    for i, (name, line) in enumerate(zip(LAYER_NAMES, values, strict=True)):
        colour = PALETTE[i // per_section]
        marker = POSITION_MARKERS[i % per_section]
        axis.plot(line, marker=marker, ms=4, lw=1, label=name, color=colour)


def _heatmap(axis: Any, values: np.ndarray, low: float, high: float) -> Any:
    image = axis.imshow(values, aspect="auto", cmap="viridis", vmin=low, vmax=high)
    axis.grid(visible=False)
    axis.set_yticks(range(len(LAYER_NAMES)), LAYER_NAMES, fontsize="small")
    return image


def save(figures: dict[str, Any], directory: Path, suffix: str) -> list[Path]:
    """Writes each figure as PNG."""
    make_directory(directory)
    paths = []
    for name, figure in figures.items():
        paths.append(directory / f"{name}_{suffix}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths
