import math

import pytest
import torch

from tests.core.rollouts import reference_vtrace
from torchbeast.core import vtrace
from torchbeast.core.types import ShapeError


def test_two_steps_equal_a_computation_by_hand():
    # Two steps, gamma 0.5, weights 2 (clipped to 1) and 1/2.
    result = vtrace.from_importance_weights(
        log_rhos=torch.tensor([[math.log(2.0)], [math.log(0.5)]]),
        discounts=torch.full((2, 1), 0.5),
        rewards=torch.tensor([[1.0], [2.0]]),
        values=torch.tensor([[4.0], [8.0]]),
        bootstrap_value=torch.tensor([16.0]),
    )
    # delta_1 = 0.5 (2 + 0.5 * 16 - 8) = 1, v_1 = 9
    # delta_0 = 1 (1 + 0.5 * 8 - 4) = 1, v_0 = 4 + 1 + 0.5 * 1 * 1 = 5.5
    assert result.vs.flatten().tolist() == [5.5, 9.0]
    # 1 (1 + 0.5 * 9 - 4) = 1.5 and 0.5 (2 + 0.5 * 16 - 8) = 1
    assert result.pg_advantages.flatten().tolist() == [1.5, 1.0]


@pytest.mark.parametrize("thresholds", [(1.0, 1.0), (3.7, 2.2), (None, None), (0.5, None)])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (2, 3), (9, 4)])
def test_equals_the_paper_term_by_term(steps, batch, thresholds):
    torch.manual_seed(steps)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    log_rhos, rewards, values, bootstrap = (
        draw(steps, batch),
        draw(steps, batch),
        draw(steps, batch),
        draw(batch),
    )
    discounts = torch.rand(steps, batch, dtype=torch.float64) * (torch.rand(steps, batch) > 0.3)
    result = vtrace.from_importance_weights(
        log_rhos, discounts, rewards, values, bootstrap, *thresholds
    )
    for b in range(batch):
        columns = (x[:, b].tolist() for x in (log_rhos, discounts, rewards, values))
        vs, advantages = reference_vtrace(*columns, bootstrap[b].item(), *thresholds)
        torch.testing.assert_close(result.vs[:, b], torch.tensor(vs, dtype=torch.float64))
        torch.testing.assert_close(
            result.pg_advantages[:, b], torch.tensor(advantages, dtype=torch.float64)
        )


@pytest.mark.parametrize("is_normalised", [True, False])
def test_popart_divides_advantages_by_sigma(is_normalised):
    torch.manual_seed(0)
    arguments = [torch.randn(4, 2), torch.rand(4, 2), torch.randn(4, 2), torch.randn(4, 2)]
    bootstrap = torch.randn(2)
    mu, sigma = torch.randn(4, 2), torch.rand(4, 2) + 0.5
    plain = vtrace.from_importance_weights(*arguments, bootstrap)
    normalized = (arguments[3] - mu) / sigma if is_normalised else None
    scaled = vtrace.from_importance_weights(
        *arguments, bootstrap, normalized_values=normalized, mu=mu, sigma=sigma
    )
    torch.testing.assert_close(scaled.vs, plain.vs)
    torch.testing.assert_close(scaled.pg_advantages, plain.pg_advantages / sigma)


@pytest.mark.parametrize("shape", [(4, 2, 5), (3, 2, 1, 5), (2, 5)])
def test_logits_of_other_steps_than_the_actions_are_refused(shape):
    with pytest.raises(ShapeError, match="must be \\[T, B, A\\] for actions"):
        vtrace.action_log_probs(torch.zeros(shape), torch.zeros(3, 2, dtype=torch.int64))


def test_from_logits_weighs_by_the_policies():
    torch.manual_seed(0)
    behaviour, target = torch.randn(3, 2, 5), torch.randn(3, 2, 5, requires_grad=True)
    actions = torch.randint(5, (3, 2))
    rest = [torch.rand(3, 2), torch.randn(3, 2), torch.randn(3, 2), torch.randn(2)]
    options = {
        "clip_rho_threshold": 0.5,
        "clip_pg_rho_threshold": 2.0,
        "mu": torch.randn(3, 2),
        "sigma": torch.rand(3, 2) + 1,
    }
    result = vtrace.from_logits(behaviour, target, actions, *rest, **options)
    t = torch.log_softmax(target, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    b = torch.log_softmax(behaviour, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(result.log_rhos, (t - b).detach())
    torch.testing.assert_close(result.target_action_log_probs, t.detach())
    torch.testing.assert_close(result.behavior_action_log_probs, b)
    expected = vtrace.from_importance_weights(result.log_rhos, *rest, **options)
    torch.testing.assert_close(result.vs, expected.vs)
    torch.testing.assert_close(result.pg_advantages, expected.pg_advantages)
    assert not any(field.requires_grad for field in result)


@pytest.mark.parametrize("rewards_shape", [(8, 10, 42), (8, 10, 1), (8, 10)])
def test_weights_discounts_and_rewards_are_broadcast_to_the_values(rewards_shape):
    torch.manual_seed(0)
    log_rhos, discounts = torch.randn(8, 10, 1), torch.rand(8, 10, 1)
    rewards, values, bootstrap = (
        torch.randn(rewards_shape),
        torch.randn(8, 10, 42),
        torch.randn(10, 42),
    )
    together = vtrace.from_importance_weights(log_rhos, discounts, rewards, values, bootstrap)
    assert together.vs.shape == together.pg_advantages.shape == (8, 10, 42)
    for k in (0, 41):
        alone = vtrace.from_importance_weights(
            log_rhos[..., 0],
            discounts[..., 0],
            rewards if rewards.dim() == 2 else rewards.expand(8, 10, 42)[..., k],
            values[..., k],
            bootstrap[..., k],
        )
        torch.testing.assert_close(together.vs[..., k], alone.vs)
        torch.testing.assert_close(together.pg_advantages[..., k], alone.pg_advantages)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([(2, 2), (3, 2), (3, 2), (3, 2), (2,)], r"log_rhos \(2, 2\) cannot be broadcast"),
        ([(3, 2), (3, 2), (3, 2), (2, 3), (3,)], r"cannot be broadcast to values \(2, 3\)"),
        ([(3, 2), (3, 2), (3, 2), (3, 2), (3,)], "bootstrap_value must be"),
        ([(8, 9, 1), (8, 9, 1), (8, 9, 42), (8, 9, 42), (9,)], "same number of dimensions"),
    ],
)
def test_wrong_shapes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        vtrace.from_importance_weights(*map(torch.zeros, arguments))
    assert isinstance(error.value, RuntimeError)  # As in TorchBeast.


@pytest.mark.parametrize("given", [("mu",), ("sigma",), ("normalized_values",)])
def test_statistics_that_are_not_complete_are_refused(given):
    step = torch.ones(3, 2)
    with pytest.raises(ValueError, match="belong together"):
        vtrace.from_importance_weights(
            step, step, step, step, torch.ones(2), **dict.fromkeys(given, step)
        )
