"""The weights that a network begins with.

PyTorch's own let a signal shrink from layer to layer: what a ball of two pixels changes arrives at
the heads thirty times as small as with these.
"""

from __future__ import annotations

import math

import torch
from torch import nn

# Keeps the mean square from one layer to the next where half of it is lost to a ReLU (He et al.
# 2015).
RELU_GAIN = math.sqrt(2.0)
# An LSTM begins with its gates half open: out of x comes tanh(x) times the input gate's half times
# the output gate's half.
LSTM_GAIN = 4.0


def orthogonal_(layer: nn.Conv2d | nn.Linear, gain: float = RELU_GAIN) -> None:
    """Orthogonal weights (Saxe et al. 2014) times ``gain``, and a bias of 0."""
    assert layer.bias is not None
    orthogonal_weight_(layer.weight, gain)
    nn.init.zeros_(layer.bias)


def orthogonal_weight_(weight: torch.Tensor, gain: float) -> None:
    """The same for weights whose bias is to stay."""
    with torch.no_grad():
        # By way of a copy: orthogonal_ needs another memory layout than convolutions have here.
        weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape), gain))
