"""MaxPool is torch's max pooling, whichever kernel computes it."""

import pytest
import torch
from torch.nn import functional

from tests.kernels import HAS_KERNELS, count_calls, needs_kernels
from torchbeast.models.kernels import MaxPool

SIZES = [(3, 16, 84, 84), (1, 16, 1, 1), (2, 48, 2, 3)]


def pictures(*size, dtype=torch.bfloat16):
    # Few different numbers: many windows have several equal maxima.
    values = torch.randint(-4, 5, size, generator=torch.Generator().manual_seed(0)) / 4
    return values.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()


@needs_kernels
@pytest.mark.parametrize("size", SIZES)
def test_kernel_agrees_with_torch(size, monkeypatch):
    forward, backward = (count_calls(monkeypatch, n) for n in ("max_pool", "max_pool_backward"))
    x = pictures(*size)
    outputs = MaxPool()(x)
    expected = functional.max_pool2d(x, 3, 2, 1)
    assert outputs.equal(expected)
    assert outputs.is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        assert MaxPool()(x).equal(expected)
    gradients = torch.randn(expected.shape).bfloat16()
    (result,) = torch.autograd.grad(outputs, x, gradients)
    exact = x.detach().double().requires_grad_()
    pooled = functional.max_pool2d(exact, 3, 2, 1)
    (exact_result,) = torch.autograd.grad(pooled, exact, gradients.double())
    torch.testing.assert_close(result, exact_result.bfloat16(), rtol=1 / 128, atol=0)
    assert (len(forward), len(backward)) == (2, 1)


@pytest.mark.parametrize("x", [pictures(2, 16, 8, 8, dtype=torch.float32), pictures(2, 8, 8, 8)])
def test_torch_pools_what_the_kernel_cannot(x, monkeypatch):
    calls = count_calls(monkeypatch, "max_pool") if HAS_KERNELS else []
    assert MaxPool()(x).equal(functional.max_pool2d(x, 3, 2, 1))
    assert not calls
