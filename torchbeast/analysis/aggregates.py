"""Statistics over games and seeds: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge
of the Statistical Precipice" (arXiv:2108.13264).

Scores are arrays ``[games, ..., seeds]``. The axes between, such as that of bootstrap samples, are
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
# With few seeds an interval is too narrow. With three, that of a single game goes from the lowest
# to the highest: one in 27 resamples has the lowest three times.
MIN_SEEDS = 3
# With fewer games an interval over games says little.
MIN_GAMES = 10


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def mean(scores: np.ndarray) -> np.ndarray:
    """Returns the mean over games of each game's mean over seeds, ``[...]``."""
    return scores.mean(axis=-1).mean(axis=0)


def median(scores: np.ndarray) -> np.ndarray:
    """Returns the median over games of each game's mean over seeds, ``[...]``."""
    return np.median(scores.mean(axis=-1), axis=0)


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Returns the mean of the middle half of all games' and seeds' scores, ``[...]``.

    Of n scores the ``n // 4`` lowest and as many of the highest are left out. Single outliers do
    not move it as they move the mean, and it uses more of the scores than the median.
    """
    ordered = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def bootstrap(
    scores: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Computes a percentile interval by a bootstrap over seeds.

    A resample draws as many seeds as there are, with replacement, and takes the scores of each in
    all games: a seed is one agent, which plays all of them. (The paper draws for each game apart,
    because its agents play one game.) The interval says what other seeds could have given, not what
    other games could.

    Args:
        scores: ``[G, S]``.
        statistic: one of this module's, from scores ``[G, resamples, S]`` to ``[resamples]``.

    Returns:
        None where there are fewer than ``MIN_SEEDS`` seeds.
    """
    count = scores.shape[-1]
    if count < MIN_SEEDS:
        return None
    seeds = np.random.default_rng(0).integers(count, size=(resamples, count))
    return percentile_interval(statistic(scores[:, seeds]))


def bootstrap_games(
    scores: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]
) -> Interval | None:
    """Computes a 95 % percentile interval by a bootstrap over games.

    It says what other games could have given; with one seed per game nothing says what other seeds
    could.

    Args:
        scores: ``[G, S]``; a game is drawn with all its seeds.

    Returns:
        None with fewer than ``MIN_GAMES`` games.
    """
    count = len(scores)
    if count < MIN_GAMES:
        return None
    games = np.random.default_rng(0).integers(count, size=(count, RESAMPLES))
    return percentile_interval(statistic(scores[games]))


def resample_means(values: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Computes means over the last axis in bootstrap resamples of that axis.

    All rows share their resamples, so that sums of rows keep what their parts have in common.

    Args:
        values: ``[..., N]``, such as a measure on N frames or the scores of N games.

    Returns:
        ``[..., resamples]``; not a number where ``N`` is 1: one value says nothing about others.
    """
    count = values.shape[-1]
    if count == 1:
        return np.full((*values.shape[:-1], resamples), np.nan)
    weights = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=resamples)
    return values @ weights.T / count


def percentile_interval(resampled: np.ndarray) -> Interval:
    """Returns the percentile interval of a statistic in ``R`` resamples, ``[R]``."""
    tail = (1 - CONFIDENCE) / 2
    return Interval(*np.quantile(resampled, [tail, 1 - tail]).tolist())
