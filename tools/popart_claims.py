"""Tests the claims of docs/popart.md: ``python tools/popart_claims.py``.

Reads the records in docs/reference/arms, whose names are ``ARM-sSEED`` and ``single-GAME-sSEED``.
Prints the page's tables of scores and of tests; ``--output`` draws the scores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torchbeast.analysis.aggregates import percentile_interval, resample_means
from torchbeast.analysis.runs import RunRecords
from torchbeast.cli.command import run_command
from torchbeast.core.types import UsageError
from torchbeast.envs.human_scores import find_reference

RECORDS = Path(__file__).resolve().parent.parent / "docs" / "reference" / "arms"
ARMS = (
    *("clipped", "clipped-heads", "clipped-popart"),
    *("raw", "raw-heads", "raw-popart", "raw-fixed", "raw-unit"),
)
# With PopArt, and the same rewards without it; then with its heads, but not normalised; then with
# a scale for each game that does not adapt; then PopArt from a scale of 1, and that scale for ever.
CLAIMS = (
    ("raw-popart", "raw"),
    ("clipped-popart", "clipped"),
    ("raw-popart", "raw-heads"),
    ("clipped-popart", "clipped-heads"),
    ("raw-popart", "raw-fixed"),
    ("raw-unit", "raw-heads"),
)
SINGLE = "single"
RESAMPLES = 10_000
AHEAD = 4  # In so many of the six games.

Runs = Mapping[str, Sequence[RunRecords]]  # By arm.
References = Mapping[str, tuple[float, float]]  # By game: scores of random play and of one agent.


class Claim(NamedTuple):
    """One arm beside another."""

    one: np.ndarray
    """Figures of the seeds of the first arm."""
    other: np.ndarray
    low: float
    high: float
    ahead: list[str]
    """Games in which the first arm has the higher mean score."""

    @property
    def difference(self) -> float:
        """The difference of the arms' mean figures."""
        return float(self.one.mean() - self.other.mean())

    @property
    def holds(self) -> bool:
        """Whether the claim passes, as docs/popart.md says."""
        return self.low > 0 and len(self.ahead) >= AHEAD


def read_runs(directory: Path) -> dict[str, list[RunRecords]]:
    """Reads all records, by the name of their arm."""
    runs: dict[str, list[RunRecords]] = {}
    for path in sorted(directory.glob("*/logs.csv")):
        runs.setdefault(path.parent.name.rpartition("-s")[0], []).append(RunRecords(path.parent))
    return runs


def score(run: RunRecords, game: str) -> float:
    """Returns the mean return of the last 100 full games of training."""
    return float(run.curve(game).mean[-1])


def scores_of(runs: Sequence[RunRecords], game: str) -> np.ndarray:
    """Returns a game's score of each seed of an arm."""
    return np.array([score(run, game) for run in runs])


def mean_score(runs: Sequence[RunRecords], game: str) -> float:
    """Returns a game's mean score over the seeds of an arm."""
    return float(scores_of(runs, game).mean())


def random_score(game: str) -> float:
    """Returns the mean score of random play."""
    score = find_reference(game).random
    assert score is not None
    return score


def read_references(runs: Runs, games: Sequence[str]) -> References:
    """Returns what scores are normalised with."""
    return {
        game: (random_score(game), mean_score(runs[f"{SINGLE}-{game}"], game)) for game in games
    }


def figure_of(run: RunRecords, references: References) -> float:
    """Returns the median over games of (score - random) / (single - random)."""
    normalised = [
        (score(run, game) - random) / (single - random)
        for game, (random, single) in references.items()
    ]
    return float(np.median(normalised))


def figures_of(runs: Sequence[RunRecords], references: References) -> np.ndarray:
    """Returns the figure of each seed of an arm."""
    return np.array([figure_of(run, references) for run in runs])


