"""How an agent's outputs change when a place in the picture is blurred.

Greydanus et al. 2018, "Visualizing and Understanding Atari Agents" (arXiv:1711.00138).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from torchbeast.analysis.overlays import Grid
from torchbeast.analysis.saliency.evaluation import Evaluation, LocalEvaluation
from torchbeast.analysis.saliency.local import Span, Window, cut, find_encoder, whole_window
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent

# Of the blur that hides a place (section 3.1 of the paper).
BLUR_SIGMA = 3.0
# Standard deviations at which masks end. On shipped agents the rest changes maps by up to 9e-6 of
# their peaks, and with 3 by up to 2e-4, which is less than bfloat16's own error of 5e-3.
TRUNCATE = {torch.float32: 4.0, torch.bfloat16: 3.0}
TILE_SIZE = 16  # Pixels between the first and the last mask that are evaluated together, about.
# Grey levels: less is rounding of the blur.
SMALLEST_CHANGE = 1e-3


class Outputs(NamedTuple):
    """What an agent computes from one observation, and from it under each mask; float32.

    ``A`` actions, ``K`` value heads; masks lie in rows and columns.
    """

    logits: np.ndarray  # [A]
    values: np.ndarray  # [K], in units of return.
    normalized_values: np.ndarray  # [K], in PopArt's units; without PopArt as ``values``.
    masked_logits: np.ndarray  # [rows, columns, A]
    masked_normalized_values: np.ndarray  # [rows, columns, K]


class Tile(NamedTuple):
    """Neighbouring masks, which are evaluated in one batch."""

    rows: Span  # Of the grid.
    columns: Span
    window: Window  # The pixels that they cover.


class Perturbation:
    """Evaluates an agent on observations under masks; masks are made once.

    A mask is a Gaussian of standard deviation ``radius`` pixels, 1 at its centre and 0 beyond
    ``TRUNCATE`` standard deviations along either axis. Centres are ``density`` pixels apart, the
    first is pixel (0, 0). Under a mask M an observation I becomes ``I (1 - M) + blur(I) M``
    (equation 1).

    Args:
        agent: is copied; the copy computes in the agent's ``compute_dtype``.
        density: pixels between centres.
        radius: standard deviation in pixels.
        batch_size: masks per forward pass, about.
        device: where the copy computes.
        local: recompute only what a mask can change, where the encoder is one that
            :mod:`torchbeast.analysis.saliency.local` knows.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        density: int = 5,
        radius: float = 5.0,
        batch_size: int = 64,
        device: torch.device | str = "cpu",
        local: bool = True,
    ) -> None:
        self._device = torch.device(device)
        self._agent = agent.inference_copy().to(self._device)
        self._encoder = find_encoder(agent) if local else None
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
        reach = math.ceil(TRUNCATE[self._agent.compute_dtype] * radius)
        side = math.isqrt(batch_size)
        if self._encoder is not None:
            # A tile's window is as large as all its masks together.
            side = min(side, TILE_SIZE // density)
        self._tiles = make_tiles(self.grid, self._shape, reach, max(side, 1))
        # [rows, H] and [columns, W]; a mask is the product of one of each.
        self._vertical = _bells(rows, height, radius, reach).to(self._device)
        self._horizontal = _bells(columns, width, radius, reach).to(self._device)

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
        network = self._prepare(frame, inputs, state)
        unmasked = network.evaluate_unchanged()
        count = math.prod(self._shape)
        results = [output.repeat(count, 1) for output in unmasked]
        index = torch.arange(count, device=self._device).view(self._shape)

        @torch.inference_mode()
        def evaluate(tile: Tile) -> None:
            window = find_change(change, tile.window)
            if window is None:
                return
            places = index[slice(*tile.rows), slice(*tile.columns)].flatten()
            changes = cut(change, window, whole_window(change)) * self._masks(tile, window)
            for result, output in zip(results, network.evaluate(changes, window), strict=True):
                result[places] = output

        # All are waited for, and the first error is raised.
        list(self._executor.map(evaluate, self._tiles))
        logits, values, normalized = (output[0].cpu().numpy() for output in unmasked)
        masked_logits, _, masked_normalized = (
            result.view(*self._shape, -1).cpu().numpy() for result in results
        )
        return Outputs(logits, values, normalized, masked_logits, masked_normalized)

    def blur_energy(self, inputs: EnvOutput) -> np.ndarray:
        """Computes how much each mask changes the observation, ``|M (blur(I) - I)|``, float32
        ``[rows, columns]``.
        """
        squares = find_blur(inputs.frame[0].float().to(self._device)).square().sum(dim=(0, 1))
        energy = self._vertical.square() @ squares @ self._horizontal.square().T
        return energy.sqrt().cpu().numpy()

    def _masks(self, tile: Tile, window: Window) -> Tensor:
        """The tile's masks ``[N, 1, h, w]`` within a window."""
        vertical = self._vertical[slice(*tile.rows), slice(*window.rows)]
        horizontal = self._horizontal[slice(*tile.columns), slice(*window.columns)]
        masks = vertical[:, None, :, None] * horizontal[None, :, None, :]
        return masks.flatten(0, 1).unsqueeze(1)

    def _prepare(self, frame: Tensor, inputs: EnvOutput, state: tuple[Tensor, ...]) -> Evaluation:
        if self._encoder is None:
            return Evaluation(self._agent, frame, inputs, state)
        return LocalEvaluation(self._agent, self._encoder, frame, inputs, state)


def make_tiles(grid: Grid, shape: tuple[int, int], reach: int, side: int) -> list[Tile]:
    """Returns squares of masks, which together cover all masks.

    Args:
        grid: where masks are centred.
        shape: rows and columns of masks.
        reach: how many pixels from its centre a mask goes.
        side: masks along a square's side.
    """

    def split(count: int, length: int) -> list[tuple[Span, Span]]:
        """Parts of the grid's rows or columns, and the pixels that their masks cover."""
        parts = [Span(i, min(i + side, count)) for i in range(0, count, side)]
        spacing = int(grid.spacing)
        return [
            (
                part,
                Span(
                    max(part.start * spacing - reach, 0),
                    min((part.stop - 1) * spacing + reach + 1, length),
                ),
            )
            for part in parts
        ]

    return [
        Tile(rows, columns, Window(down, across))
        for rows, down in split(shape[0], grid.height)
        for columns, across in split(shape[1], grid.width)
    ]


def find_change(change: Tensor, window: Window) -> Window | None:
    """Returns the smallest part of a window with all that is not 0 in ``change`` ``[1, C, H,
    W]``.
    """
    changed = cut(change, window, whole_window(change)).ne(0).any(dim=1)[0]
    if not changed.any():
        return None
    spans = []
    for span, line in zip(window, (changed.any(dim=1), changed.any(dim=0)), strict=True):
        places = line.nonzero().flatten()
        spans.append(Span(span.start + int(places[0]), span.start + int(places[-1]) + 1))
    return Window(*spans)


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
