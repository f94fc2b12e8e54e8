import subprocess
import sys

import pytest
import torch

from torchbeast.core.optimizer import OptimizerConfig, make_optimizer

CONFIGS = {
    "RMSprop": OptimizerConfig(learning_rate=0.1, alpha=0.9, momentum=0.5, epsilon=0.02),
    "Adam": OptimizerConfig(optimizer="adam", learning_rate=0.1, epsilon=0.02),
}
THEIRS = {
    "RMSprop": {"lr": 0.1, "alpha": 0.9, "momentum": 0.5, "eps": 0.02},
    "Adam": {"lr": 0.1, "eps": 0.02},
}


def make_parameters():
    """PopArt's head is float64. The last one has no gradient."""
    numbers = (torch.arange(6.0), torch.arange(6.0, dtype=torch.float64), torch.ones(2))
    return [torch.nn.Parameter(x) for x in numbers]


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_and_state_are_those_of_torch(name):
    ours, theirs = make_parameters(), make_parameters()
    optimizers = [
        make_optimizer(ours, CONFIGS[name]),
        getattr(torch.optim, name)(theirs, **THEIRS[name]),
    ]
    for step in range(4):
        for parameters, stepped in zip((ours, theirs), optimizers, strict=True):
            for parameter in parameters[:2]:
                parameter.grad = torch.linspace(-1, step, 6, dtype=parameter.dtype)
            stepped.step()
            stepped.zero_grad()
            stepped.load_state_dict(stepped.state_dict())
    assert ours[0].grad is None
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    states = [stepped.state_dict() for stepped in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert states[0]["state"].keys() == states[1]["state"].keys() == {0, 1}
    for index in (0, 1):
        for key, value in states[1]["state"][index].items():
            ours_value = states[0]["state"][index][key]
            torch.testing.assert_close(ours_value, value, rtol=0, atol=0)


def test_nothing_imports_the_compiler():
    script = """
import sys, torch
from torchbeast.core import optimizer
for name in ("RMSprop", "Adam"):
    parameter = torch.nn.Parameter(torch.ones(2))
    made = getattr(optimizer, name)([parameter], lr=0.1)
    parameter.grad = torch.ones(2)
    made.step()
    made.zero_grad()
    made.load_state_dict(made.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