def judge(one: Sequence[RunRecords], other: Sequence[RunRecords], references: References) -> Claim:
    """Tests whether the runs ``one`` are ahead of the runs ``other``.

    The interval is a percentile bootstrap: the seeds of both arms are drawn with replacement.
    """
    a, b = (figures_of(runs, references) for runs in (one, other))
    differences = resample_means(a, RESAMPLES, 0) - resample_means(b, RESAMPLES, 1)
    ahead = [game for game in references if mean_score(one, game) > mean_score(other, game)]
    return Claim(a, b, *percentile_interval(differences), ahead)


def welch_interval(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Computes the 95 % interval of the difference of two means, for figures of normal spread.

    With three seeds the bootstrap's interval is too narrow; this one is not.
    """
    from scipy.stats import ttest_ind

    interval = ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


def format_table(runs: Runs, references: References) -> list[str]:
    """Returns a Markdown table with a row for each game and a column for each arm.

    A cell has the mean of the arm's seeds, in the last row the figure of each seed.
    """

    def row(name: str, random: str, cells: Sequence[str], single: str) -> str:
        return f"| {' | '.join([name, random, *cells, single])} |"

    lines = [
        f"| | random | {' | '.join(f'`{arm}`' for arm in (*ARMS, SINGLE))} |",
        "| --- " * (len(ARMS) + 3) + "|",
    ]
    for game, (random, _) in references.items():
        *cells, single = (
            format_score(mean_score(runs[arm], game)) for arm in (*ARMS, f"{SINGLE}-{game}")
        )
        lines.append(row(game, format_score(random), cells, single))
    figures = [figures_of(runs[arm], references) for arm in ARMS]
    cells = [", ".join(f"{figure:.2f}" for figure in seeds) for seeds in figures]
    return [*lines, row("median normalised score, each seed", "0", cells, "1")]


def format_score(value: float) -> str:
    """Formats a score, below 100 with one decimal."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def format_tests(runs: Runs, references: References) -> list[str]:
    """Returns a Markdown table with the outcome of each test."""
    lines = ["| test | difference | bootstrap | Welch | games ahead | |", "| --- " * 6 + "|"]
    for one, other in CLAIMS:
        claim = judge(runs[one], runs[other], references)
        low, high = welch_interval(claim.one, claim.other)
        cells = (
            f"`{one}` against `{other}`",
            f"{claim.difference:.2f}",
            f"{claim.low:.2f} to {claim.high:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{len(claim.ahead)} of {len(references)}",
            "passes" if claim.holds else "fails",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(runs: Runs, references: References, path: Path) -> None:
    """Draws the score of each seed at the end, an arm in a row: the medians, then each game."""
    from torchbeast.analysis.panels import PALETTE, make_panels, save_panels

    median = "Median normalised score"
    marks = {median: (0.0, 1.0), **references}
    figure, panels = make_panels(list(marks), width=3.6, height=2.4)
    for panel, (title, (random, single)) in zip(panels, marks.items(), strict=True):
        panel.axvline(random, color="gray", linestyle=":", label="random play")
        panel.axvline(single, color="gray", label="an agent of this game alone")
        for row, (arm, colour) in enumerate(zip(ARMS, PALETTE, strict=False)):
            of_arm = runs[arm]
            seeds = figures_of(of_arm, references) if title == median else scores_of(of_arm, title)
            panel.plot(seeds, [row] * len(seeds), "o", color=colour)
        panel.set_yticks(range(len(ARMS)), ARMS)
        panel.invert_yaxis()
    save_panels(figure, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="a picture of all scores")
    parser.add_argument("--without", metavar="GAME", help="leaves this game out")
    flags = parser.parse_args()

    def work(_: object) -> None:
        runs = read_runs(RECORDS)
        games = runs[ARMS[0]][0].games
        if flags.without is not None:
            if flags.without not in games:
                raise UsageError(f"--without {flags.without}: the games are {', '.join(games)}")
            games = [game for game in games if game != flags.without]
        references = read_references(runs, games)
        print(*format_table(runs, references), "", sep="\n")
        print(*format_tests(runs, references), sep="\n")
        if flags.output is not None:
            draw(runs, references, flags.output)
            print(flags.output)

    return run_command("popart_claims", work)


if __name__ == "__main__":
    sys.exit(main())
