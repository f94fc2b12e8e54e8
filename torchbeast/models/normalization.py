"""From frames to the network's input."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from torchbeast.models import kernels
from torchbeast.models.kernels import bits, channels_last

# What the compiled kernel can do (libtorchbeast/csrc/kernels/normalize_frames.h).
STACKED_FRAMES = 4


def normalize_frames(
    frames: Tensor, mean: Tensor, scale: Tensor, task: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Computes ``(frames - mean) * scale`` with the mean and scale of each frame's game, channels
    last in memory.

    On a CPU with AVX512-BF16, stacks of four frames go through a kernel of our own if the result is
    bfloat16: one pass instead of five. It rounds once; torch rounds after each operation.

    Args:
        frames: ``[N, C, H, W]``, uint8 or a floating-point type.
        mean: float32 ``[G, C, H, W]`` for G games, channels last in memory.
        scale: float32 ``[G]``.
        task: each frame's game, ``[N]``; None if all are of the first.
        dtype: of the result.
    """
    kernel = kernels.compiled()
    if kernel is not None and dtype == torch.bfloat16 and _is_supported(frames, mean):
        return _by_kernel(kernel, frames, mean, scale, task)
    # Two conversions, layout first: one combined .to() is half as fast.
    x = frames.contiguous(memory_format=torch.channels_last).to(dtype)
    mean, scale = mean.to(dtype), scale.to(dtype)
    if task is None or len(scale) == 1:
        mean, scale = mean[0], scale[0]
    else:
        # Taken as [N, H, W, C], which is how they lie in memory, by index_select: mean[task] takes
        # six times as long.
        mean = channels_last(mean).index_select(0, task).permute(0, 3, 1, 2)
        scale = scale.index_select(0, task).view(-1, 1, 1, 1)
    return (x - mean).mul_(scale)


def _is_supported(frames: Tensor, mean: Tensor) -> bool:
    return (
        frames.device.type == "cpu"
        and frames.dtype == torch.uint8
        and frames.shape[1] == STACKED_FRAMES
        and frames.is_contiguous()
        and channels_last(mean).is_contiguous()
    )


def _by_kernel(
    kernel: ModuleType, frames: Tensor, mean: Tensor, scale: Tensor, task: Tensor | None
) -> Tensor:
    if task is None or len(scale) == 1:
        task = torch.zeros(len(frames), dtype=torch.int32)
    outputs = torch.empty(frames.shape, dtype=torch.bfloat16, memory_format=torch.channels_last)
    kernel.normalize_frames(
        frames,
        channels_last(mean),
        scale,
        task.to(torch.int32).contiguous(),
        bits(outputs),
    )
    return outputs
