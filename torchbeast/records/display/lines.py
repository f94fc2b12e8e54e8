"""Progress as plain lines, for files, pipes and terminals that cannot move their cursor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TextIO

from torchbeast.records.display.table import run_parts, table_lines
from torchbeast.records.progress import Snapshot
from torchbeast.runtime.text import human_return

# Seconds between two tables of all games.
TABLE_INTERVAL_S = 60.0
TABLE_WIDTH = 100


class LineDisplay:
    """Writes a short line per report, and every minute a table if there are several games."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` is the present time in seconds."""
        self._stream = stream
        self._clock = clock
        self._next_table = clock() + TABLE_INTERVAL_S
        self._waits = False  # Whether the line about the first batch has been written.
        self._table_is_due = False
        self._last: Snapshot | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        """Writes nothing."""

    def report(self, snapshot: Snapshot) -> None:
        """Writes a line, and the table if it is due."""
        self._last = snapshot
        if snapshot.last is None:
            if not self._waits:
                self._write("  ".join(run_parts(snapshot)))
                self._waits = True
            return
        parts = run_parts(snapshot)
        if len(snapshot.games) == 1:
            (game,) = snapshot.games
            mean = game.mean_return
            score = "no game finished yet" if mean is None else human_return(mean)
            parts.insert(3, f"{game.name} {score}")
        self._write("  ".join(parts))
        self._table_is_due = len(snapshot.games) > 1
        if self._clock() >= self._next_table:
            self._write_table()

    def close(self) -> None:
        """Writes the last table, unless it was just written."""
        self._write_table()

    def _write_table(self) -> None:
        if self._table_is_due and self._last is not None:
            self._write(*(f"  {line}" for line in table_lines(self._last.games, TABLE_WIDTH)))
        self._table_is_due = False
        self._next_table = self._clock() + TABLE_INTERVAL_S

    def _write(self, *lines: str) -> None:
        with contextlib.suppress(OSError):  # Nobody reads any more; the run continues.
            self._stream.write("".join(line + "\n" for line in lines))
            self._stream.flush()
