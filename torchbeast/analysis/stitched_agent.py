"""The first layers of one agent, a linear map of channels, the other layers of another agent.

The map is fitted by least squares to the second agent's own activations. It is the same at every
place of a plane, so it can reorder and mix channels, but not look around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchbeast.analysis.moments import Moments
from torchbeast.analysis.stages import StagedEncoder, State
from torchbeast.models import Agent

MOMENTS_AT_ONCE = 32
# Of the largest variance in any direction. Only directions that hardly vary are affected.
RIDGE = 1e-8


class AffineMap(NamedTuple):
    """A linear map of channels, the same at every place."""

    weight: Tensor
    """Float64 ``[C_in, C_out]``."""
    bias: Tensor
    """Float64 ``[C_out]``."""

    def __call__(self, plane: Tensor) -> Tensor:
        """Maps ``[N, C_in, H, W]`` to ``[N, C_out, H, W]``."""
        kernel = self.weight.T[:, :, None, None].to(plane.dtype)
        return torch.nn.functional.conv2d(plane, kernel, self.bias.to(plane.dtype))


class LeastSquares:
    """The best affine map from one layer's channels to another's, from sums over batches."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self._count = 0
        self._input_sum = torch.zeros(inputs, dtype=torch.float64)
        self._output_sum = torch.zeros(outputs, dtype=torch.float64)
        self._inputs = torch.zeros(inputs, inputs, dtype=torch.float64)
        self._cross = torch.zeros(inputs, outputs, dtype=torch.float64)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Adds activations ``[N, C_in, H, W]`` and ``[N, C_out, H, W]`` of the same frames."""
        x, y = (plane.movedim(1, -1).flatten(0, -2).double() for plane in (inputs, outputs))
        self._count += len(x)
        self._input_sum += x.sum(dim=0)
        self._output_sum += y.sum(dim=0)
        self._inputs += x.T @ x
        self._cross += x.T @ y

    def solve(self) -> AffineMap:
        """Returns the map with the smallest squared error, slightly ridge-regularised."""
        x_mean, y_mean = self._input_sum / self._count, self._output_sum / self._count
        covariance = self._inputs / self._count - torch.outer(x_mean, x_mean)
        cross = self._cross / self._count - torch.outer(x_mean, y_mean)
        largest = float(torch.linalg.eigvalsh(covariance)[-1])
        if largest <= 0:  # The front says nothing.
            weight = torch.zeros_like(cross)
        else:
            ridge = RIDGE * largest * torch.eye(len(covariance), dtype=torch.float64)
            weight = torch.linalg.solve(covariance + ridge, cross)
        return AffineMap(weight, y_mean - x_mean @ weight)


class Front(NamedTuple):
    """An agent whose first layers are used, and its index of the game."""

    name: str
    agent: Agent
    task: int


class StitchedAgent(Agent):
    """The first layers of one agent, a map, and the rest of another, for one game.

    Memory, policy and values are the back's, which also fixes what else the agent sees.
    """

    def __init__(self, front: Front, back: Agent, done: int, maps: Sequence[AffineMap]) -> None:
        """Joins two agents of one network.

        Args:
            front: whose first layers are used.
            back: whose other layers are used.
            done: how many convolutions are the front's.
            maps: one for each plane that layers behind the cut read.
        """
        super().__init__(back.config)
        self.uses_last_action = back.uses_last_action
        self.core, self.policy, self.baseline = back.core, back.policy, back.baseline
        self._front, self._done, self._maps = front, done, tuple(maps)
        self._first, self._second = StagedEncoder(front.agent), StagedEncoder(back)

    def encode(self, frames: Tensor) -> Tensor:
        raise NotImplementedError("Frames are centred by the front: call encode_frames.")

    def encode_frames(self, frames: Tensor, task: Tensor | None = None) -> Tensor:
        """Features ``[N, F]`` of frames uint8 ``[N, C, H, W]``; ``task`` is the front's own."""
        state = self._first.start(frames, self._front.task)
        for stage in self._first.stages[: self._done]:
            state = stage.write(state, stage.convolution(stage.read(state)))
        return self._second.finish(self.carry(state), self._done)

    def carry(self, state: State) -> State:
        """Maps the front's state to the input of the back."""
        return tuple(part(plane) for part, plane in zip(self._maps, state, strict=True))


@torch.inference_mode()
def fit_maps(
    front: Front,
    back: Agent,
    back_task: int,
    moments: Moments,
    after_layer: Callable[[], object] = lambda: None,
) -> list[list[AffineMap]]:
    """Fits the maps behind every convolution, in one pass over the moments.

    Args:
        front: whose activations are mapped.
        back: whose activations are the targets.
        back_task: its index of the game.
        moments: of the game.
        after_layer: is called after each layer of a part of the moments; what it raises ends the
            fit.

    Returns:
        For each convolution a map for each plane that later layers read.
    """
    first, second = StagedEncoder(front.agent), StagedEncoder(back)
    fits: list[list[LeastSquares]] = []
    for batch in moments.split(MOMENTS_AT_ONCE):
        frames = batch.inputs.frame[0]
        state, target = first.start(frames, front.task), second.start(frames, back_task)
        for number, (one, other) in enumerate(zip(first.stages, second.stages, strict=True)):
            state = one.write(state, one.convolution(one.read(state)))
            target = other.write(target, other.convolution(other.read(target)))
            planes = list(zip(state, target, strict=True))
            if number == len(fits):
                fits.append([LeastSquares(x.shape[1], y.shape[1]) for x, y in planes])
            for fit, (x, y) in zip(fits[number], planes, strict=True):
                fit.add(x, y)
            after_layer()
    return [[fit.solve() for fit in row] for row in fits]
