import subprocess
import sys

import pytest
import torch

from torchbeast.core.optimizer import load_optimizer_state, make_optimizer
from torchbeast.core.types import OptimizerConfig


def make(**options):
    weight = torch.nn.Parameter(torch.zeros(3))
    return weight, make_optimizer([weight], OptimizerConfig(**options))


def step(weight, optimizer):
    weight.grad = torch.ones(3)
    optimizer.step()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("saved_momentum", [0.0, 0.9])
def test_a_resumed_optimizer_has_its_averages_and_the_options_asked_for(momentum, saved_momentum):
    weight, saved = make(momentum=saved_momentum, alpha=0.99)
    step(weight, saved)
    weight, optimizer = make(momentum=momentum, alpha=0.5)
    load_optimizer_state(optimizer, saved.state_dict())
    step(weight, optimizer)
    (group,) = optimizer.param_groups
    assert (group["momentum"], group["alpha"]) == (momentum, 0.5)
    # The average of squares: 0.01 of the first gradient's, then half of that and half of 1.
    torch.testing.assert_close(optimizer.state[weight]["square_avg"], torch.full((3,), 0.505))


def test_nothing_imports_the_compiler():
    script = """
import sys, torch
from torchbeast.core import optimizer
parameter = torch.nn.Parameter(torch.ones(2))
made = optimizer.RMSprop([parameter], lr=0.1)
parameter.grad = torch.ones(2)
made.step()
made.zero_grad()
made.load_state_dict(made.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
