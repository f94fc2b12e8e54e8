"""How an agent's outputs change when a place in the picture is blurred.

Greydanus et al. 2018, "Visualizing and Understanding Atari Agents" (arXiv:1711.00138).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.overlays import Grid
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent

# Of the blur that hides a place (section 3.1 of the paper).
BLUR_SIGMA = 3.0


class Outputs(NamedTuple):
    """What an agent computes from one observation, and from it under each mask; float32.

    ``A`` actions, ``K`` value heads; masks lie in rows and columns.
    """

    logits: np.ndarray  # [A]
    values: np.ndarray  # [K], in units of return.
    normalized_values: np.ndarray  # [K], in PopArt's units; without PopArt as ``values``.
    masked_logits: np.ndarray  # [rows, columns, A]
    masked_normalized_values: np.ndarray  # [rows, columns, K]


class Perturbation:
    """Evaluates an agent on observations under masks; masks are made once.

    A mask is a Gaussian of standard deviation ``radius`` pixels, 1 at its centre; centres are
    ``density`` pixels apart, the first is pixel (0, 0). Under a mask M an observation I becomes
    ``I (1 - M) + blur(I) M`` (equation 1).

    Args:
        agent: is copied; the copy computes in the agent's ``compute_dtype``.
        density: pixels between centres.
        radius: standard deviation in pixels.
        batch_size: masks per forward pass.
        device: where the copy computes.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        density: int = 5,
        radius: float = 5.0,
        batch_size: int = 32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._device = torch.device(device)
        self._agent = agent.inference_copy().to(self._device)
        self._batch_size = batch_size
        # Whole batches in parallel: threads inside each operation would wait for each other at the
        # end of every one. A GPU is parallel by itself.
        num_threads = torch.get_num_threads() if self._device.type == "cpu" else 1
        self._executor = ThreadPoolExecutor(
            num_threads, initializer=torch.set_num_threads, initargs=(1,)
        )
        _, height, width = agent.config.observation_shape
        self.grid = Grid(height, width, density)
        rows, columns = range(0, height, density), range(0, width, density)
        self._shape = (len(rows), len(columns))
        vertical = _bells(rows, height, radius)
        horizontal = _bells(columns, width, radius)
        # [masks, 1, H, W], in the precision in which the encoder begins anyway.
        masks = torch.einsum("ih,jw->ijhw", vertical, horizontal).reshape(-1, 1, height, width)
        self._masks = masks.to(self._device, self._agent.compute_dtype)

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
        # As I + (blur(I) - I) M: one multiplication and one addition per mask.
        change = blur(frame[0]) - frame
        # In the encoder's layout, which the pictures under masks then have, too.
        frame, change = (
            x.contiguous(memory_format=self._agent.memory_format).to(self._masks.dtype)
            for x in (frame, change)
        )

        @torch.inference_mode()
        def evaluate(masks: Tensor) -> tuple[Tensor, ...]:
            return self._evaluate(torch.addcmul(frame, change, masks), inputs, state)

        logits, values, normalized = self._evaluate(frame, inputs, state)
        batches = list(self._executor.map(evaluate, self._masks.split(self._batch_size)))
        masked_logits, _, masked_normalized = (torch.cat(x) for x in zip(*batches, strict=True))
        return Outputs(
            logits=logits[0].cpu().numpy(),
            values=values[0].cpu().numpy(),
            normalized_values=normalized[0].cpu().numpy(),
            masked_logits=masked_logits.view(*self._shape, -1).cpu().numpy(),
            masked_normalized_values=masked_normalized.view(*self._shape, -1).cpu().numpy(),
        )

    def _evaluate(
        self, frames: Tensor, inputs: EnvOutput, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Logits ``[N, A]``, values and normalised values ``[N, K]`` of frames ``[N, C, H, W]``."""
        count = len(frames)
        fields: dict[str, Any] = {
            name: getattr(inputs, name).expand(1, count)
            for name in ("reward", "done", "task", "last_action")
        }
        states = tuple(s.expand(-1, count, *s.shape[2:]) for s in state)
        output, _ = self._agent({"frame": frames.unsqueeze(0), **fields}, states, sample=False)
        outputs = (output.policy_logits, output.baseline, output.normalized_baseline)
        return tuple(x[0].float() for x in outputs)


def _bells(centres: range, length: int, sigma: float) -> Tensor:
    """Gaussians of height 1, ``[len(centres), length]``."""
    distance = torch.arange(length).unsqueeze(0) - torch.tensor(list(centres)).unsqueeze(1)
    return torch.exp(-0.5 * (distance / sigma).square())


def blur(frame: Tensor) -> Tensor:
    """Blurs each channel of ``[C, H, W]`` with a Gaussian of ``BLUR_SIGMA``."""
    size = 2 * math.ceil(4 * BLUR_SIGMA) + 1
    planes = [
        cv2.GaussianBlur(plane, (size, size), BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
        for plane in frame.cpu().numpy()
    ]
    return torch.from_numpy(np.stack(planes)).to(frame.device)
