"""Sizes that no array can have are refused before anything is read or allocated."""

import pytest
import torch

from libtorchbeast import _C, BatchingQueue
from tests.kernels import needs_kernels


@pytest.mark.parametrize("batch_dim", [-1, 2**31 + 7])
def test_a_batch_dimension_out_of_range_is_refused(batch_dim):
    with pytest.raises(ValueError, match="batch_dim must be from 0 to 7, got"):
        BatchingQueue(batch_dim=batch_dim)


@pytest.mark.parametrize("sizes", [(2**61,), (2**31, 2**31), (2**40, 0, 2**40)])
def test_an_array_of_an_impossible_size_is_refused(sizes):
    tensor = torch.ones([1] * len(sizes)).expand(sizes)
    with pytest.raises(ValueError, match="the sizes of an array must be from 0 to"):
        BatchingQueue(batch_dim=0, check_inputs=False).enqueue(tensor)


def bits(*size):
    return torch.zeros(size, dtype=torch.int16)


def floats(*size):
    return torch.zeros(size)


def bytes_of(*size):
    return torch.zeros(size, dtype=torch.uint8)


@needs_kernels
def test_arrays_that_do_not_fit_together_are_refused():
    frames, mean, scale = bytes_of(2, 4, 6, 6), floats(3, 6, 6, 4), floats(3)
    for task in (-1, 3):
        task = torch.full((2,), task, dtype=torch.int32)
        with pytest.raises(IndexError, match="no such game"):
            _C.normalize_frames(frames, mean, scale, task, bits(2, 6, 6, 4))
    with pytest.raises(ValueError, match=r"needs stacks \[N, 4, H, W\]"):
        _C.normalize_frames(frames, mean[:, :5].contiguous(), scale, task % 3, bits(2, 6, 6, 4))


@needs_kernels
def test_filters_and_pictures_that_do_not_fit_together_are_refused():
    weights = [floats(16, 3, 3, 16)] * 5
    with pytest.raises(ValueError, match="a picture's height must be from 1 to 8192"):
        _C.residual_section(bits(1, 0, 4, 16), weights, [floats(16)] * 5, bits(1, 0, 2, 16), None)
    with pytest.raises(ValueError, match="pooled pictures must be"):
        _C.residual_section(bits(1, 4, 4, 16), weights, [floats(16)] * 5, bits(1, 2, 3, 16), None)
    for last, bias, message in ((32, 16, "filters must be"), (16, 15, "biases")):
        arrays = [*weights[1:], floats(16, 3, 3, last)], [floats(bias)] * 5
        with pytest.raises(ValueError, match=message):
            _C.residual_section(bits(1, 4, 4, 16), *arrays, bits(1, 2, 2, 16), None)
