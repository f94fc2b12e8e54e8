"""The records that travel between actors, inference and the learner, and the errors users see.

Everything is time-major. ``T`` is time, ``B`` the batch, ``A`` the number of actions, ``K`` the
number of value heads. A rollout has ``T = unroll_length + 1`` rows; its last row is the first of
the next. Row ``t`` pairs what the environment returned at ``t`` with the agent's output that led to
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class EnvOutput(NamedTuple):
    """What environments returned, as tensors. The actor pool relies on the order of the fields."""

    frame: Any
    """The observation; for games uint8 ``[T, B, C, H, W]``."""

    reward: Tensor
    """float32 ``[T, B]``: the reward of the step into this row. The game's own, never clipped."""

    done: Tensor
    """bool ``[T, B]``: this row starts a training episode. Its ``reward`` is that of the step that
    terminated the one before, or 0 after a time limit."""

    task: Tensor
    """int32 ``[T, B]``: index of the game in the agent's task list."""

    episode_step: Tensor
    """int32 ``[T, B]``: agent steps of the full game so far, the step into this row included."""

    episode_return: Tensor
    """float32 ``[T, B]``: sum of the full game's rewards so far, this row's included."""

    truncated: Tensor
    """bool ``[T, B]``: a time limit ended the episode here. The observation is its last, the action
    taken here is ignored, and the next row starts an episode. Where ``done``, too, an environment
    failed, and the end of the episode before is not known."""

    game_over: Tensor
    """bool ``[T, B]``: the full game before ended, not only a life."""

    last_action: Tensor
    """int64 ``[T, B]``: the action that led to this row; 0 for actions that are no integer."""


class EnvStep(NamedTuple):
    """One row of one environment, as plain values. The fields are those of EnvOutput."""

    frame: np.ndarray
    """The observation without time and batch axes; for games uint8 ``[C, H, W]``."""

    reward: float
    """Rounded to float32."""

    done: bool
    task: int
    episode_step: int

    episode_return: float
    """Summed in float64: float32 loses unit rewards beyond 2 ** 24."""

    truncated: bool
    game_over: bool
    last_action: int


class AgentOutput(NamedTuple):
    """What the agent computed from a row. In a rollout: from the row before."""

    action: Tensor
    """int64 ``[T, B, 1]``, sampled from the policy."""

    policy_logits: Tensor
    """float32 ``[T, B, A]``, of the policy that acted."""

    baseline: Tensor
    """float32 ``[T, B, K]``: values in units of return."""

    normalized_baseline: Tensor
    """float32 ``[T, B, K]``: the same values in PopArt's units."""


class ShapeError(ValueError, RuntimeError):
    """A tensor has the wrong rank or shape.

    Also a RuntimeError, as PyTorch raises for it: scripts written for TorchBeast expect that.
    """


class UsageError(Exception):
    """The user asked for something that cannot be; the text says what and what to do instead.

    Command lines print it as one line and exit with code 2.
    """


class RunError(Exception):
    """Something that a run needs failed; the text says what. One line and exit code 1."""
