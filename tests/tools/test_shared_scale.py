"""All games have the statistics of one set of value targets: those of all games together."""

import pytest
import torch

from tools.shared_scale import SharedScale
from torchbeast.core.types import AgentConfig

GAMES = ("Pong", "Breakout", "Qbert")


@pytest.fixture
def layer():
    return SharedScale(AgentConfig(tasks=GAMES, use_popart=True, beta=0.1)).baseline


def test_statistics_move_toward_the_targets_of_all_games(layer):
    targets, task = torch.tensor([[0.0, 10.0], [20.0, 90.0]]), torch.tensor([[0, 0], [1, 1]])
    inputs = torch.randn(5, layer.weight.shape[1])
    outputs, _ = layer(inputs)

    layer.adopt(layer.moved(layer.sum_own_targets(targets, task)))

    step = 1 - 0.9**4  # Four targets move the moments 0 and 1 toward 30 and 2150.
    mean, square = step * 30, (1 - step) + step * 2150
    torch.testing.assert_close(layer.mu, torch.full((3,), mean, dtype=torch.float64))
    sigma = torch.full((3,), (square - mean**2) ** 0.5, dtype=torch.float64)
    torch.testing.assert_close(layer.sigma, sigma)
    torch.testing.assert_close(layer(inputs)[0], outputs)


def test_statistics_start_with_those_of_the_returns_of_all_games(layer):
    layer.set_statistics([(0.0, 1.0), (6.0, 2.0), (0.0, 1.0)])
    # Means of squares: 1, 40 and 1.
    assert layer.mu.tolist() == [2.0] * 3
    assert layer.variance.tolist() == pytest.approx([42 / 3 - 4] * 3)
