"""Layers of the ResNet that run in compiled kernels, where this machine can do it."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn


@functools.cache
def compiled() -> ModuleType | None:
    """Returns the module that has the compiled kernels; None where they cannot run.

    They need the compiled modules and a processor with AVX512-BF16.
    """
    try:
        from libtorchbeast import _C
    except ImportError:
        return None
    return _C if _C.has_kernels() else None


def channels_last(x: Tensor) -> Tensor:
    """Returns ``[N, C, H, W]`` as ``[N, H, W, C]``, without a copy."""
    return x.permute(0, 2, 3, 1)


def bits(x: Tensor) -> Tensor:
    """Returns bfloat16 ``[N, C, H, W]`` as int16 ``[N, H, W, C]``, without a copy.

    bfloat16 travels as int16: not every library knows it.
    """
    return channels_last(x.detach().view(torch.int16))


def empty_pooled(x: Tensor, channels: int) -> Tensor:
    """Makes room for what max pooling with windows of 3 x 3, stride 2 and padding 1 makes of ``x``,
    ``[N, channels, (H + 1) // 2, (W + 1) // 2]``.
    """
    count, _, height, width = x.shape
    size = (count, channels, (height + 1) // 2, (width + 1) // 2)
    return torch.empty(size, dtype=x.dtype, memory_format=torch.channels_last)


# What the compiled kernel can do (libtorchbeast/csrc/kernels/residual_section.h).
INPUT_CHANNELS = {16: (4, 16), 32: (16, 32)}  # By the channels of the outputs.
BLOCK = (nn.ReLU, nn.Conv2d, nn.ReLU, nn.Conv2d)
LAYERS = (nn.Conv2d, nn.MaxPool2d, *BLOCK, *BLOCK)


def residual_section(x: Tensor, head: nn.Module, block1: nn.Module, block2: nn.Module) -> Tensor:
    """Computes a section: a convolution with max pooling, and two blocks whose outputs are added.

    bfloat16 pictures on a CPU with AVX512-BF16 go through a kernel of our own, which takes each
    picture through the whole section while it is in the processor's cache. Anything else, and a
    torchbeast without compiled modules, goes through the layers. Results and gradients are the same
    up to rounding.

    Args:
        x: ``[N, C, H, W]``.
        head: a convolution and max pooling.
        block1: ReLU, convolution, ReLU, convolution.
        block2: likewise.
    """
    kernel = compiled()
    layers = [layer for part in (head, block1, block2) for layer in part.children()]
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    if (
        kernel is None
        or not _are_known(layers)
        or not _is_supported(x, convolutions[0])
        # Somebody wants to see what a layer computes.
        or any(layer._forward_hooks for layer in (head, block1, block2, *layers))
    ):
        x = head(x)
        # In place, as is the ReLU between the convolutions: nobody needs their outputs later.
        x = block1(x).add_(x)
        return block2(x).add_(x)
    parameters = [parameter for layer in convolutions for parameter in layer.parameters()]
    if torch.is_grad_enabled() and any(p.requires_grad for p in (x, *parameters)):
        return _SectionFunction.apply(kernel, x, *parameters)
    outputs = empty_pooled(x, convolutions[0].out_channels)
    kernel.residual_section(bits(x), *_filters(parameters), bits(outputs))
    return outputs


class _SectionFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: ModuleType, x: Tensor, *parameters: Tensor) -> Tensor:
        outputs = empty_pooled(x, len(parameters[0]))
        indices = torch.empty_like(outputs, dtype=torch.uint8)
        kept = [torch.empty_like(outputs) for _ in range(4)]
        kernel.residual_section(bits(x), *_filters(parameters), bits(outputs), _kept(indices, kept))
        ctx.save_for_backward(x, indices, *kept, *parameters)
        ctx.kernel = kernel
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, indices, *rest = ctx.saved_tensors
        kept, parameters = rest[:4], rest[4:]
        gradients = gradients.contiguous(memory_format=torch.channels_last)
        x_gradients = torch.empty_like(x) if ctx.needs_input_grad[1] else None
        results = [torch.empty(_rows(p).shape) for p in parameters]
        ctx.kernel.residual_section_backward(
            bits(x),
            *_filters(parameters),
            _kept(indices, kept),
            bits(gradients),
            None if x_gradients is None else bits(x_gradients),
            results[::2],
            results[1::2],
        )
        filters = [r.permute(0, 3, 1, 2) if r.dim() == 4 else r for r in results]
        return None, x_gradients, *filters


def _are_known(layers: list[nn.Module]) -> bool:
    """Whether these are the layers of the ResNet, not some of a subclass."""
    return tuple(map(type, layers)) == LAYERS and all(map(_is_known, layers))


def _is_known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.MaxPool2d):
        sizes = layer.kernel_size, layer.stride, layer.padding, layer.dilation
        return sizes == (3, 2, 1, 1) and not (layer.ceil_mode or layer.return_indices)
    return not isinstance(layer, nn.Conv2d) or (
        layer.kernel_size == (3, 3)
        and layer.padding == layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.bias is not None
    )


def _is_supported(x: Tensor, first: nn.Conv2d) -> bool:
    """Whether the kernel takes these pictures: bfloat16, channels last in memory, on a CPU."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.bfloat16
        and x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.shape[1] in INPUT_CHANNELS.get(first.out_channels, ())
        and not (x.requires_grad and x.shape[1] == 4)
    )


def _filters(parameters: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Weights ``[outputs, 3, 3, inputs]`` and biases, float32."""
    dense = [_rows(p.detach().float()).contiguous() for p in parameters]
    return dense[::2], dense[1::2]


def _kept(indices: Tensor, kept: list[Tensor]) -> tuple[Tensor, ...]:
    return channels_last(indices), *map(bits, kept)


def _rows(parameter: Tensor) -> Tensor:
    """A weight ``[outputs, inputs, 3, 3]`` as ``[outputs, 3, 3, inputs]``, a bias as it is."""
    return channels_last(parameter) if parameter.dim() == 4 else parameter
