import pytest
import torch

from tests.core.test_learner import make_rollout
from torchbeast.core.replay import Replay, ReplayConfig, Rollouts


def make_group(seed, batch=1):
    """Rollouts whose recurrent state says which group they are of."""
    return Rollouts(*make_rollout(seed, batch), (torch.full((1, batch, 1), float(seed)),))


def draw_all(config, num_groups, batch):
    """Extends groups in turn. Returns the seeds of the groups that each was extended by."""
    replay, drawn = Replay(config), []
    for seed in range(num_groups):
        joined = replay.extend(make_group(seed, batch))
        seeds = joined.initial_state[0].flatten().tolist()
        assert seeds[:batch] == [seed] * batch
        drawn.append(seeds[batch::batch])
    return drawn


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0, 2.5])
def test_as_many_rollouts_are_drawn_as_the_ratio_says(ratio, batch):
    drawn = draw_all(ReplayConfig(ratio, 1000), 41, batch)
    assert drawn[0] == []
    assert sum(map(len, drawn)) == 40 * ratio
    assert max(map(len, drawn)) - min(map(len, drawn[1:])) <= 1


def test_only_the_newest_rollouts_are_drawn():
    drawn = draw_all(ReplayConfig(20.0, 12), 10, 4)
    for now, seeds in enumerate(drawn[3:], start=3):
        assert set(seeds) == {now - 3, now - 2, now - 1}


def test_a_single_group_is_kept_however_large_it_is():
    assert draw_all(ReplayConfig(1.0, 1), 3, 4) == [[], [0], [1]]


def test_what_is_kept_is_a_copy():
    replay = Replay(ReplayConfig(1.0))
    first = make_group(0)
    expected = first.env.frame.clone()
    replay.extend(first)
    first.env.frame.zero_()  # MonoBeast's buffers are used again.
    second = make_group(1)
    joined = replay.extend(second)
    assert torch.equal(joined.env.frame, torch.cat([second.env.frame, expected], dim=1))


def test_nothing_is_drawn_after_clear():
    replay = Replay(ReplayConfig(1.0))
    replay.extend(make_group(0))
    replay.clear()
    assert replay.extend(make_group(1)).num_rollouts == 1
