import pytest
import torch

from torchbeast.core.losses import Losses
from torchbeast.core.stats import collect_part, join_parts, read_stats
from torchbeast.core.types import EnvOutput, LossConfig

T, B = 4, 2
TASKS = ("A", "B", "C")
LOSS = LossConfig(baseline_cost=0.5, entropy_cost=0.25)


def make_env():
    """A rollout of tasks 0 and 2 without any end."""
    zeros = torch.zeros(T + 1, B)
    return EnvOutput(
        frame=torch.zeros(T + 1, B, 1, 3, 3, dtype=torch.uint8),
        reward=zeros,
        done=zeros > 0,
        task=torch.tensor([[0, 2]] * (T + 1), dtype=torch.int32),
        episode_step=torch.arange(T + 1).int().view(-1, 1).expand(T + 1, B),
        episode_return=10.0 * torch.arange(2 * (T + 1)).view(T + 1, B).float(),
        truncated=zeros > 0,
        game_over=zeros > 0,
        last_action=zeros.long(),
    )


def collect(env, policy_version=None, version=0):
    """A part whose loss is 2 altogether, as its policy gradient, and its value error 8.

    The entropy is 1 in task 0 and 3 in task 2.
    """
    task = env.task[:-1].long()

    def spread(total):
        return torch.full((T, B), total / (T * B))

    losses = Losses(
        torch.tensor(2.0), spread(2.0), spread(8.0), task + 1.0, task.float(), task, task >= 0
    )
    return collect_part(losses, env, policy_version, version, len(TASKS))


def test_numbers_of_a_whole_batch_come_back():
    versions = torch.full((T + 1, B), 7)
    versions[0] = -1000  # In the rollout before.
    parts = [collect(make_env(), versions, 10) for _ in range(3)]
    whole = join_parts(join_parts(*parts[:2]), parts[2])
    stats = read_stats(whole, torch.tensor(0.5), LOSS)
    entropy_loss = -0.25 * 3 * T * (1 + 3)
    assert (stats.pg_loss, stats.baseline_loss, stats.entropy_loss) == (6.0, 12.0, entropy_loss)
    assert stats.total_loss == 18.0 + entropy_loss
    assert (stats.value_loss, stats.entropy) == (8.0 / (T * B), 2.0)
    assert (stats.policy_lag, stats.grad_norm) == (3.0, 0.5)
    assert stats.task_steps == [3 * T, 0, 3 * T]
    assert stats.task_entropies == {0: 1.0, 2: 3.0}
    assert stats.episodes == []


def test_episodes_are_found_by_their_end():
    over = torch.zeros(T + 1, B, dtype=torch.bool)
    over[0] = True  # The first row was counted with the rollout before.
    over[1, 1] = over[3, 0] = True
    part = collect(make_env()._replace(game_over=over))
    episodes = read_stats(part, torch.tensor(0.0), LOSS).episodes
    assert episodes == [(2, pytest.approx(30.0), 1), (0, pytest.approx(60.0), 3)]


def test_what_is_no_step_of_a_game_is_not_counted():
    task, is_step = make_env().task[:-1].long(), torch.ones(T, B, dtype=torch.bool)
    is_step[1, 1] = False
    versions = torch.zeros(T + 1, B)
    versions[2, 1] = -1000
    total = is_step.float().sum()
    losses = Losses(total, *[is_step.float()] * 3, task.float(), task, is_step)
    part = collect_part(losses, make_env(), versions, 2, len(TASKS))
    stats = read_stats(part, torch.tensor(0.5), LOSS)
    assert stats.task_steps == [T, 0, T - 1]
    assert (stats.value_loss, stats.entropy, stats.policy_lag) == (1, 1, 2)
