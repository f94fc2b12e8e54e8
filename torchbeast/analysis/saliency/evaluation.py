"""An agent's outputs for one observation of which parts are changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchbeast.analysis.saliency.local import LocalEncoder, Window, cut, whole_window
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import EnvOutput
from torchbeast.models import Agent

# Logits [N, A], values and normalised values [N, K].
Heads = tuple[Tensor, Tensor, Tensor]


class Evaluation:
    """Whole forward passes, of any agent.

    Args:
        agent: in evaluation.
        frame: the observation, grey levels float32 ``[1, C, H, W]``.
        inputs: the rest of what the agent sees, leaves ``[1, 1, ...]``.
        state: its recurrent state before, leaves ``[L, 1, H]``.
    """

    def __init__(
        self, agent: Agent, frame: Tensor, inputs: EnvOutput, state: tuple[Tensor, ...]
    ) -> None:
        self._agent, self._frame = agent, frame
        self._inputs, self._state = inputs, state

    def evaluate(self, changes: Tensor, window: Window) -> Heads:
        """Computes the outputs under changes ``[N, C, h, w]``, in grey levels, of a window of the
        frame.
        """
        frames = self._frame.repeat(len(changes), 1, 1, 1)
        cut(frames, window, whole_window(frames)).add_(changes)
        return self.evaluate_frames(frames)

    def evaluate_unchanged(self) -> Heads:
        """Computes the outputs for the observation itself; ``N`` is 1."""
        return self.evaluate_frames(self._frame)

    def evaluate_frames(self, frames: Tensor) -> Heads:
        """Computes the outputs for frames ``[N, C, H, W]`` in the place of the observation's."""
        fields, state = self._repeat(len(frames))
        output, _ = self._agent({"frame": frames.unsqueeze(0), **fields}, state, sample=False)
        logits, values, normalized = (
            x[0].float()
            for x in (output.policy_logits, output.baseline, output.normalized_baseline)
        )
        return logits, values, normalized

    def _repeat(self, count: int) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
        """Everything but the frame, and the recurrent state, for ``count`` observations."""
        fields = {
            name: leaf.expand(1, count)
            for name, leaf in self._inputs._asdict().items()
            if name != "frame"
        }
        return fields, tuple(s.expand(-1, count, *s.shape[2:]) for s in self._state)


class LocalEvaluation(Evaluation):
    """Forward passes that recompute what a change can reach, with an encoder that can do that."""

    def __init__(
        self,
        agent: Agent,
        encoder: type[LocalEncoder],
        frame: Tensor,
        inputs: EnvOutput,
        state: tuple[Tensor, ...],
    ) -> None:
        super().__init__(agent, frame, inputs, state)
        task = int(inputs.task) if len(agent.frame_scale) > 1 else 0
        self._scale = agent.frame_scale[task]
        self._centred = (frame - agent.frame_mean[task]) * self._scale
        self._dtype = agent.compute_dtype
        self._encoder = encoder(agent, self._convert(self._centred))

    def evaluate(self, changes: Tensor, window: Window) -> Heads:
        """Computes the outputs for frames that differ by ``changes`` in a window."""
        frames = cut(self._centred, window, whole_window(self._centred))
        return self._evaluate(torch.add(frames, changes * self._scale), window)

    def evaluate_unchanged(self) -> Heads:
        """Computes the outputs for the unchanged frame."""
        return self._evaluate(self._centred, whole_window(self._centred))

    def _evaluate(self, values: Tensor, window: Window) -> Heads:
        features = self._encoder.encode(self._convert(values), window).float()
        fields, state = self._repeat(len(values))
        core_output, _ = self._agent.represent_features(features, fields, state)
        baseline = self._agent.baseline(core_output)
        value, normalized = (
            baseline if isinstance(self._agent.baseline, PopArtLayer) else (baseline, baseline)
        )
        return self._agent.policy(core_output), value, normalized

    def _convert(self, values: Tensor) -> Tensor:
        """In the encoder's precision and memory layout."""
        return values.to(self._dtype).contiguous(memory_format=torch.channels_last)
