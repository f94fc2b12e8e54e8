import subprocess
import sys

import pytest
import torch

from torchbeast.core.optimizer import OptimizerConfig, check_optimizer_state, make_optimizer

CONFIGS = {
    "RMSprop": OptimizerConfig(learning_rate=0.1, alpha=0.9, momentum=0.5, epsilon=0.02),
    "Adam": OptimizerConfig(optimizer="adam", learning_rate=0.1, epsilon=0.02),
}
THEIRS = {
    "RMSprop": {"lr": 0.1, "alpha": 0.9, "momentum": 0.5, "eps": 0.02},
    "Adam": {"lr": 0.1, "eps": 0.02},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_and_state_are_those_of_torch(name):
    ours, theirs = ([torch.nn.Parameter(torch.arange(6.0))] for _ in range(2))
    optimizers = [
        make_optimizer(ours, CONFIGS[name]),
        getattr(torch.optim, name)(theirs, **THEIRS[name]),
    ]
    for step in range(4):
        for parameters, stepped in zip((ours, theirs), optimizers, strict=True):
            parameters[0].grad = torch.linspace(-1, step, 6)
            stepped.step()
            stepped.zero_grad()
            stepped.load_state_dict(stepped.state_dict())
    assert ours[0].grad is None
    assert torch.equal(ours[0], theirs[0])
    states = [stepped.state_dict() for stepped in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    for key, value in states[1]["state"][0].items():
        assert torch.equal(states[0]["state"][0][key], value)


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_imports_the_compiler(name):
    script = f"""
import sys, torch
from torchbeast.core import optimizer
parameter = torch.nn.Parameter(torch.ones(2))
made = optimizer.{name}([parameter], lr=0.1)
parameter.grad = torch.ones(2)
made.step()
made.zero_grad()
made.load_state_dict(made.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("state", [None, {}, {"param_groups": [], "state": {}}, {"state": {}}])
def test_what_is_no_optimizer_state_is_refused(state):
    with pytest.raises(ValueError, match="is not an optimizer's state"):
        check_optimizer_state(state, [])
