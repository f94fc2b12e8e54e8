"""Checks of tensors where they enter a computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchbeast.core.types import ShapeError


def find_not_finite(tensors: Mapping[str, Any]) -> list[str]:
    """Finds the names of the tensors, or numbers, that are not finite everywhere."""
    return [
        name for name, value in tensors.items() if not torch.isfinite(torch.as_tensor(value)).all()
    ]


def check_rank(rank: int, **tensors: Tensor) -> None:
    """Raises ShapeError, with the name of the tensor, unless each has ``rank`` axes."""
    for name, tensor in tensors.items():
        if tensor.dim() != rank:
            raise ShapeError(f"{name} must have {rank} axes, got shape {tuple(tensor.shape)}")


def check_same_shape(**tensors: Tensor) -> None:
    """Raises ShapeError, with all shapes, unless all are equal."""
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ShapeError(f"These must have one shape: {shapes}")


def check_floating(**tensors: Tensor) -> None:
    """Raises TypeError, with the name of the tensor, unless each is of a floating type."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be of a floating type, not {tensor.dtype}")


def check_integer(**tensors: Tensor) -> None:
    """Raises TypeError, with the name of the tensor, unless each is of an integer type."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise TypeError(f"{name} must be of an integer type, not {tensor.dtype}")


def check_bool(**tensors: Tensor) -> None:
    """Raises TypeError, with the name of the tensor, unless each is bool."""
    for name, tensor in tensors.items():
        if tensor.dtype != torch.bool:
            raise TypeError(f"{name} must be bool, not {tensor.dtype}")
