"""Tests the claims of docs/popart.md: ``python tools/popart_claims.py``.

Reads the records in docs/reference/arms, whose names are ``ARM-sSEED`` and ``single-GAME-sSEED``.
Prints the page's tables of scores and of tests; ``--output`` draws the scores at the end,
``--curves`` their medians over training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
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
    *("raw", "raw-heads", "raw-shared", "raw-popart", "raw-fixed", "raw-unit"),
)
# These have fewer steps than the others, so they have their own table.
RESNET_ARMS = ("resnet-raw", "resnet-raw-popart")
# What the arms are, by the end of their names.
KINDS = {
    "popart": "PopArt",
    "shared": "PopArt, one scale for all games",
    "fixed": "a fixed scale for each game",
    "": "one value head",
    "heads": "a value head for each game",
    "unit": "PopArt, statistics from 0 and 1",
}
# With PopArt, and the same rewards without it; then with its heads, but not normalised; then with
# a scale for each game that does not adapt; then PopArt from a scale of 1, and that scale for ever;
# then with one scale for all games, and that beside none; then the first with the ResNet.
CLAIMS = (
    ("raw-popart", "raw"),
    ("clipped-popart", "clipped"),
    ("raw-popart", "raw-heads"),
    ("clipped-popart", "clipped-heads"),
    ("raw-popart", "raw-fixed"),
    ("raw-unit", "raw-heads"),
    ("raw-popart", "raw-shared"),
    ("raw-shared", "raw-heads"),
    ("resnet-raw-popart", "resnet-raw"),
)
RESAMPLES = 10_000
AHEAD = 4  # In so many of the six games.


class Scores(NamedTuple):
    """Mean returns of the last 100 full games of training."""

    games: list[str]
    random: np.ndarray
    """Scores of random play, ``[games]``."""
    single: np.ndarray
    """Means of the agents that learned one game, ``[games]``."""
    arms: dict[str, np.ndarray]
    """At the end, by arm, ``[seeds, games]``."""
    training: dict[str, list[tuple[np.ndarray, np.ndarray]]]
    """By arm, for each seed: steps ``[N]``, and scores ``[N, games]``."""

    def medians(self, arm: str) -> np.ndarray:
        """Returns the median normalised score of each seed at the end."""
        return self.normalised_median(self.arms[arm])

    def normalised_median(self, scores: np.ndarray) -> np.ndarray:
        """Computes the median over games of (score - random) / (single - random).

        Args:
            scores: ``[..., games]``.
        """
        return np.median((scores - self.random) / (self.single - self.random), axis=-1)


class Claim(NamedTuple):
    """One arm beside another."""

    one: np.ndarray
    """Median normalised scores of the seeds of the first arm."""
    other: np.ndarray
    low: float
    high: float
    ahead: int
    """In so many games the first arm has the higher mean score."""

    @property
    def difference(self) -> float:
        """The difference of the arms' means."""
        return float(self.one.mean() - self.other.mean())

    @property
    def holds(self) -> bool:
        """Whether the claim passes, as docs/popart.md says."""
        return self.low > 0 and self.ahead >= AHEAD


def read_scores(directory: Path, without: str | None = None) -> Scores:
    """Reads the records of all arms, without one game. Raises UsageError if it is not there."""
    runs: dict[str, list[RunRecords]] = {}
    for path in sorted(directory.glob("*/logs.csv")):
        runs.setdefault(path.parent.name.rpartition("-s")[0], []).append(RunRecords(path.parent))
    alone = {arm.partition("-")[2]: arm for arm in runs if arm.startswith("single-")}
    if without not in (None, *alone):
        raise UsageError(f"--without {without}: the games are {', '.join(alone)}")
    games = [game for game in alone if game != without]

    single = [[run.curve(game).mean[-1] for run in runs[alone[game]]] for game in games]
    arms = [arm for arm in runs if arm in (*ARMS, *RESNET_ARMS)]
    training = {arm: [read_training(run, games) for run in runs[arm]] for arm in arms}
    return Scores(
        games,
        np.array([find_reference(game).random for game in games]),
        np.array([np.mean(ends) for ends in single]),
        {arm: np.array([scores[-1] for _, scores in seeds]) for arm, seeds in training.items()},
        training,
    )


