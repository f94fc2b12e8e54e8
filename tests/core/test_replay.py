import pytest
import torch

from tests.core.test_learner import make_rollout
from torchbeast.core.replay import Replay, ReplayConfig


def draw_all(config, num_groups, batch):
    """Keeps and draws in turn. Returns the seeds of the groups that each draw returned."""
    replay, drawn = Replay(config), []
    for seed in range(num_groups):
        drawn.append([int(group.initial_state[0]) for group in replay.draw(batch)])
        replay.keep(*make_rollout(seed, batch), (torch.tensor(seed),))
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
    env, actor = make_rollout(0)
    replay.keep(env, actor, (torch.zeros(1),))
    expected = env.frame.clone()
    env.frame.zero_()  # MonoBeast's buffers are used again.
    (group,) = replay.draw(1)
    assert torch.equal(group.env.frame, expected)


def test_nothing_is_drawn_after_clear():
    replay = Replay(ReplayConfig(1.0))
    replay.keep(*make_rollout(0), ())
    replay.clear()
    assert replay.draw(1) == []
