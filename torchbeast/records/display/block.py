"""Progress as a block of lines that is redrawn in place in a terminal.

Between two redraws the cursor stays at the start of the block, on a line that is blank. Everything
below the cursor is erased before the block is drawn again. So the block needs to know neither how
the terminal has wrapped its lines after a resize, nor what other processes have written: what is
written to the terminal directly pushes the cursor down, and the block follows.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, TextIO

from torchbeast.records.display.table import block_lines
from torchbeast.records.progress import Snapshot

ERASE_LINE = "\x1b[K"  # From the cursor to the end of its line.
ERASE_BELOW = "\x1b[J"  # From the cursor to the end of the screen.
# Lines of the terminal above the block that stay visible.
LINES_ABOVE = 2


class Block:
    """Lines at the bottom of a terminal that are redrawn in place. Thread-safe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._lines: list[str] = []

    def size(self) -> tuple[int, int]:
        """Returns the columns and lines that the block may have in the terminal's present size."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            columns, lines = 0, 0
        # A terminal that does not know its size says 0. A full last column would wrap.
        return (columns or 80) - 1, max(1, (lines or 24) - LINES_ABOVE - 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Shows ``lines`` instead of those before."""
        with self._lock:
            self._lines = list(lines)
            self._redraw()

    def write_above(self, text: str) -> None:
        """Writes whole lines that scroll away above the block."""
        with self._lock:
            self._send("\r" + ERASE_BELOW + text)
            self._redraw()

    def leave(self) -> None:
        """Puts the cursor below the block, which stays as it is."""
        with self._lock:
            if self._lines:
                self._send("\n" * (len(self._lines) + 1))
                self._lines = []

    def _redraw(self) -> None:
        if self._lines:
            # The blank line comes first: the terminal echoes ^C there.
            body = "\n".join(line + ERASE_LINE for line in ["", *self._lines])
            up = f"\x1b[{len(self._lines)}A"
            self._send("\r" + body + ERASE_BELOW + "\r" + up)

    def _send(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # The terminal is gone; the run continues.
            self._stream.write(text)
            self._stream.flush()


class StreamAbove(io.TextIOBase):
    """A text stream to the same terminal, whose lines appear above a block."""

    def __init__(self, block: Block, stream: TextIO) -> None:
        self._block = block
        self._stream = stream
        self._lock = threading.Lock()
        self._partial = ""  # The start of a line that has not ended yet.

    def write(self, text: str) -> int:
        """Writes whole lines above the block; keeps the start of an unfinished one."""
        with self._lock:
            lines, newline, self._partial = (self._partial + text).rpartition("\n")
            if newline:
                self._block.write_above(lines + newline)
        return len(text)

    def finish(self) -> None:
        """Writes the start of a line that has not ended."""
        with self._lock:
            if self._partial:
                self._block.write_above(self._partial + "\n")
                self._partial = ""

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Returns the stream's file descriptor."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding."""
        return self._stream.encoding

    def __getattr__(self, name: str) -> Any:
        # The rest, such as ``buffer``, is that of the stream itself.
        return getattr(self._stream, name)


class BlockDisplay:
    """Shows a run as a block in a terminal.

    From the first :meth:`refresh` to :meth:`close` what Python code writes to standard output,
    standard error or the root logger scrolls above the block, if it goes to a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._block = Block(stream)
        self._redirected: list[tuple[StreamAbove, TextIO]] = []

    def refresh(self, snapshot: Snapshot) -> None:
        """Draws the block in the terminal's present size."""
        if not self._redirected:
            self._redirect()
        self._block.draw(block_lines(snapshot, *self._block.size()))

    def report(self, snapshot: Snapshot) -> None:
        """Draws the block."""
        self.refresh(snapshot)

    def close(self) -> None:
        """Leaves the block on the screen and the cursor below it, and restores the streams."""
        for above, stream in self._redirected:
            above.finish()
            _replace_stream(above, stream)
        self._redirected.clear()
        self._block.leave()

    def _redirect(self) -> None:
        streams = {self._stream, sys.stdout, sys.stderr}
        for stream in streams:
            if stream is not None and stream.isatty():
                above = StreamAbove(self._block, stream)
                _replace_stream(stream, above)
                self._redirected.append((above, stream))


def _replace_stream(old: Any, new: Any) -> None:
    """Puts ``new`` where the interpreter and the root logger use ``old``."""
    if sys.stdout is old:
        sys.stdout = new
    if sys.stderr is old:
        sys.stderr = new
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)
