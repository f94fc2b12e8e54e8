"""Figures of several panels, as all plots of this program have them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

COLUMNS = 3
# The colours of Okabe and Ito (2008), which colour-blind readers can tell apart, by index.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
# Labels of what curves are drawn against, by field of ``torchbeast.analysis.runs.Curve``.
X_LABELS = {
    "steps": "agent steps in all games together",
    "game_steps": "agent steps in this game",
    "hours": "hours",
}
# About how many characters of a heading fit into an inch of the figure's width.
CHARACTERS_PER_INCH = 11


def make_panels(
    titles: Sequence[str],
    heading: str = "",
    *,
    width: float = 4.5,
    height: float = 3.2,
    shown: bool = False,
    **style: Any,
) -> tuple[Any, list[Any]]:
    """Makes a figure with one axes per title, three in a row; sizes in inches, of one panel.

    A heading that is wider than the figure is broken into lines. ``style`` goes to the figure,
    such as ``dpi``. With ``shown`` the figure is pyplot's, for a window or a notebook; otherwise
    it needs no display.
    """
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    make_figure: Callable[..., Figure] = pyplot.figure if shown else Figure
    columns = max(1, min(COLUMNS, len(titles)))
    rows = max(1, -(-len(titles) // columns))
    size = (1 + width * columns, 0.6 + height * rows)
    figure = make_figure(figsize=size, layout="constrained", **style)
    axes = figure.subplots(rows, columns, squeeze=False)
    if heading:
        width_inches = float(figure.get_figwidth())
        figure.suptitle(textwrap.fill(heading, round(CHARACTERS_PER_INCH * width_inches)))
    for panel, title in zip(axes.flat, titles, strict=False):
        panel.set_title(title)
        panel.set_prop_cycle(color=PALETTE)
        panel.grid(alpha=0.3)
    for panel in axes.flat[len(titles) :]:
        panel.set_visible(False)
    return figure, list(axes.flat[: len(titles)])


def label_x(panel: Any, unit: str) -> None:
    """Labels the horizontal axis of a panel with one of ``X_LABELS``; steps with unit prefixes."""
    from matplotlib.ticker import EngFormatter

    panel.set_xlabel(X_LABELS[unit])
    if unit != "hours":
        panel.xaxis.set_major_formatter(EngFormatter())


def add_legend(figure: Any) -> None:
    """Adds one legend for all panels of a figure, below them."""
    handles: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for columns in (3, 2, 1):  # As many as the names leave room for.
        legend = figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def save_panels(figure: Any, path: Path) -> Path:
    """Writes a figure with one legend for all its panels, below them.

    Args:
        figure: from :func:`make_panels`, or any other.

    Returns:
        ``path``.
    """
    add_legend(figure)
    return save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> Path:
    """Writes a figure, and returns ``path``. A PNG gets 256 colours: a third of the size."""
    from PIL import Image

    figure.savefig(path, dpi=110)
    if path.suffix == ".png":
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
    return path
