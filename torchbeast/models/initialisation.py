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
# With this gain the gates' inputs are as large as the LSTM's input. With twice as much the gates
# of a ResNet's LSTM saturate and it does not learn to remember a cue for four steps; with half as
# much the shallow network learns this four times as slowly.
LSTM_GAIN = 2.0


def orthogonal_(layer: nn.Conv2d | nn.Linear, gain: float = RELU_GAIN) -> None:
    """Sets orthogonal weights (Saxe et al. 2014) times ``gain``, and a bias of 0."""
    assert layer.bias is not None
    orthogonal_weight_(layer.weight, gain)
    nn.init.zeros_(layer.bias)


def orthogonal_weight_(weight: torch.Tensor, gain: float) -> None:
    """Sets orthogonal weights where the bias is to stay."""
    with torch.no_grad():
        # By way of a copy: orthogonal_ needs another memory layout than convolutions have here.
        weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape), gain))