def read_training(run: RunRecords, games: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps of a run ``[N]``, and its scores ``[N, games]``, from the steps on at which
    each game has one.
    """
    curves = [run.curve(game) for game in games]
    steps = max((curve.steps for curve in curves), key=lambda steps: steps[0])
    return steps, np.stack([np.interp(steps, c.steps, c.mean) for c in curves], axis=1)


def judge(scores: Scores, one: str, other: str) -> Claim:
    """Tests whether the arm ``one`` is ahead of the arm ``other``.

    The interval is a percentile bootstrap: the seeds of both arms are drawn with replacement.
    """
    a, b = scores.medians(one), scores.medians(other)
    differences = resample_means(a, RESAMPLES, 0) - resample_means(b, RESAMPLES, 1)
    ahead = scores.arms[one].mean(axis=0) > scores.arms[other].mean(axis=0)
    return Claim(a, b, *percentile_interval(differences), int(ahead.sum()))


def welch_interval(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Computes the 95 % interval of the difference of two means, for figures of normal spread.

    With three seeds the bootstrap's interval is too narrow; this one is not.
    """
    from scipy.stats import ttest_ind

    interval = ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


def format_table(scores: Scores, arms: Sequence[str]) -> list[str]:
    """Returns a Markdown table with a row for each game and a column for each of ``arms``.

    A cell has the mean of the arm's seeds, in the last two rows the median of each seed, and their
    mean.
    """
    means = [scores.arms[arm].mean(axis=0) for arm in arms]
    medians = [scores.medians(arm) for arm in arms]
    seeds = [", ".join(f"{seed:.2f}" for seed in median) for median in medians]
    rows = [
        *(
            [game, *map(format_score, values)]
            for game, *values in zip(
                scores.games, scores.random, *means, scores.single, strict=True
            )
        ),
        ["median normalised score, each seed", "0", *seeds, "1"],
        ["mean of the seeds", "0", *(f"{median.mean():.2f}" for median in medians), "1"],
    ]
    return [
        f"| | random | {' | '.join(f'`{arm}`' for arm in (*arms, 'single'))} |",
        "| --- " * (len(arms) + 3) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def format_score(value: float) -> str:
    """Formats a score, below 100 with one decimal."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def format_tests(scores: Scores) -> list[str]:
    """Returns a Markdown table with the outcome of each test."""
    lines = ["| test | difference | bootstrap | Welch | games ahead | |", "| --- " * 6 + "|"]
    for one, other in CLAIMS:
        claim = judge(scores, one, other)
        low, high = welch_interval(claim.one, claim.other)
        cells = (
            f"`{one}` against `{other}`",
            f"{claim.difference:.2f}",
            f"{claim.low:.2f} to {claim.high:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{claim.ahead} of {len(scores.games)}",
            "passes" if claim.holds else "fails",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def kind_of(arm: str) -> str:
    """Returns the key of an arm in ``KINDS``."""
    return arm.removeprefix("resnet-").partition("-")[2]


def colour_of(arm: str) -> str:
    """Returns the colour of an arm, that of its kind."""
    from torchbeast.analysis.panels import PALETTE

    return PALETTE[list(KINDS).index(kind_of(arm))]


def draw(scores: Scores, path: Path) -> None:
    """Draws the score of each seed at the end, an arm in a row: the medians, then each game."""
    from torchbeast.analysis.panels import make_panels, save_panels

    rows = (*ARMS, *RESNET_ARMS)
    random, single = [0.0, *scores.random], [1.0, *scores.single]
    figure, panels = make_panels(["Median normalised score", *scores.games], width=3.6, height=2.4)
    for i, panel in enumerate(panels):
        panel.axvline(random[i], color="gray", linestyle=":", label="random play")
        panel.axvline(single[i], color="gray", label="an agent of this game alone")
        for row, arm in enumerate(rows):
            seeds = scores.medians(arm) if i == 0 else scores.arms[arm][:, i - 1]
            panel.plot(seeds, [row] * len(seeds), "o", color=colour_of(arm))
        panel.set_yticks(range(len(rows)), rows)
        panel.invert_yaxis()
    save_panels(figure, path)


def draw_curves(scores: Scores, path: Path) -> None:
    """Draws the median normalised scores over training: a thin line is a seed, a thick one their
    mean.
    """
    from torchbeast.analysis.panels import label_x, make_panels, save_figure

    titles = {
        "Raw rewards": [arm for arm in ARMS if arm.startswith("raw")],
        "Clipped rewards": [arm for arm in ARMS if arm.startswith("clipped")],
        "Raw rewards, ResNet": RESNET_ARMS,
    }
    figure, panels = make_panels(list(titles), width=5.0, height=3.6)
    for panel, arms in zip(panels, titles.values(), strict=True):
        for arm in arms:
            seeds = [(steps, scores.normalised_median(s)) for steps, s in scores.training[arm]]
            first, last = (f(steps[i] for steps, _ in seeds) for f, i in ((max, 0), (min, -1)))
            grid = np.linspace(first, last, 50)
            mean = np.mean([np.interp(grid, *seed) for seed in seeds], axis=0)
            colour, label = colour_of(arm), f"{arm}: {KINDS[kind_of(arm)]}"
            panel.plot(grid, mean, color=colour, linewidth=2.5, label=label)
            for seed in seeds:
                panel.plot(*seed, color=colour, linewidth=0.8, alpha=0.5)
        panel.set_ylabel("median normalised score")
        label_x(panel, "steps")
        panel.legend(loc="upper left")
    for panel in panels[1:]:
        panel.sharey(panels[0])
    save_figure(figure, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="a picture of all scores at the end")
    parser.add_argument("--curves", type=Path, help="a picture of the medians over training")
    parser.add_argument("--without", metavar="GAME", help="leaves this game out")
    flags = parser.parse_args()

    def work(_: object) -> None:
        scores = read_scores(RECORDS, flags.without)
        tables = format_table(scores, ARMS), format_table(scores, RESNET_ARMS), format_tests(scores)
        print("\n\n".join("\n".join(lines) for lines in tables))
        for path, figure in ((flags.output, draw), (flags.curves, draw_curves)):
            if path is not None:
                figure(scores, path)
                print(path)

    return run_command("popart_claims", work)


if __name__ == "__main__":
    sys.exit(main())
