import subprocess
import sys

import pytest
import torch

from tests.kernels import HAS_KERNELS
from torchbeast.core.optimizer import OptimizerConfig, make_optimizer
from torchbeast.runtime import kernels

CONFIGS = {
    "RMSprop": OptimizerConfig(learning_rate=0.1, alpha=0.9, momentum=0.5, epsilon=0.02),
    "Adam": OptimizerConfig(optimizer="adam", learning_rate=0.1, epsilon=0.02),
}
THEIRS = {
    "RMSprop": {"lr": 0.1, "alpha": 0.9, "momentum": 0.5, "eps": 0.02},
    "Adam": {"lr": 0.1, "eps": 0.02},
}


@pytest.fixture(params=[True, False], ids=["kernels", "no kernels"])
def _kernels(request, monkeypatch):
    """Runs a test with and without the compiled kernels."""
    if not request.param:
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    elif not HAS_KERNELS:
        pytest.skip("no compiled modules, or a processor without AVX-512")


def make_parameters():
    """PopArt's head is float64. The last one has no gradient."""
    numbers = (torch.arange(6.0), torch.arange(6.0, dtype=torch.float64), torch.ones(2))
    return [torch.nn.Parameter(x) for x in numbers]


@pytest.mark.usefixtures("_kernels")
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
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    states = [stepped.state_dict() for stepped in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert states[0]["state"].keys() == states[1]["state"].keys() == {0, 1}
    for index in (0, 1):
        for key, value in states[1]["state"][index].items():
            ours_value = states[0]["state"][index][key]
            torch.testing.assert_close(ours_value, value, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_gradients_and_averages_may_lie_in_memory_in_another_order(momentum):
    def make(memory_format):
        generator = torch.Generator().manual_seed(0)
        numbers = [torch.randn(3, 5, 2, 2, generator=generator) for _ in range(4)]
        weight = numbers[0].contiguous(memory_format=torch.channels_last)
        weight = torch.nn.Parameter(weight)
        made = make_optimizer([weight], OptimizerConfig(momentum=momentum))
        for gradient in numbers[1:]:
            weight.grad = gradient.contiguous(memory_format=memory_format)
            made.step()
            averages = made.state[weight]
            for name in averages.keys() - {"step"}:
                averages[name] = averages[name].contiguous(memory_format=memory_format)
        return weight

    same, other = make(torch.channels_last), make(torch.contiguous_format)
    assert torch.equal(same, other)
    assert other.is_contiguous(memory_format=torch.channels_last)


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
