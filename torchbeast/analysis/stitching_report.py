"""A table and a figure of stitched agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchbeast.analysis.panels import save_figure
from torchbeast.analysis.results import make_directory, write_table
from torchbeast.analysis.stitching import Row

# Palette of Okabe and Ito.
FRONT, UNTRAINED, BACK, BLIND = "#0072B2", "#999999", "#D55E00", "#000000"
CONTROLS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9")
CONTROL_MARKERS = "sDvPX"  # Tell more controls apart than there are colours.


def save(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Writes ``stitching.csv`` and ``stitching.png``. Raises UsageError."""
    make_directory(directory)
    table, picture = directory / "stitching.csv", directory / "stitching.png"
    texts = ([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    write_table(table, Row._fields, texts)
    return [table, save_figure(draw(rows), picture, dpi=100)]


def draw(rows: Sequence[Row]) -> Any:
    """Draws a row of panels per game: policies on the left, scores on the right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    games = list(dict.fromkeys(row.game for row in rows))
    with_scores = any(row.games for row in rows)
    layers = list(dict.fromkeys(row.layer for row in rows if row.layer))
    width = max(5.2, 2.5 + 0.35 * len(layers))
    columns = 2 if with_scores else 1
    figure, axes = pyplot.subplots(
        len(games),
        columns,
        figsize=(width * columns, 4.4 * len(games)),
        squeeze=False,
        layout="constrained",
    )
    for line, game in zip(axes, games, strict=True):
        shown = [row for row in rows if row.game == game]
        back, front, blind = shown[:3]
        _draw_fronts(line[0], shown, layers, "policy")
        line[0].axhline(blind.policy, color=BLIND, ls=":", label="one policy for all frames")
        line[0].axhline(0, color=BACK, label=f"{back.front}, intact", clip_on=False)
        line[0].set_ylim(0, 1.45 * line[0].get_ylim()[1])  # Leaves room for the legend.
        line[0].set_ylabel("KL divergence from its policy, nats (0: the same)")
        line[0].set_title(f"{game}: front {front.front}, rest {back.front}")
        if with_scores:
            _draw_fronts(line[1], shown, layers, "score")
            for row, colour, dashes in ((back, BACK, "-"), (front, FRONT, "--")):
                line[1].axhline(row.score, color=colour, ls=dashes, label=f"{row.front}, intact")
                line[1].axhspan(row.score_low, row.score_high, color=colour, alpha=0.12, lw=0)
            line[1].set_ylabel("points in a full game")
            line[1].set_title(f"{game}: mean of {back.games} full games, 95 % intervals")
    for axis in axes.flat:
        axis.set_xlim(-0.4, len(layers) - 0.6)
        axis.set_xlabel("last layer of the front")
        axis.grid(alpha=0.3)
        handles, labels = axis.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        axis.legend(unique.values(), unique.keys(), fontsize="small", loc="best")
    return figure


def _draw_fronts(axis: Any, rows: Sequence[Row], layers: Sequence[str], what: str) -> None:
    """Each front's values by layer, with their intervals."""
    styles = [("front", "o-", FRONT, ""), ("untrained", "^--", UNTRAINED, "untrained front")]
    names = list(dict.fromkeys(row.front for row in rows if row.kind == "control"))
    for number, name in enumerate(names):
        colour = CONTROLS[number % len(CONTROLS)]
        marker = CONTROL_MARKERS[number // len(CONTROLS) % len(CONTROL_MARKERS)]
        styles.append((name, f"{marker}-.", colour, f"front {name} (control)"))
    fronts = list(dict.fromkeys((r.kind, r.front) for r in rows if r.layer))
    for number, (kind, front) in enumerate(fronts):
        key = front if kind == "control" else kind
        _, form, colour, label = next(style for style in styles if style[0] == key)
        chosen = [row for row in rows if (row.kind, row.front) == (kind, front)]
        values, low, high = (
            np.array([getattr(row, what + end) for row in chosen]) for end in ("", "_low", "_high")
        )
        if np.isnan(values).all():
            continue
        x = np.array([layers.index(row.layer) for row in chosen])
        axis.errorbar(
            x + 0.04 * (number - (len(fronts) - 1) / 2),
            values,
            np.clip([values - low, high - values], 0, None),
            fmt=form,
            ms=5,
            color=colour,
            label=label or f"front {front}",
        )
    axis.set_xticks(range(len(layers)), layers, fontsize="small")
    if len(layers) > 6:
        axis.tick_params(axis="x", rotation=90)
