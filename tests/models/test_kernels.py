"""A section of the ResNet is what its layers compute, whichever kernel computes it."""

import pytest
import torch
from torch import nn

from tests.kernels import count_calls, needs_kernels
from tests.models.inputs import make_inputs
from torchbeast.models import AgentConfig, ResNet, kernels
from torchbeast.models.kernels import residual_section


def make_section(inputs, outputs):
    torch.manual_seed(0)

    def conv(channels):
        return nn.Conv2d(channels, outputs, 3, padding=1)

    def block():
        return nn.Sequential(nn.ReLU(), conv(outputs), nn.ReLU(inplace=True), conv(outputs))

    return nn.ModuleList([nn.Sequential(conv(inputs), nn.MaxPool2d(3, 2, 1)), block(), block()])


def pictures(*size):
    return torch.randn(size).bfloat16().contiguous(memory_format=torch.channels_last)


def by_layers(x, section):
    head, block1, block2 = section
    x = head(x)
    x = x + block1(x)
    return x + block2(x)


def evaluate(compute, x, section):
    """Outputs and gradients: of the pictures if they need one, and of the parameters."""
    outputs = compute(x, section)
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))
    leaves = [x] * x.requires_grad + list(section.parameters())
    return outputs, torch.autograd.grad((outputs.double() * weights).sum(), leaves)


def by_kernel(x, section):
    with torch.autocast("cpu", torch.bfloat16):
        return residual_section(x, *section)


SIZES = [(3, 4, 16, 84, 84), (2, 32, 32, 21, 21), (1, 4, 16, 1, 1), (1, 16, 32, 9, 2)]


@needs_kernels
@pytest.mark.parametrize(("count", "inputs", "outputs", "height", "width"), SIZES)
def test_kernel_agrees_with_exact_layers(count, inputs, outputs, height, width, monkeypatch):
    names = ("residual_section", "residual_section_backward")
    forward, backward = (count_calls(monkeypatch, name) for name in names)
    section = make_section(inputs, outputs)
    x = pictures(count, inputs, height, width).requires_grad_(inputs > 4)
    result, gradients = evaluate(by_kernel, x, section)
    with torch.no_grad():
        assert by_kernel(x, section).equal(result)
    assert (len(forward), len(backward)) == (2, 1)
    assert result.is_contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(kernels, "compiled", lambda: None)
    by_torch = evaluate(by_kernel, x, section)
    exact_x = x.detach().double().requires_grad_(x.requires_grad)
    exact = evaluate(by_layers, exact_x, section.double())
    torch.testing.assert_close(result.double(), exact[0], rtol=0.02, atol=0.02)
    # bfloat16 has 8 bits. Some maxima and signs change, and with them what gets a gradient: with
    # torch's layers as with the kernel.
    for ours, torchs, expected in zip(gradients, by_torch[1], exact[1], strict=True):
        assert ours.shape == expected.shape
        error, torchs_error = ((g.double() - expected).norm() for g in (ours, torchs))
        assert error < 1.2 * torchs_error + 0.01 * expected.norm()


@needs_kernels
def test_numbers_that_are_not_finite_do_not_get_lost():
    section = make_section(16, 16)
    x = pictures(3, 16, 8, 8)
    minus_nan = 0xFFC0 - 0x10000
    x.view(torch.int16)[0, 0, 4, 4] = minus_nan
    x[1, 0, 4, 4] = torch.inf
    outputs = by_kernel(x, section)
    assert not outputs[0].isfinite().all()
    assert not outputs[1].isfinite().all()
    assert outputs[2].isfinite().all()


@needs_kernels
@pytest.mark.parametrize("x", [pictures(2, 16, 8, 8).float(), pictures(2, 8, 8, 8)])
def test_layers_compute_what_the_kernel_cannot(x, monkeypatch):
    calls = count_calls(monkeypatch, "residual_section")
    section = make_section(x.shape[1], 16)
    section.to(x.dtype)
    torch.testing.assert_close(
        residual_section(x, *section), by_layers(x, section), rtol=0.02, atol=0.02
    )
    assert not calls


@needs_kernels
def test_resnet_is_the_same_without_the_kernel(monkeypatch):
    torch.manual_seed(0)
    agent = ResNet(AgentConfig(agent_type="resnet", num_actions=4)).eval()
    agent.compute_dtype = torch.bfloat16
    inputs = make_inputs(agent.config, steps=2, batch=1)

    def evaluate_agent():
        output, _ = agent(inputs)
        total = output.policy_logits.square().sum() + output.baseline.sum()
        return output.policy_logits, torch.autograd.grad(total, list(agent.parameters()))

    calls = count_calls(monkeypatch, "residual_section_backward")
    logits, gradients = evaluate_agent()
    acting = agent.inference_copy()(inputs)[0].policy_logits
    assert acting.equal(logits)
    assert len(calls) == 3
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    torchs_logits, torchs = evaluate_agent()
    torch.testing.assert_close(logits, torchs_logits, rtol=0.05, atol=0.005)
    agent.compute_dtype = torch.float32
    for *both, exact in zip(gradients, torchs, evaluate_agent()[1], strict=True):
        error, torchs_error = (torch.dist(gradient, exact) for gradient in both)
        assert error < 1.3 * torchs_error + 0.01 * exact.norm()
