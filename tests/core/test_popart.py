import pytest
import torch

from torchbeast.core.popart import SIGMA_MAX, SIGMA_MIN, Moments, PopArtLayer, add_sums


def one_hot(task, num_tasks):
    return torch.nn.functional.one_hot(torch.as_tensor(task), num_tasks)


def update(layer, targets, task):
    """One update with targets ``[T, B]`` of tasks ``[T, B]``."""
    hot = one_hot(task, layer.mu.shape[0])
    layer.update_parameters(targets.unsqueeze(-1).expand(hot.shape), hot)


def learn(layer, targets, rewards):
    """Moves the statistics of a layer's first task by targets and rewards of steps."""
    task = torch.zeros(len(targets), dtype=torch.int64)
    layer.adopt(layer.moved(layer.sum_own_targets(targets, task, rewards)))


@pytest.mark.parametrize("beta_per", ["target", "batch"])
def test_moments_equal_a_plain_float64_reference(beta_per):
    generator = torch.Generator().manual_seed(0)
    layer = PopArtLayer(4, 3, beta=0.01, beta_per=beta_per)
    mu, nu = [0.0] * 3, [1.0] * 3
    for _ in range(300):
        task = torch.randint(3, (5, 2), generator=generator)
        targets = torch.randn(5, 2, generator=generator, dtype=torch.float64) * 7 + 3 * task
        update(layer, targets, task)
        for k in range(3):
            mine = targets[task == k].double()
            if len(mine):
                step = 1 - 0.99 ** len(mine) if beta_per == "target" else 0.01
                mu[k] += step * (mine.mean().item() - mu[k])
                nu[k] += step * (mine.square().mean().item() - nu[k])
    torch.testing.assert_close(layer.mu, torch.tensor(mu, dtype=torch.float64))
    second = layer.variance + layer.mu.square()
    torch.testing.assert_close(second, torch.tensor(nu, dtype=torch.float64))
    torch.testing.assert_close(layer.sigma, layer.variance.sqrt())


def test_sums_of_parts_add_up_to_those_of_the_batch():
    generator = torch.Generator().manual_seed(0)
    layer = PopArtLayer(2, 3)
    layer.set_statistics([(5.0, 2.0), (-1e4, 0.1), (0.0, 1.0)])
    task = torch.randint(2, (9, 4), generator=generator)  # The third task is absent.
    targets = torch.randn(9, 4, generator=generator, dtype=torch.float64) + layer.mu[task]
    rewards = torch.randint(-1, 2, (9, 4), generator=generator) * 3.0
    whole = layer.sum_own_targets(targets, task, rewards)
    parts = [layer.sum_own_targets(targets[:, i], task[:, i], rewards[:, i]) for i in range(4)]
    joined = parts[0]
    for part in parts[1:]:
        joined = add_sums(joined, part)
    for a, b in zip(whole, joined, strict=True):
        torch.testing.assert_close(a, b)
    assert whole.number.sum() == 36
    assert whole.magnitudes.sum() == 3 * whole.rewards.sum() == rewards.abs().sum()
    assert whole.number[2] == 0
    new = layer.moved(whole)
    assert (new.mu[2], new.variance[2]) == (layer.mu[2], layer.variance[2])
    # The layer itself has not changed.
    assert layer.mu.tolist() == [5.0, -1e4, 0.0]


