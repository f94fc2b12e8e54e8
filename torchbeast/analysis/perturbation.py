"""Where an agent looks: how its outputs change when a place in the picture is blurred.

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

from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent

# Of the blur that hides a place (section 3.1 of the paper).
BLUR_SIGMA = 3.0
# Outputs for equal pictures in batches of other sizes differ by some units in the last place.
ROUNDING = 16


class Saliency(NamedTuple):
    """Scores of one observation, float32 ``[rows, columns]``: one per mask."""

    policy: np.ndarray
    value: np.ndarray


class PerturbationSaliency:
    """Scores observations of one agent; masks are made once.

    A mask is a Gaussian of standard deviation ``radius`` pixels, 1 at its centre; centres are
    ``density`` pixels apart. Under a mask M an observation I becomes ``I (1 - M) + blur(I) M``
    (equation 1). The score is half the squared change of the logits, or of the value (equations 2
    and 3): that of the game's own value head.
    """

    def __init__(
        self,
        agent: Agent,
        task: int,
        *,
        density: int = 5,
        radius: float = 5.0,
        batch_size: int = 32,
    ) -> None:
        self._agent = agent.inference_copy()
        self._head = task if agent.config.use_popart else 0
        self._batch_size = batch_size
        # Whole batches in parallel: threads inside each operation would wait for each other at the
        # end of every one.
        self._executor = ThreadPoolExecutor(
            torch.get_num_threads(), initializer=torch.set_num_threads, initargs=(1,)
        )
        _, height, width = agent.config.observation_shape
        rows, columns = range(0, height, density), range(0, width, density)
        self._shape = (len(rows), len(columns))
        vertical = _bells(rows, height, radius)
        horizontal = _bells(columns, width, radius)
        # [masks, 1, H, W], in the precision in which the encoder begins anyway.
        masks = torch.einsum("ih,jw->ijhw", vertical, horizontal).reshape(-1, 1, height, width)
        self._masks = masks.to(self._agent.compute_dtype)

    @torch.inference_mode()
    def __call__(self, inputs: EnvOutput, state: tuple[Tensor, ...]) -> Saliency:
        """``inputs``: one observation, leaves ``[1, 1, ...]``; ``state``: before it is seen."""
        frame = inputs.frame[0].float()
        # As I + (blur(I) - I) M: one multiplication and one addition per mask.
        change = _blur(frame[0]) - frame
        # In the encoder's layout, which the pictures under masks then have, too.
        frame, change = (
            x.contiguous(memory_format=self._agent.memory_format).to(self._masks.dtype)
            for x in (frame, change)
        )
        logits, value = self._evaluate(frame, inputs, state)

        @torch.inference_mode()
        def score(masks: Tensor) -> tuple[Tensor, Tensor]:
            perturbed = torch.addcmul(frame, change, masks)
            new_logits, new_value = self._evaluate(perturbed, inputs, state)
            policy = 0.5 * (new_logits - logits).square().sum(dim=1)
            return policy, 0.5 * (new_value - value).square()

        batches = self._masks.split(self._batch_size)
        policy_scores, value_scores = zip(*self._executor.map(score, batches), strict=True)
        return Saliency(
            self._finish(policy_scores, logits.square().sum()),
            self._finish(value_scores, value.square().sum()),
        )

    def _finish(self, scores: tuple[Tensor, ...], square: Tensor) -> np.ndarray:
        """The map, without what rounding of outputs with this sum of squares can make."""
        flat = torch.cat(scores)
        noise = (ROUNDING * torch.finfo(torch.float32).eps) ** 2 * square
        return torch.where(flat > noise, flat, 0.0).view(self._shape).numpy()

    def _evaluate(
        self, frames: Tensor, inputs: EnvOutput, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Logits ``[N, A]`` and values ``[N]`` with frames ``[N, C, H, W]`` as observations."""
        count = len(frames)
        fields: dict[str, Any] = {
            name: getattr(inputs, name).expand(1, count)
            for name in ("reward", "done", "task", "last_action")
        }
        states = tuple(s.expand(-1, count, *s.shape[2:]) for s in state)
        output, _ = self._agent({"frame": frames.unsqueeze(0), **fields}, states, sample=False)
        return output.policy_logits[0].float(), output.baseline[0, :, self._head].float()


def _bells(centres: range, length: int, sigma: float) -> Tensor:
    """Gaussians of height 1, ``[len(centres), length]``."""
    distance = torch.arange(length).unsqueeze(0) - torch.tensor(list(centres)).unsqueeze(1)
    return torch.exp(-0.5 * (distance / sigma).square())


def _blur(frame: Tensor) -> Tensor:
    """A Gaussian blur of each channel of ``[C, H, W]``."""
    size = 2 * math.ceil(4 * BLUR_SIGMA) + 1
    planes = [
        cv2.GaussianBlur(plane, (size, size), BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
        for plane in frame.numpy()
    ]
    return torch.from_numpy(np.stack(planes))
