import itertools

import numpy as np
import pytest
import torch

from tests.analysis.permuted import permute_agent, random_permutations, weights
from torchbeast.analysis import filters
from torchbeast.models import AgentConfig, make_agent


def test_there_are_fifteen_layers_in_the_order_of_the_data():
    names = filters.LAYER_NAMES
    assert len(names) == 15
    assert names[:6] == [
        "feat_conv0",
        "resnet1_0_1",
        "resnet1_0_3",
        "resnet2_0_1",
        "resnet2_0_3",
        "feat_conv1",
    ]


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


def test_the_relative_distance_is_blind_to_scale():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50, 20, 3, 3))
    assert filters.in_order(a, a).relative == 0
    assert filters.in_order(a, b).relative == pytest.approx(1, abs=0.05)
    assert filters.in_order(a, -a).relative == pytest.approx(2)
    assert filters.in_order(9 * a, 9 * b).relative == pytest.approx(filters.in_order(a, b).relative)


def test_a_network_with_other_channel_order_computes_the_same():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig()).eval()
    inputs = {
        "frame": torch.randint(256, (1, 2, 4, 84, 84), dtype=torch.uint8),
        "reward": torch.zeros(1, 2),
        "done": torch.zeros(1, 2, dtype=torch.bool),
    }
    before, _ = agent(inputs)
    permute_agent(agent, random_permutations(1))
    after, _ = agent(inputs)
    torch.testing.assert_close(after.policy_logits, before.policy_logits, atol=1e-5, rtol=1e-4)


def test_permutations_are_found_again_through_the_whole_network():
    a = weights(0)
    b = filters.permute(a, random_permutations(1))
    assert filters.in_order(a["feat_conv1"], b["feat_conv1"]).sum > 1
    # Its input has one order only, so the first layer can be matched for itself.
    assert filters.optimal(a["feat_conv0"], b["feat_conv0"]).sum == pytest.approx(0, abs=1e-20)
    assert filters.optimal(a["feat_conv1"], b["feat_conv1"]).sum > 1
    for distance in filters.carried(a, b).values():
        assert distance.sum == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize("seed", range(5))
def test_a_permuted_copy_is_found_again_under_noise_that_can_hide_it_from_one_start(seed):
    a, order = weights(0), random_permutations(seed)
    rng = np.random.default_rng(seed + 100)
    noisy = {name: w + 3 * w.std() * rng.normal(size=w.shape) for name, w in a.items()}
    found = filters.match_weights(a, filters.permute(noisy, order))
    assert {name: order[name][found[name]].tolist() for name in order} == {
        name: list(range(len(order[name]))) for name in order
    }


def test_matching_only_brings_unrelated_networks_closer():
    a, b = weights(0), weights(1)
    matched = filters.carried(a, b)
    straight = {name: filters.in_order(a[name], b[name]) for name in filters.LAYER_NAMES}
    assert sum(d.sum for d in matched.values()) < sum(d.sum for d in straight.values())


def test_a_layer_of_another_shape_has_no_say_in_the_matching():
    a, b = weights(0), filters.permute(weights(0), random_permutations(1))
    b["feat_conv0"] = b["feat_conv0"][:, :3]
    b["fc"] = b["fc"][:, :, :5]
    distances = filters.carried(*filters.comparable(a, b))
    assert set(distances) == set(filters.LAYER_NAMES) - {"feat_conv0"}
    for distance in distances.values():
        assert distance.sum == pytest.approx(0, abs=1e-20)
