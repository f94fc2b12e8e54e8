import itertools

import numpy as np
import pytest
from scipy.stats import binom, trim_mean

from torchbeast.analysis.aggregates import (
    bootstrap,
    bootstrap_games,
    interquartile_mean,
    mean,
    median,
)


def arrays(*games):
    return np.array(games, float)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    # Sorted: 0 1 | 2 3 4 5 | 6 100.
    assert interquartile_mean(arrays([5, 0, 100, 2], [1, 6, 3, 4])) == 3.5
    # Of six, one is left out at each end: 0 | 1 2 3 4 | 99.
    assert interquartile_mean(arrays([0, 1, 2], [99, 3, 4])) == 2.5
    # Of three, none.
    assert interquartile_mean(arrays([0, 3, 9])) == 4
    scores = np.random.default_rng(1).normal(size=23)
    assert interquartile_mean(scores[None]) == pytest.approx(trim_mean(scores, 0.25))


def test_games_count_with_the_means_of_their_seeds_in_mean_and_median():
    scores = arrays([1, 3], [10, 10], [0, 2])
    assert mean(scores) == pytest.approx((2 + 10 + 1) / 3)
    assert median(scores) == 2


def test_the_interval_is_that_of_all_resamples():
    scores = arrays([0, 1, 5, 11])
    # All 256 resamples of four seeds, equally likely.
    means = [np.mean(drawn) for drawn in itertools.product(scores[0], repeat=4)]
    interval = bootstrap(scores, mean, resamples=50_000)
    assert interval == pytest.approx(np.quantile(means, [0.025, 0.975]))
    assert interval == pytest.approx((0.5, 8.5))


def test_resamples_stay_within_each_game_and_draw_whole_agents():
    # Within a game all seeds agree: whatever is drawn, the mean is the same.
    assert bootstrap(arrays([1, 1, 1], [9, 9, 9]), mean) == (5, 5)
    # Each agent is good in one game, and all are equally good in the mean.
    assert bootstrap(arrays([3, 0, 0], [0, 3, 0], [0, 0, 3]), mean) == (1, 1)


def test_resamples_of_games_draw_whole_games():
    # Of ten games one has 10: how often it is drawn is binomial. Its seeds count with their mean.
    scores = arrays([5, 15], *([0, 0] for _ in range(9)))
    drawn = binom(10, 0.1).ppf([0.025, 0.975])
    assert bootstrap_games(scores, mean) == pytest.approx(drawn)
    assert bootstrap_games(scores, median) == (0, 0)
    assert bootstrap_games(scores[:9], mean) is None
    # Of two unlike seeds the interquartile mean is not that of the games' means.
    scores = arrays(*([0, 10 * i] for i in range(12)))
    low, high = bootstrap_games(scores, interquartile_mean)
    assert low < interquartile_mean(scores) < 20 < high


def test_fewer_than_three_seeds_have_no_interval():
    assert bootstrap(arrays([1, 3], [2, 4]), mean) is None
    assert bootstrap(arrays([1, 3, 2], [2, 4, 5]), mean) is not None
