"""What a run shows while it trains: a block that is redrawn in a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
from typing import Protocol, TextIO

from torchbeast.records.display.block import BlockDisplay
from torchbeast.records.display.lines import LineDisplay
from torchbeast.records.progress import Snapshot

__all__ = ["BlockDisplay", "Display", "LineDisplay", "make_display"]


class Display(Protocol):
    """Shows a run. One thread calls it."""

    def refresh(self, snapshot: Snapshot) -> None:
        """Shows the present state where that costs nothing. Called about once a second."""

    def report(self, snapshot: Snapshot) -> None:
        """Shows the present state. Called every few seconds, when a row of logs.csv is written."""

    def close(self) -> None:
        """Leaves the last output in place and restores the terminal. May be called twice."""


def make_display(stream: TextIO | None = None) -> Display:
    """Makes the display that suits a stream, by default standard error."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return BlockDisplay(stream)
    return LineDisplay(stream)
