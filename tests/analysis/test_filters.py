import itertools

import numpy as np
import pytest

from tests.analysis.permuted import random_permutations, weights
from torchbeast.analysis import filters


def test_distances_equal_a_plain_loop():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 3, 3, 3))
    table = [[sum((x - y) ** 2 for x, y in zip(f.flat, g.flat, strict=True)) for g in b] for f in a]
    np.testing.assert_allclose(filters.pairwise(a, b), table)
    straight = sum(table[i][i] for i in range(4))
    squares = np.square(a).sum() + np.square(b).sum()
    assert filters.in_order(a, b) == pytest.approx((straight, straight / 4, straight / squares))
    best = min(
        sum(table[i][j] for i, j in enumerate(order)) for order in itertools.permutations(range(4))
    )
    assert filters.optimal(a, b) == pytest.approx((best, best / 4, best / squares))


def test_kernels_are_compared_for_themselves():
    """As in 2019: the mean is per kernel, and kernels of different filters may be a pair."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 2, 3, 3))
    order = rng.permutation(6)
    b = a.reshape(6, 3, 3)[order].reshape(3, 2, 3, 3)
    one, other = filters.kernels(a), filters.kernels(b)
    assert filters.in_order(one, other).sum == pytest.approx(filters.in_order(a, b).sum)
    assert filters.in_order(one, other).mean == pytest.approx(filters.in_order(a, b).mean / 2)
    assert filters.optimal(one, other).sum == 0 < filters.optimal(a, b).sum


def test_a_permuted_copy_is_found_again_under_noise_that_hides_it_from_one_start():
    a, order = weights(0), random_permutations(2)
    rng = np.random.default_rng(102)
    noisy = {name: w + 3 * w.std() * rng.normal(size=w.shape) for name, w in a.items()}
    for starts, is_found in ((1, False), (2, True)):
        found = filters.match_weights(a, filters.permute(noisy, order), starts)
        assert is_found == all(
            order[name][found[name]].tolist() == list(range(len(order[name]))) for name in order
        )


def test_a_layer_of_another_shape_has_no_say_in_the_matching():
    a, b = weights(0), filters.permute(weights(0), random_permutations(1))
    b["feat_conv0"] = b["feat_conv0"][:, :3]
    b["fc"] = b["fc"][:, :, :5]
    distances = filters.carried(*filters.comparable(a, b))
    assert set(distances) == set(filters.LAYER_NAMES) - {"feat_conv0"}
    for distance in distances.values():
        assert distance.sum == pytest.approx(0, abs=1e-20)
    del b["fc"]  # As in the copies of shipped agents.
    for one, other in ((a, b), (b, a)):
        assert all(set(layers) == set(distances) for layers in filters.comparable(one, other))
