"""The records that travel between actors, inference and the learner, and the errors users see.

Everything is time-major. ``T`` is time, ``B`` the batch, ``A`` the number of actions, ``K`` the
number of value heads. A rollout has ``T = unroll_length + 1`` rows; its last row is the first of
the next. Row ``t`` pairs what the environment returned at ``t`` with the agent's output that led to
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class EnvOutput(NamedTuple):
    """What an environment returned. The order is part of the actor pool's contract."""

    frame: Any  # The observation, for games uint8 [T, B, C, H, W].
    reward: Tensor  # float32 [T, B], of the step into this row; the game's own, never clipped.
    done: Tensor  # bool [T, B], this row starts a training episode.
    task: Tensor  # int32 [T, B], index of the game in the agent's task list.
    episode_step: (
        Tensor  # int32 [T, B], agent steps of the full game, the step into this row included.
    )
    episode_return: Tensor  # float32 [T, B], raw return of the full game, likewise.
    truncated: Tensor  # bool [T, B], the episode before was cut off by a limit: no terminal state.
    game_over: Tensor  # bool [T, B], the full game before ended, not only a life.
    last_action: (
        Tensor  # int64 [T, B], the action that led here; 0 for actions that are no integer.
    )


class AgentOutput(NamedTuple):
    """What the agent computed from a row. In a rollout: from the row before."""

    action: Tensor  # int64 [T, B, 1], sampled from the policy.
    policy_logits: Tensor  # float32 [T, B, A], of the behaviour policy.
    baseline: Tensor  # float32 [T, B, K], values in units of return.
    normalized_baseline: Tensor  # float32 [T, B, K], the same in PopArt's units.


class UsageError(Exception):
    """The user asked for something that cannot be; the text says what and what to do instead.

    Command lines print it as one line and exit with code 2.
    """


class RunError(Exception):
    """Something that a run needs failed; the text says what. One line and exit code 1."""
