import subprocess
import sys

import pytest
import torch

from tests.kernels import HAS_KERNELS
from torchbeast.core.optimizer import OptimizerConfig, check_optimizer_state, make_optimizer
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


@pytest.mark.usefixtures("_kernels")
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
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-6, atol=1e-7)
    states = [stepped.state_dict() for stepped in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    for key, value in states[1]["state"][0].items():
        torch.testing.assert_close(states[0]["state"][0][key], value, rtol=1e-6, atol=1e-7)


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
