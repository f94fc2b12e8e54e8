"""What a run shows while it trains: a block that is redrawn in a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TextIO

from rich.console import Console, ConsoleRenderable, Group, RenderHook
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment, Segments
from rich.text import Text

from torchbeast.records.progress import GameSnapshot, Snapshot
from torchbeast.runtime.text import counted, format_rows, human_count, human_return, human_time

# A longer name is cut.
MAX_NAME = 20
# Seconds between two tables of all games where nothing is redrawn, and their width.
TABLE_INTERVAL_S = 60.0
TABLE_WIDTH = 100
# Lines of the terminal above the block that stay visible.
LINES_ABOVE = 2
# From the cursor's line to the end of the screen.
ERASE_BELOW = Segments([Segment("\r\x1b[J", None, [(ControlType.CARRIAGE_RETURN,)])])


def make_display(stream: TextIO | None = None) -> BlockDisplay | LineDisplay:
    """Makes the display that suits a stream, by default standard error."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return BlockDisplay(stream)
    return LineDisplay(stream)


class BlockDisplay(RenderHook):
    """Shows a run as a block in a terminal. One thread calls it.

    From the first :meth:`show` to :meth:`close` what Python code writes to standard output,
    standard error or the root logger scrolls above the block, if it goes to a terminal.

    rich's own ``Live`` leaves the cursor at the end of its output. Here it stays at the start, and
    all below it is erased before the block is drawn again. So lines that other processes write and
    a terminal that was resized do no harm.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(
            file=stream, force_jupyter=False, soft_wrap=True, markup=False, highlight=False
        )
        self._block: ConsoleRenderable | None = None
        self._redirected: list[tuple[Any, TextIO]] = []

    def show(self, snapshot: Snapshot, *, is_report: bool = True) -> None:
        """Draws the block in the terminal's present size, whether it is a report or not."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
            # A terminal that does not know its size says 0. A full last column would wrap.
            width, height = (columns or 80) - 1, (lines or 24) - LINES_ABOVE - 1
            self._console.size = (width, height)
            if self._block is None:
                self._redirect()
            # The blank line comes first: the terminal echoes ^C there.
            self._block = Group("", make_block(snapshot, width, max(1, height)))
            self._console.print(Segments([]))
        except (OSError, ValueError):  # The terminal is gone; the run continues.
            self._restore()

    def close(self) -> None:
        """Leaves the block on the screen and the cursor below it, and restores the streams.

        May be called twice.
        """
        if self._redirected:
            with contextlib.suppress(OSError, ValueError):
                for proxy, _ in self._redirected:
                    proxy.flush()  # The start of a line that has not ended.
                self._restore()
                self._console.print(ERASE_BELOW, self._block)
        self._restore()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Puts the block below what is printed, and the cursor back to its start."""
        if self._block is None:
            return renderables
        lines = self._console.render_lines(self._block, pad=False)
        block = Segments([part for line in lines for part in (*line, Segment.line())])
        return [ERASE_BELOW, *renderables, block, Control((ControlType.CURSOR_UP, len(lines)))]

    def _redirect(self) -> None:
        self._console.push_render_hook(self)
        for stream in {self._stream, sys.stdout, sys.stderr}:
            if stream is not None and stream.isatty():
                proxy = FileProxy(self._console, stream)
                _replace_stream(stream, proxy)
                self._redirected.append((proxy, stream))

    def _restore(self) -> None:
        if self._redirected:
            self._console.pop_render_hook()
        for proxy, stream in self._redirected:
            _replace_stream(proxy, stream)
        self._redirected.clear()


def _replace_stream(old: Any, new: Any) -> None:
    """Puts ``new`` where the interpreter and the root logger use ``old``."""
    if sys.stdout is old:
        sys.stdout = new
    if sys.stderr is old:
        sys.stderr = new
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.stream = new


class LineDisplay:
    """Writes a short line per report, and every minute a table if there are several games."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` is the present time in seconds."""
        self._stream = stream
        self._clock = clock
        self._next_table = clock() + TABLE_INTERVAL_S
        self._waits = False  # Whether the line about the first batch has been written.
        self._untabled: Snapshot | None = None

    def show(self, snapshot: Snapshot, *, is_report: bool = True) -> None:
        """Writes a line, and the table if it is due, for every report."""
        if not is_report:
            return
        parts = run_parts(snapshot)
        if snapshot.last is None:
            if not self._waits:
                self._write("  ".join(parts) + "\n")
            self._waits = True
            return
        if len(snapshot.games) == 1:
            (game,) = snapshot.games
            mean = game.mean_return
            score = "no game finished yet" if mean is None else human_return(mean)
            parts.insert(3, f"{game.name} {score}")
        else:
            self._untabled = snapshot
        self._write("  ".join(parts) + "\n")
        if self._clock() >= self._next_table:
            self.close()

    def close(self) -> None:
        """Writes the last table, unless it was just written."""
        if self._untabled is not None:
            lines = table_lines(self._untabled, TABLE_WIDTH)
            self._write("".join(f"  {line.plain}\n" for line in lines))
        self._untabled = None
        self._next_table = self._clock() + TABLE_INTERVAL_S

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # Nobody reads any more; the run continues.
            self._stream.write(text)
            self._stream.flush()


class Column(NamedTuple):
    """A column of the table of games. It is left out where no game has a value."""

    title: str
    width: int
    importance: int
    """Columns with the smallest are left out first where the terminal is narrow."""

    cell: Callable[[GameSnapshot], str]