def test_gradients_are_rescaled_with_the_parameters():
    """The gradient with respect to a rescaled head, by the chain rule and by autograd."""
    layer = PopArtLayer(3, 2, beta=0.1).double()
    inputs = torch.randn(5, 3, dtype=torch.float64)
    old = Moments(*(statistic.clone() for statistic in layer.moments))
    new = layer.moved(layer.sum_own_targets(torch.tensor([7.0, -3.0]), torch.tensor([0, 1])))

    def loss(normalized):
        return (normalized - 2.0).square().sum()

    _, normalized = layer(inputs)
    converted = (normalized * old.sigma + old.mu - new.mu) / new.sigma
    gradients = torch.autograd.grad(loss(converted), [layer.weight, layer.bias])
    layer.rescale_gradients(*gradients, new)
    layer.adopt(new)
    expected = torch.autograd.grad(loss(layer(inputs)[1]), [layer.weight, layer.bias])
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_outputs_are_preserved_by_every_update():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    layer = PopArtLayer(8, 3, beta=0.1)
    inputs = torch.randn(16, 8, generator=generator, dtype=torch.float64)
    before, _ = layer(inputs)
    for i in range(1000):
        # Tasks come and go, and each has a scale of its own that changes now and then.
        task = torch.randint(1 + i // 20 % 3, (4, 2), generator=generator)
        scale = 10.0 ** (-3 + 8 * ((i // 100 * 7 + task) % 5) / 4)
        targets = (torch.randn(4, 2, generator=generator, dtype=torch.float64) + 1) * scale
        update(layer, targets, task)
        after, normalized = layer(inputs)
        # Not assert_close, which takes longer than all the rest.
        assert torch.allclose(after, before, rtol=1e-6, atol=0)
        assert torch.allclose(normalized * layer.sigma + layer.mu, after, rtol=1e-7, atol=1e-7)
        before = after
    assert layer.sigma.max() > 1


def test_small_spread_of_large_values_is_resolved():
    torch.manual_seed(0)
    layer = PopArtLayer(1, 1, beta=0.05)
    for _ in range(300):
        targets = (30000 + 0.01 * torch.randn(8, 8, dtype=torch.float64)).unsqueeze(-1)
        layer.update_parameters(targets, torch.ones_like(targets))
    assert layer.sigma.item() == pytest.approx(0.01, rel=0.2)


def test_sigma_stays_in_its_bounds():
    layer = PopArtLayer(1, 1, beta=1.0)
    update(layer, torch.full((1, 1), 5.0), torch.zeros(1, 1, dtype=torch.int64))
    assert layer.sigma.item() == SIGMA_MIN
    update(layer, torch.tensor([[1e9, -1e9]]), torch.zeros(1, 2, dtype=torch.int64))
    assert layer.sigma.item() == SIGMA_MAX


def test_sigma_is_at_least_a_share_of_the_rewards():
    layer = PopArtLayer(2, 2, beta=0.5, sigma_floor=0.1)
    inputs = torch.randn(5, 2, dtype=torch.float64)
    before, _ = layer(inputs)
    for _ in range(100):
        learn(layer, torch.zeros(4), torch.zeros(4))
    # No reward so far counts as rewards of 1.
    assert layer.variance[0] < 1e-12
    assert layer.sigma.tolist() == [0.1, 1.0]
    learn(layer, torch.tensor([0.0, 200.0]), torch.tensor([0.0, -200.0]))
    assert layer.reward_magnitude.tolist() == [200.0, 0.0]
    for _ in range(100):
        learn(layer, torch.full((4,), 7.0), torch.zeros(4))
    assert layer.sigma.tolist() == [20.0, 1.0]
    torch.testing.assert_close(layer(inputs)[0], before)


def test_the_magnitude_of_rewards_is_a_moving_mean_of_those_that_are_not_0():
    layer = PopArtLayer(2, 1, beta=0.1)
    learn(layer, torch.zeros(3), torch.tensor([0.0, 30.0, 10.0]))
    assert layer.reward_magnitude.item() == pytest.approx(20.0)
    learn(layer, torch.zeros(3), torch.tensor([0.0, 50.0, 0.0]))
    assert layer.reward_magnitude.item() == pytest.approx(20 + 0.1 * 30)
    learn(layer, torch.zeros(3), torch.zeros(3))
    assert layer.reward_magnitude.item() == pytest.approx(23.0)


def test_statistics_of_2019_checkpoints_are_completed():
    layer = PopArtLayer(2, 2)
    state = layer.state_dict()
    del state["variance"], state["reward_magnitude"]
    state["mu"], state["sigma"] = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    layer.load_state_dict(state)
    assert layer.variance.tolist() == [9.0, 16.0]
    assert layer.reward_magnitude.tolist() == [0.0, 0.0]


def test_given_statistics_are_those_that_outputs_begin_with():
    layer = PopArtLayer(2, 2)
    layer.set_statistics([(100.0, 10.0), (-2.0, 0.5)])
    output, normalized = layer(torch.ones(1, 2))
    expected = normalized * torch.tensor([10.0, 0.5]) + torch.tensor([100.0, -2.0])
    torch.testing.assert_close(output, expected)
    # A target of mean and spread as given does not move them.
    update(layer, torch.tensor([[90.0, 110.0]]), torch.zeros(1, 2, dtype=torch.int64))
    assert layer.mu.tolist() == [100.0, -2.0]
    assert layer.sigma.tolist() == pytest.approx([10.0, 0.5], rel=1e-12)


def test_targets_are_normalised_by_a_mean_that_float32_does_not_have():
    layer = PopArtLayer(4, 1, beta=0.0)
    layer.set_statistics([(30000.001, 0.01)])
    target, task = torch.tensor([30000.0]), torch.tensor([0])
    sums = layer.sum_own_targets(target, task)
    normalized, _, _ = layer.normalize(layer.loss_moments(sums), task, target, target, target)
    torch.testing.assert_close(normalized, torch.tensor([-0.1]), rtol=1e-3, atol=0)
