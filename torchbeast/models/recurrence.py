"""Running an LSTM over rollouts in which episodes begin."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

CoreState = tuple[Tensor, ...]

# Steps from which a fused call of nn.LSTM pays: oneDNN reorders all weights before it computes.
FUSED_STEPS = 8


def run_lstm(
    lstm: nn.LSTM, inputs: Tensor, starts: Tensor, state: CoreState
) -> tuple[Tensor, CoreState]:
    """Runs an LSTM over ``[T, B, F]``, from a zero state where ``starts``.

    One fused call for every long stretch in which no environment's memory is reset: the same result
    as one call per step.

    Args:
        lstm: the LSTM.
        inputs: ``[T, B, F]``.
        starts: bool ``[T, B]``.
        state: hidden and cell state before the first row, ``[L, B, H]`` each.

    Returns:
        The outputs ``[T, B, H]`` and the state after the last row.
    """
    rows = starts.any(dim=1).nonzero().flatten().tolist()
    bounds = sorted({0, *rows, inputs.shape[0]})
    lengths = [end - start for start, end in itertools.pairwise(bounds)]
    keeps = (~starts[bounds[:-1]]).to(inputs.dtype).unsqueeze(-1)
    outputs = []
    for stretch, keep in zip(inputs.split(lengths), keeps, strict=True):
        state = tuple(part * keep for part in state)
        if len(stretch) < FUSED_STEPS:
            output, state = step_lstm(lstm, stretch, state)
        else:
            output, state = lstm(stretch, state)
        outputs.append(output)
    return torch.cat(outputs), state


def step_lstm(lstm: nn.LSTM, inputs: Tensor, state: CoreState) -> tuple[Tensor, CoreState]:
    """Computes what ``lstm(inputs, state)`` does, step by step."""
    hidden, cell = (list(part.unbind()) for part in state)
    outputs = []
    for x in inputs.unbind():
        for layer, weights in enumerate(lstm.all_weights):
            hidden[layer], cell[layer] = torch.lstm_cell(x, (hidden[layer], cell[layer]), *weights)
            x = hidden[layer]
        outputs.append(x)
    return torch.stack(outputs), (torch.stack(hidden), torch.stack(cell))
