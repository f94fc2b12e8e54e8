"""Frames become the network's input, whichever kernel computes it."""

import pytest
import torch

from tests.kernels import count_calls, needs_kernels
from torchbeast.models import kernels
from torchbeast.models.normalization import normalize_frames


def make_inputs(count, games, height, width, channels=4):
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(
        256, (count, channels, height, width), dtype=torch.uint8, generator=generator
    )
    mean = 255 * torch.rand(games, height, width, channels, generator=generator)
    scale = torch.rand(games, generator=generator) / 50
    task = torch.randint(games, (count,), dtype=torch.int32, generator=generator)
    return frames, mean.permute(0, 3, 1, 2), scale, task


def exact(frames, mean, scale, task):
    task = torch.zeros(len(frames), dtype=torch.int64) if task is None else task.long()
    return (frames.double() - mean[task].double()) * scale[task].double().view(-1, 1, 1, 1)


@needs_kernels
@pytest.mark.parametrize("games", [1, 3])
def test_kernel_is_exact_but_for_one_rounding(games, monkeypatch):
    calls = count_calls(monkeypatch, "normalize_frames")
    frames, mean, scale, task = make_inputs(5, games, 5, 7)
    for by_game in (task, None):
        result = normalize_frames(frames, mean, scale, by_game, torch.bfloat16)
        expected = exact(frames, mean, scale, by_game)
        torch.testing.assert_close(result.double(), expected, rtol=1 / 256, atol=1e-6)
        assert result.dtype == torch.bfloat16
        assert result.is_contiguous(memory_format=torch.channels_last)
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("change", ["no kernel", "float frames", "three channels"])
def test_torch_normalizes_what_the_kernel_cannot(dtype, change, monkeypatch):
    frames, mean, scale, task = make_inputs(3, 2, 6, 6, 3 if change == "three channels" else 4)
    if change == "no kernel":
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    elif change == "float frames":
        frames = frames.float()
    result = normalize_frames(frames, mean, scale, task, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 0.1  # torch rounds the mean, too.
    torch.testing.assert_close(
        result.double(), exact(frames, mean, scale, task), rtol=0, atol=tolerance
    )
    assert result.dtype == dtype
