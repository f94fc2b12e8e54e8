"""Pictures as the compiled kernels take them: dense, with the channels last."""

from __future__ import annotations

import torch
from torch import Tensor


def are_bfloat16(x: Tensor) -> bool:
    """Whether these are bfloat16 pictures ``[N, C, H, W]`` on a CPU, channels last in memory."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.bfloat16
        and x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
    )


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
