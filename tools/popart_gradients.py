"""Shows the gradient of each game, for docs/popart_study.md: ``tools/popart_gradients.py``.

Some records in docs/reference/arms have the norm of each game's own gradient before clipping; the
version of the program that made them measured it in every 101st update. Prints the page's table;
``--output`` draws these norms against steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import popart_claims
from torchbeast.cli.command import run_command
from torchbeast.records.csv_tables import Table

DRAWN = ("raw", "raw-heads", "raw-popart")
SMOOTHED = 9  # Records that a drawn point is the median of; one batch says little.

Records = Sequence[Table]  # One for each seed of an arm.


def read_records() -> dict[str, list[Table]]:
    """Reads the records that have the gradient of each game, by arm."""
    found: dict[str, list[Table]] = {}
    for arm in popart_claims.ARMS:
        tables = [Table(path) for path in sorted(popart_claims.RECORDS.glob(f"{arm}-s?/logs.csv"))]
        measured = [table for table in tables if games_of(table)]
        if measured:
            found[arm] = measured
    return found


def games_of(table: Table) -> list[str]:
    """Returns the games whose gradient was measured."""
    prefix = "grad_norm/"
    return [field.removeprefix(prefix) for field in table.fields if field.startswith(prefix)]


def late_norms(seeds: Records, games: Sequence[str]) -> np.ndarray:
    """Returns each game's median norm in the second half of training, ``[seeds, games]``."""
    norms = np.empty((len(seeds), len(games)))
    for i, table in enumerate(seeds):
        steps = table.column("step")
        for j, game in enumerate(games):
            norms[i, j] = np.nanmedian(table.column(f"grad_norm/{game}")[steps > steps[-1] / 2])
    return norms


def format_table(records: dict[str, list[Table]]) -> list[str]:
    """Returns a Markdown table with a row for each arm and a column for each game.

    A game has the median over the seeds. The last column has the ratio of each seed.
    """
    games = games_of(next(iter(records.values()))[0])
    lines = [
        f"| arm | {' | '.join(games)} | largest by smallest, each seed |",
        "| --- " * (len(games) + 2) + "|",
    ]
    for arm, seeds in records.items():
        norms = late_norms(seeds, games)
        ratios = ", ".join(f"{ratio:.0f}" for ratio in norms.max(axis=1) / norms.min(axis=1))
        cells = [f"`{arm}`", *(f"{norm:,.0f}" for norm in np.median(norms, axis=0)), ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(records: dict[str, list[Table]], path: Path) -> None:
    """Draws the norms of three arms, a line for each game: the median of the seeds."""
    from torchbeast.analysis.panels import label_x, make_panels, save_panels

    figure, panels = make_panels(DRAWN, width=3.6, height=3.0)
    for panel in panels[1:]:
        panel.sharey(panels[0])
    for panel, arm in zip(panels, DRAWN, strict=True):
        for game in games_of(records[arm][0]):
            curves = [smooth(table, game) for table in records[arm]]
            steps = curves[0][0]
            norms = [np.interp(steps, *curve) for curve in curves]
            panel.plot(steps, np.median(norms, axis=0), label=game)
        panel.set_yscale("log")
        label_x(panel, "steps")
    panels[0].set_ylabel("norm of a game's gradient")
    save_panels(figure, path)


def smooth(table: Table, game: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps, and the running median of a game's norms."""
    steps, norms = table.column("step"), table.column(f"grad_norm/{game}")
    known = np.isfinite(norms)
    windows = np.lib.stride_tricks.sliding_window_view(norms[known], SMOOTHED)
    margin = SMOOTHED // 2
    return steps[known][margin:-margin], np.median(windows, axis=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="a picture of the norms of three arms")
    flags = parser.parse_args()

    def work(_: object) -> None:
        records = read_records()
        print(*format_table(records), sep="\n")
        if flags.output is not None:
            draw(records, flags.output)
            print(flags.output)

    return run_command("popart_gradients", work)


if __name__ == "__main__":
    sys.exit(main())
