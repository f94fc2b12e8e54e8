"""A snapshot of a run as text: a table of its games, and the run's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torchbeast.records.progress import GameSnapshot, Snapshot
from torchbeast.runtime.text import counted, human_count, human_return, human_time

# A longer name is cut.
MAX_NAME = 20


class Column(NamedTuple):
    """A column of the table. It is left out where no game has a value."""

    title: str
    width: int
    importance: int
    """Columns with the smallest are left out first where the terminal is narrow."""

    cell: Callable[[GameSnapshot], str]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"


def _statistic(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _return(value: float | None) -> str:
    return "" if value is None else human_return(value)


COLUMNS = (
    Column("steps", 5, 6, lambda game: human_count(game.steps)),
    Column("return", 7, 8, lambda game: _return(game.mean_return) or "-"),
    Column("%human", 6, 5, lambda game: _percent(game.human)),
    Column(
        "trend",
        7,
        3,
        lambda game: "" if game.trend is None else human_return(game.trend, signed=True),
    ),
    Column("eval", 7, 4, lambda game: _return(game.evaluated)),
    Column("mu", 7, 1, lambda game: _statistic(game.mu)),
    Column("sigma", 7, 2, lambda game: _statistic(game.sigma)),
    Column(
        "silent",
        6,
        7,
        lambda game: "" if game.silent_s is None else human_time(game.silent_s),
    ),
)


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
    if len(snapshot.games) > 1 and snapshot.median_human is not None:
        parts.append(f"median {_percent(snapshot.median_human)} % of human")
    if snapshot.evaluation_step is not None:
        parts.append(_evaluation_part(snapshot))
    if snapshot.limit is not None:
        parts.append(str(snapshot.limit))
    return parts


def _evaluation_part(snapshot: Snapshot) -> str:
    text = f"evaluated at {human_count(snapshot.evaluation_step or 0)} steps"
    median = snapshot.median_evaluated_human
    if len(snapshot.games) > 1 and median is not None:
        text += f": median {_percent(median)} % of human"
    return text


def table_lines(games: Sequence[GameSnapshot], width: int) -> list[str]:
    """Returns a heading and a line per game, each at most ``width`` characters long."""
    names = [_cut(game.name, MAX_NAME) for game in games]
    name_width = max(len("game"), *(len(name) for name in names))
    columns = _fit(games, width - name_width)
    lines = ["game".ljust(name_width) + "".join(f"  {c.title:>{c.width}}" for c in columns)]
    for game, name in zip(games, names, strict=True):
        cells = "".join(f"  {column.cell(game):>{column.width}}" for column in columns)
        lines.append((name.ljust(name_width) + cells).rstrip())
    return [line[:width] for line in lines]


def block_lines(snapshot: Snapshot, width: int, height: int) -> list[str]:
    """Returns the whole block: a table of as many games as fit, and the run's own numbers.

    Args:
        snapshot: the run.
        width: the longest line, in characters.
        height: the largest number of lines. With more games than lines the most interesting ones
            are listed, and the others are counted.
    """
    totals = _wrap(run_parts(snapshot), width)[:height]
    free_lines = height - len(totals) - 1  # The heading takes one.
    if free_lines < 1:
        return totals
    games, rest = snapshot.games, []
    if len(games) > free_lines:
        games = most_interesting(games, free_lines - 1)
        hidden = len(snapshot.games) - len(games)
        rest = [f"and {counted(hidden, 'more game')}"[:width]]
    return [*(table_lines(games, width) if games else []), *rest, *totals]


def most_interesting(games: Sequence[GameSnapshot], count: int) -> tuple[GameSnapshot, ...]:
    """Returns the silent games, then those whose returns change most for their spread.

    Order is kept.
    """

    def interest(game: GameSnapshot) -> tuple[bool, float]:
        spread = game.std_return or 1.0
        return game.silent_s is not None, abs(game.trend or 0.0) / spread

    ranked = sorted(range(len(games)), key=lambda i: interest(games[i]), reverse=True)
    return tuple(games[i] for i in sorted(ranked[:count]))


def _fit(games: Sequence[GameSnapshot], width: int) -> list[Column]:
    """The columns that have values and fit into ``width``, widened to their longest value."""
    filled = []
    for column in COLUMNS:
        longest = max(len(column.cell(game)) for game in games)
        if longest:
            filled.append(column._replace(width=max(column.width, longest)))
    while filled and sum(2 + column.width for column in filled) > width:
        filled.remove(min(filled, key=lambda column: column.importance))
    return filled


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2] + ".."


def _wrap(parts: Sequence[str], width: int) -> list[str]:
    """Puts parts on as few lines as hold them, without breaking one that fits."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += "  " + part
        else:
            lines.append(part[:width])
    return lines