def _percent(share: float | None) -> str:
    return "" if share is None else str(round(100 * share))


def _statistic(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _return(value: float | None, *, signed: bool = False) -> str:
    return "" if value is None else human_return(value, signed=signed)


def _columns(snapshot: Snapshot) -> tuple[Column, ...]:
    several = len(snapshot.games) > 1
    total_steps = max(1, sum(game.steps for game in snapshot.games))
    return (
        Column("steps", 5, 7, lambda game: human_count(game.steps)),
        Column("share", 5, 1, lambda g: f"{g.steps / total_steps:.0%}" if several else ""),
        Column("return", 7, 9, lambda game: _return(game.mean_return) or "-"),
        Column("%human", 6, 6, lambda game: _percent(game.human)),
        Column("trend", 6, 2, lambda game: _return(game.trend, signed=True)),
        Column("eval", 7, 5, lambda game: _return(game.evaluated_return)),
        Column("mu", 6, 3, lambda game: _statistic(game.mu)),
        Column("sigma", 6, 4, lambda game: _statistic(game.sigma)),
    )


def make_block(snapshot: Snapshot, width: int, height: int) -> Group:
    """Returns a table of as many games as fit, a progress bar and the run's own numbers.

    Args:
        width: the longest line, in characters.
        height: the largest number of lines. With more games than lines the most interesting ones
            are listed, and the others are counted.
    """
    # Lines break between the parts only.
    parts = "  ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in run_parts(snapshot))
    totals: list[Any] = [
        Text(line.replace("\N{NO-BREAK SPACE}", " "))
        for line in textwrap.wrap(parts, width, break_on_hyphens=False)
    ]
    if len(totals) + 6 < height:  # Else games are more important.
        # A bar does not end its line.
        bar = ProgressBar(snapshot.total_steps, snapshot.steps, width=width)
        totals = [Group(bar, Text()), *totals]
    num_rows = height - len(totals) - 1  # The heading takes one.
    if num_rows < 2:
        return Group(*totals[:height])
    return Group(*table_lines(snapshot, width, num_rows), *totals)


def run_parts(snapshot: Snapshot) -> list[str]:
    """Returns the run's own numbers: steps, speed, time left, bottleneck, scores of all games
    together.
    """
    left = snapshot.seconds_left
    steps = f"{snapshot.steps:,} of {snapshot.total_steps:,} steps"
    if snapshot.last is None:
        is_over = snapshot.steps >= snapshot.total_steps
        return [steps] if is_over else [steps, "waiting for the first batch"]
    parts = [
        steps,
        f"{snapshot.sps:.0f} steps/s",
        f"{'?' if left is None else human_time(left)} left",
    ]
    if snapshot.stalled_s is not None:
        parts.append(f"no steps for {human_time(snapshot.stalled_s)}")
    several = len(snapshot.games) > 1
    if several and snapshot.median_human is not None:
        parts.append(f"median {_percent(snapshot.median_human)} % of human")
    if snapshot.evaluation_step is not None:
        evaluation = f"evaluated at {human_count(snapshot.evaluation_step)} steps"
        if several and snapshot.median_evaluated_human is not None:
            evaluation += f": median {_percent(snapshot.median_evaluated_human)} % of human"
        parts.append(evaluation)
    if snapshot.bottleneck is not None:
        parts.append(f"bottleneck: {snapshot.bottleneck}")
    return parts


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 2] + ".."


def table_lines(snapshot: Snapshot, width: int, num_rows: int | None = None) -> list[Text]:
    """Returns a table of the games of a run, line by line.

    Not a ``Table`` of rich, which takes 80 ms for 62 games, once a second.

    Args:
        width: in characters. The less important columns are left out where it is small.
        num_rows: at most so many; with more games the last row counts the others. At least 2.
    """
    games, rest = snapshot.games, None
    if num_rows is not None and len(games) > num_rows:
        games = most_interesting(games, num_rows - 1)
        steps = sum(game.steps for game in snapshot.games) - sum(game.steps for game in games)
        rest = f"and {counted(len(snapshot.games) - len(games), 'more game')}", steps
    columns = [c for c in _columns(snapshot) if any(c.cell(game) for game in games)]
    lines = _format_table(games, columns, rest)
    while columns and max(map(len, lines)) > width:
        columns.remove(min(columns, key=lambda column: column.importance))
        lines = _format_table(games, columns, rest)
    styles = ["bold", *[""] * len(games), "dim"]
    return [Text(line[:width], style) for line, style in zip(lines, styles, strict=False)]


def _format_table(
    games: Sequence[GameSnapshot], columns: Sequence[Column], rest: tuple[str, int] | None
) -> list[str]:
    rows = [["game", *(column.title.rjust(column.width) for column in columns)]]
    for game in games:
        rows.append([_cut(game.name), *(column.cell(game) for column in columns)])
    if rest is not None:
        name, steps = rest
        other = games[0]._replace(steps=steps)
        cells = (c.cell(other) if c.title in ("steps", "share") else "" for c in columns)
        rows.append([name, *cells])
    return format_rows(rows)


def most_interesting(games: Sequence[GameSnapshot], count: int) -> tuple[GameSnapshot, ...]:
    """Returns the games whose returns change most for their spread, in their order."""

    def interest(game: GameSnapshot) -> float:
        return abs(game.trend or 0.0) / (game.std_return or 1.0)

    ranked = sorted(range(len(games)), key=lambda i: interest(games[i]), reverse=True)
    return tuple(games[i] for i in sorted(ranked[:count]))
