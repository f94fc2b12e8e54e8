import pytest
import torch
from torch import nn

from torchbeast.core.losses import Losses
from torchbeast.core.optimizer import OptimizerConfig
from torchbeast.core.update import UpdateRule


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = nn.Linear(2, 3)
        self.baseline = nn.Linear(2, 1)


def make_rule(**options):
    agent = Agent()
    return agent, UpdateRule(agent, OptimizerConfig(**options), lambda: None)


def step(agent, rule):
    rule.prepare([torch.ones_like(p) for p in agent.parameters()], None)
    rule.apply(0.1)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("saved_momentum", [0.0, 0.9])
def test_a_resumed_optimizer_has_its_averages_and_the_options_asked_for(momentum, saved_momentum):
    first = make_rule(momentum=saved_momentum, alpha=0.99)
    step(*first)
    saved = first[1].state_dict()
    agent, rule = make_rule(momentum=momentum, alpha=0.5)
    rule.load_state_dict(saved)
    step(agent, rule)
    state = rule.state_dict()
    (group,) = state["param_groups"]
    assert (group["momentum"], group["alpha"]) == (momentum, 0.5)
    # The average of squares: 0.01 of the first gradient's, then half of that and half of 1.
    torch.testing.assert_close(state["state"][1]["square_avg"], torch.full((3,), 0.505))


def test_a_parameter_that_the_loss_does_not_use_has_the_gradient_0():
    agent, rule = make_rule()
    per_step = agent.policy(torch.ones(1, 2)).sum(-1, keepdim=True)
    others = [torch.zeros(1, 1)] * (len(Losses._fields) - 1)
    losses = Losses(per_step, *others)._replace(task=torch.zeros(1, 1, dtype=torch.int64))
    is_zero = [bool((gradient == 0).all()) for gradient in rule.gradients(losses)]
    assert is_zero == [False, False, True, True]  # The weights and biases of policy, baseline.
