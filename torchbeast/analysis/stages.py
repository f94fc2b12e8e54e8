"""An encoder as a chain of convolutions that can be entered and left behind each of them.

Analyses that change one layer run the layers before it once, and only the layers behind it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import UsageError
from torchbeast.models import Agent, AtariNet, ResNet
from torchbeast.models.recurrence import CoreState

# Everything that later layers read, each [N, C, H, W]: the plane, and inside a residual block also
# its branch. Before the ReLU that follows.
State = tuple[Tensor, ...]


class Stage(NamedTuple):
    """One convolution of an encoder."""

    layer: str
    convolution: nn.Conv2d
    read: Callable[[State], Tensor]
    """Returns the input of the convolution."""
    write: Callable[[State, Tensor], State]
    """Returns the state behind the convolution, from the state before it and its output."""


class StagedEncoder:
    """The encoder of an agent, convolution by convolution. It computes in float32."""

    def __init__(self, agent: Agent) -> None:
        """Splits the encoder of ``agent``.

        Raises:
            UsageError: it is neither a ResNet nor the shallow CNN.
        """
        self._agent = agent
        # A subclass may encode otherwise.
        if type(agent) is ResNet:
            self.stages = _resnet_stages(agent)
        elif type(agent) is AtariNet:
            self.stages = _atari_stages(agent)
        else:
            raise UsageError(
                "This analysis knows the layers of agents resnet and atari, not of "
                f"{agent.config.agent_type}"
            )
        self._fc = agent.fc

    @property
    def layers(self) -> list[str]:
        """Names of the convolutions, in the order of the data."""
        return [stage.layer for stage in self.stages]

    def check_layers(self, layers: Sequence[str]) -> None:
        """Raises UsageError if one of these layers of ``--layers`` is not the encoder's."""
        for layer in layers:
            if layer not in self.layers:
                names = ", ".join(self.layers)
                raise UsageError(f"--layers: the agent has no {layer}: it has {names}")

    def start(self, frames: Tensor, task: int) -> State:
        """The state before the first convolution.

        Args:
            frames: uint8 ``[N, C, H, W]``.
            task: which of the agent's games they are of.
        """
        agent = self._agent
        x = frames.to(torch.float32).contiguous(memory_format=torch.channels_last)
        return ((x - agent.frame_mean[task]) * agent.frame_scale[task],)

    def finish(self, state: State, done: int) -> Tensor:
        """Features ``[N, F]``, from the state behind the first ``done`` convolutions."""
        for stage in self.stages[done:]:
            state = stage.write(state, stage.convolution(stage.read(state)))
        (plane,) = state
        return functional.relu(self._fc(functional.relu(plane).flatten(1)))


def _atari_stages(agent: AtariNet) -> tuple[Stage, ...]:
    def follow(_: State, output: Tensor) -> State:
        return (output,)

    return (
        Stage("conv1", agent.conv1, _plane, follow),
        Stage("conv2", agent.conv2, _rectified_plane, follow),
        Stage("conv3", agent.conv3, _rectified_plane, follow),
    )


def _resnet_stages(agent: ResNet) -> tuple[Stage, ...]:
    def branch_off(state: State, output: Tensor) -> State:
        return (state[0], output)

    def join(state: State, output: Tensor) -> State:
        return (state[0] + output,)

    parts: list[tuple[nn.Module, Any, Any]] = []
    for section in zip(agent.feat_convs, agent.resnet1, agent.resnet2, strict=True):
        (first, pool), *blocks = ([*part.children()] for part in section)
        parts.append((first, _plane, lambda _, output, pool=pool: (pool(output),)))
        for _, inner, _, outer in blocks:
            parts.append((inner, _rectified_plane, branch_off))
            parts.append((outer, lambda state: functional.relu(state[1]), join))
    stages = []
    for name, (convolution, read, write) in zip(LAYER_NAMES, parts, strict=True):
        assert isinstance(convolution, nn.Conv2d)
        stages.append(Stage(name, convolution, read, write))
    return tuple(stages)


def _plane(state: State) -> Tensor:
    return state[0]


def _rectified_plane(state: State) -> Tensor:
    return functional.relu(state[0])


class Heads(NamedTuple):
    """What an agent says about N moments of one game."""

    log_policy: Tensor
    """Float64 ``[N, A]``."""
    value: Tensor
    """Of that game, float64 ``[N]``: in PopArt's sigma, or in returns without PopArt."""

    def divergence(self, other: Heads) -> Tensor:
        """The Kullback-Leibler divergence of ``other``'s policies from these, in nats, ``[N]``."""
        log_ratio = self.log_policy - other.log_policy
        return (self.log_policy.exp() * log_ratio).sum(dim=-1).clamp(min=0)  # Rounding.


def read_heads(
    agent: Agent, features: Tensor, fields: dict[str, Any], state: CoreState, task: int
) -> Heads:
    """Computes policy and value of the game ``task`` from features ``[N, F]``.

    Args:
        agent: the agent.
        features: its encoder's output.
        fields: the rest of what it sees, leaves ``[1, N, ...]``.
        state: its memory before, leaves ``[L, N, H]``.
        task: which of its games.
    """
    core_output, _ = agent.represent_features(features, fields, state)
    logits = agent.policy(core_output).double()
    baseline = agent.baseline(core_output)
    if isinstance(agent.baseline, PopArtLayer):
        value = baseline[1][:, task]
    else:
        value = baseline[:, 0]
    return Heads(logits.log_softmax(dim=-1), value.double())
