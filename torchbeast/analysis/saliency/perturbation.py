"""How an agent's outputs change when a place in the picture is blurred.

Greydanus et al. 2018, "Visualizing and Understanding Atari Agents" (arXiv:1711.00138).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.overlays import Grid
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent

# The width of the blur that hides a place (section 3.1 of the paper).
BLUR_SIGMA = 3.0
# Standard deviations at which masks end. On shipped agents the rest changes maps by up to 9e-6 of
# their peaks, and with 3 by up to 2e-4, which is less than bfloat16's own error of 5e-3.
TRUNCATE = {torch.float32: 4.0, torch.bfloat16: 3.0}
# Grey levels: less is rounding of the blur.
SMALLEST_CHANGE = 1e-3

# Logits [N, A], values and normalised values [N, K].
Heads = tuple[Tensor, Tensor, Tensor]


class Outputs(NamedTuple):
    """What an agent computes from one observation, and from it under each mask; float32.

    ``A`` actions, ``K`` value heads; masks lie in rows and columns.
    """

    logits: np.ndarray  # [A]
    values: np.ndarray  # [K], in units of return.
    normalized_values: np.ndarray  # [K], in PopArt's units; without PopArt as ``values``.
    masked_logits: np.ndarray  # [rows, columns, A]
    masked_normalized_values: np.ndarray  # [rows, columns, K]


@dataclass(frozen=True)
class SaliencyConfig:
    """How maps are made."""

    density: int = 2  # Pixels between masks.
    radius: float = 5.0  # Standard deviation of a mask, in pixels.
    batch_size: int = 64  # Masks per forward pass.
    dtype: torch.dtype = torch.float32  # In which the encoder computes.
    device: str = "cpu"  # Where it computes.


def compute_outputs(
    agent: Agent, frames: Tensor, inputs: EnvOutput, state: tuple[Tensor, ...]
) -> Heads:
    """Computes an agent's outputs for other frames in the place of an observation's.

    Args:
        agent: in evaluation.
        frames: grey levels, float32 ``[N, C, H, W]``.
        inputs: the rest of what the agent sees, leaves ``[1, 1, ...]``.
        state: its recurrent state before, leaves ``[L, 1, H]``.
    """
    count = len(frames)
    fields = {
        name: leaf.expand(1, count) for name, leaf in inputs._asdict().items() if name != "frame"
    }
    state = tuple(s.expand(-1, count, *s.shape[2:]) for s in state)
    output, _ = agent({"frame": frames.unsqueeze(0), **fields}, state, sample=False)
    logits, values, normalized = (
        x[0].float() for x in (output.policy_logits, output.baseline, output.normalized_baseline)
    )
    return logits, values, normalized


class Perturbation:
    """Evaluates an agent on observations under masks; masks are made once.

    A mask is a Gaussian of standard deviation ``radius`` pixels, 1 at its centre and 0 beyond
    ``TRUNCATE`` standard deviations along either axis. Centres are ``density`` pixels apart, the
    first is pixel (0, 0). Under a mask M an observation I becomes ``I (1 - M) + blur(I) M``
    (equation 1).

    Args:
        agent: is copied.
        config: of the masks, and how the copy computes.
    """

    def __init__(self, agent: Agent, config: SaliencyConfig) -> None:
        self._device = torch.device(config.device)
        self._agent = agent.inference_copy(config.dtype).to(self._device)
        self._batch_size = config.batch_size
        # Whole batches in parallel: threads inside each operation would wait for each other at the
        # end of every one. A GPU is parallel by itself.
        num_threads = torch.get_num_threads() if self._device.type == "cpu" else 1
        self._executor = ThreadPoolExecutor(
            num_threads, initializer=torch.set_num_threads, initargs=(1,)
        )
        _, height, width = agent.config.observation_shape
        self.grid = Grid(height, width, config.density)
        rows, columns = (range(0, length, config.density) for length in (height, width))
        self._shape = (len(rows), len(columns))
        reach = math.ceil(TRUNCATE[config.dtype] * config.radius)
        # [rows, H] and [columns, W]; a mask is the product of one of each.
        self._vertical = _bells(rows, height, config.radius, reach).to(self._device)
        self._horizontal = _bells(columns, width, config.radius, reach).to(self._device)

    @torch.inference_mode()
    def __call__(self, inputs: EnvOutput, state: tuple[Tensor, ...]) -> Outputs:
        """Evaluates one observation.

        Args:
            inputs: one observation, leaves ``[1, 1, ...]``.
            state: the recurrent state before the observation is seen, leaves ``[L, 1, H]``.
        """
        inputs = EnvOutput(*(leaf.to(self._device) for leaf in inputs))
        state = tuple(leaf.to(self._device) for leaf in state)
        frame = inputs.frame[0].float()
        change = find_blur(frame)
        unmasked = compute_outputs(self._agent, frame, inputs, state)
        # Logits and normalised values.
        results = [output.repeat(math.prod(self._shape), 1) for output in unmasked[::2]]

        @torch.inference_mode()
        def evaluate_masked(places: Tensor) -> None:
            frames = frame + change * self._masks(places)
            outputs = compute_outputs(self._agent, frames, inputs, state)
            for result, output in zip(results, outputs[::2], strict=True):
                result[places] = output

        # Masks that change nothing need no forward pass.
        places = self._energy(change).flatten().nonzero().flatten()
        # All are waited for, and the first error is raised.
        batches = places.split(self._batch_size) if len(places) else ()
        list(self._executor.map(evaluate_masked, batches))
        logits, values, normalized = (output[0].cpu().numpy() for output in unmasked)
        masked_logits, masked_normalized = (
            result.view(*self._shape, -1).cpu().numpy() for result in results
        )
        return Outputs(logits, values, normalized, masked_logits, masked_normalized)

    def blur_energy(self, inputs: EnvOutput) -> np.ndarray:
        """Computes how much each mask changes the observation, ``|M (blur(I) - I)|``, float32
        ``[rows, columns]``.
        """
        change = find_blur(inputs.frame[0].float().to(self._device))
        return self._energy(change).cpu().numpy()

    def pool(self, pixels: np.ndarray) -> np.ndarray:
        """Sums pixels ``[H, W]`` under each mask, float32 ``[rows, columns]``."""
        weights = torch.from_numpy(pixels).float().to(self._device)
        return (self._vertical @ weights @ self._horizontal.T).cpu().numpy()

    def _energy(self, change: Tensor) -> Tensor:
        squares = change.square().sum(dim=(0, 1))
        energy = self._vertical.square() @ squares @ self._horizontal.square().T
        return energy.sqrt()

    def _masks(self, places: Tensor) -> Tensor:
        """The masks ``[N, 1, H, W]`` at places of the flattened grid."""
        rows, columns = torch.unravel_index(places, self._shape)
        masks = self._vertical[rows, :, None] * self._horizontal[columns, None, :]
        return masks.unsqueeze(1)


def find_blur(frame: Tensor) -> Tensor:
    """Computes ``blur(I) - I`` of ``[1, C, H, W]``; 0 where it is less than the blur's own
    rounding.
    """
    change = (blur(frame[0]) - frame[0]).unsqueeze(0)
    return torch.where(change.abs() < SMALLEST_CHANGE, 0.0, change)


def blur(frame: Tensor) -> Tensor:
    """Blurs each channel of ``[C, H, W]`` with a Gaussian of ``BLUR_SIGMA``."""
    size = 2 * math.ceil(4 * BLUR_SIGMA) + 1
    planes = [
        cv2.GaussianBlur(plane, (size, size), BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
        for plane in frame.cpu().numpy()
    ]
    return torch.from_numpy(np.stack(planes)).to(frame.device)


def _bells(centres: range, length: int, sigma: float, reach: int) -> Tensor:
    """Gaussians of height 1, 0 farther than ``reach`` pixels, ``[len(centres), length]``."""
    distance = torch.arange(length).unsqueeze(0) - torch.tensor(list(centres)).unsqueeze(1)
    bells = torch.exp(-0.5 * (distance / sigma).square())
    return torch.where(distance.abs() <= reach, bells, 0.0)
