"""Figures of several panels, as all plots of this program have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = 3


def make_panels(
    titles: Sequence[str],
    heading: str = "",
    *,
    width: float = 4.5,
    height: float = 3.2,
    **style: Any,
) -> tuple[Any, list[Any]]:
    """A figure and one axes per title, three in a row; sizes in inches, of one panel.

    ``style`` goes to the figure, such as ``dpi``.
    """
    from matplotlib import pyplot

    columns = max(1, min(COLUMNS, len(titles)))
    rows = max(1, -(-len(titles) // columns))
    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(1 + width * columns, 0.6 + height * rows),
        squeeze=False,
        layout="constrained",
        **style,
    )
    if heading:
        figure.suptitle(heading)
    for panel, title in zip(axes.flat, titles, strict=False):
        panel.set_title(title)
        panel.grid(alpha=0.3)
    for panel in axes.flat[len(titles) :]:
        panel.set_visible(False)
    return figure, list(axes.flat[: len(titles)])
