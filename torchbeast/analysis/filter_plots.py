"""Figures of filter distances over training."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchbeast.analysis.filter_comp import Row
from torchbeast.analysis.filters import LAYER_NAMES, SECTIONS
from torchbeast.analysis.panels import COLUMNS, PALETTE, add_legend, make_panels

# A colour per section of the network and a marker per position in it can be told apart better than
# fifteen colours.
POSITION_MARKERS = ("o", "s", "^", "v", "D")
MARGIN = 0.05  # Space above and below, as a share of the range of values.
# The comparisons of a summary, from above.
KINDS = {
    "single_single": "one game, another game",
    "single_multi": "one game, several games",
    "single_multipop": "one game, several with PopArt",
    "multi_multipop": "several games, several with PopArt",
    "same_games": "control: same games",
    "time_steps": "control: one checkpoint earlier",
    "untrained": "control: untrained networks",
}
# By the seeds of a pair: colour, place in its row, and what the legend says.
SEEDS = {
    "same": (PALETTE[0], -0.12, "began with the same weights"),
    "other": (PALETTE[1], 0.12, "began with other weights"),
    "": (PALETTE[6], 0.0, "control for both"),
}


def draw(
    rows: list[Row], match: str, metric: str, *, heatmaps: bool = False, shown: bool = False
) -> dict[str, Any]:
    """Draws a figure per comparison with a panel per pair of agents, all under one scale.

    Args:
        rows: of one or several comparisons.
        metric: sum, mean or relative.
        heatmaps: layers as rows of a picture instead of lines.
        shown: the figures are for windows.

    Returns:
        matplotlib's figures by comparison.
    """
    figures = {}
    for comparison in dict.fromkeys(row.comparison for row in rows):
        chosen = [row for row in rows if row.comparison == comparison and row.match == match]
        panels: dict[tuple[str, str], list[Row]] = {}
        for row in chosen:
            panels.setdefault((row.agent_a, row.agent_b), []).append(row)
        if panels:
            title = f"{comparison}: squared filter differences ({metric}), {match} matching"
            if match == "cka":
                title = f"{comparison}: similarity of responses in {chosen[0].game} (debiased CKA)"
            figures[comparison] = _figure(panels, title, metric, heatmaps, shown)
    return figures


def summarize(rows: list[Row], metric: str, *, shown: bool = False) -> Any:
    """Draws each pair of agents as a point at the end of training, beside the controls.

    Args:
        rows: of one or several comparisons. An agent and itself one checkpoint earlier are a pair.
        metric: sum, mean or relative.
        shown: the figure is for a window.

    Returns:
        matplotlib's figure: a panel for each matching. The position is the mean over all layers.
    """
    pairs: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        key = (row.match, row.comparison, row.agent_a, row.agent_b)
        pairs.setdefault(key, []).append(row)
    # Two single-task agents of the same game are that control, not a pair of different games.
    pairs = {
        (match, kind, a, b): of_pair
        for (match, kind, a, b), of_pair in pairs.items()
        if kind != "single_single" or (match, "same_games", a, b) not in pairs
    }
    games = {row.match: row.game for row in rows}
    drawn = {kind for _, kind, _, _ in pairs}
    kinds = [kind for kind in KINDS if kind in drawn]
    # Without that control, two agents of one game are among these pairs.
    labels_of = KINDS if "same_games" in drawn else KINDS | {"single_single": "one game each"}
    titles = [
        f"similarity of responses in {game} ({match})" if game else f"distance ({match}, {metric})"
        for match, game in games.items()
    ]
    figure, panels = make_panels(titles, height=0.8 + 0.35 * len(kinds), shown=shown)
    panel_of = dict(zip(games, panels, strict=True))
    for (match, kind, _, _), of_pair in pairs.items():
        _, values = _table(of_pair, metric)
        colour, offset, label = SEEDS[of_pair[0].seeds]
        panel_of[match].plot(
            np.nanmean(values[:, -1]), kinds.index(kind) + offset, "o", ms=5, alpha=0.6, mew=0,
            color=colour, label=label,
        )  # fmt: skip
    for i, panel in enumerate(panels):
        labels = [labels_of[kind] if i % COLUMNS == 0 else "" for kind in kinds]
        panel.set_yticks(range(len(kinds)), labels)
        panel.set_ylim(len(kinds) - 0.5, -0.5)
    add_legend(figure)
    return figure


def _figure(
    panels: dict[tuple[str, str], list[Row]], title: str, metric: str, heatmaps: bool, shown: bool
) -> Any:
    titles = [a if a == b else f"{a} - {b}" for a, b in panels]
    figure, axes = make_panels(titles, title, shown=shown)
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
        _label_steps(axis, steps, *names)
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
