"""The records that travel between actors, inference and the learner, what describes an agent and
how it learns, and the errors users see.

Everything is time-major. ``T`` is time, ``B`` the batch, ``A`` the number of actions, ``K`` the
number of value heads. A rollout has ``unroll_length + 1`` rows; its last row is the first of the
next. Row ``t`` pairs what the environment returned at ``t`` with the agent's output that led to
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    """int64 ``[T, B]``: the action that led to this row; 0 before the first."""


# The names of torch's types of the fields that have one number per row.
ENV_OUTPUT_TYPES = {
    "reward": "float32",
    "done": "bool",
    "task": "int32",
    "episode_step": "int32",
    "episode_return": "float32",
    "truncated": "bool",
    "game_over": "bool",
    "last_action": "int64",
}


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
    """int64 ``[T, B, 1]``: sampled from the policy, or the most probable one in ``eval`` mode."""

    policy_logits: Tensor
    """float32 ``[T, B, A]``, of the policy that acted."""

    baseline: Tensor
    """float32 ``[T, B, K]``: values in units of return."""

    normalized_baseline: Tensor
    """float32 ``[T, B, K]``: the same values in PopArt's units."""


@dataclass(frozen=True)
class Between:
    """The numbers from ``low`` to ``high``."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


# The second argument says what a checkpoint may contain (checked in records/validation.py): for
# numbers a range or Between of the values; for texts and tuples the values, or a range of lengths.
Count = Annotated[int, range(2**63)]
Name = Annotated[str, range(1, 201)]
Fraction = Annotated[float, Between(0.0, 1.0)]
# Pixels of a picture, or its channels. An emulator draws 210 x 160.
Size = Annotated[int, range(1, 1025)]


class ObservationConfig(NamedTuple):
    """The preprocessing of an agent's observations; plain values, saved with every checkpoint."""

    preprocessing: Annotated[str, ("deepmind", "machado")] = "deepmind"
    frame_format: Annotated[str, ("gray_stack", "rgb_last", "rgb_stack")] = "gray_stack"
    frame_height: Size = 84
    frame_width: Size = 84


class AgentConfig(NamedTuple):
    """What makes an agent what it is; plain values, saved with every checkpoint."""

    agent_type: Name = "resnet"
    observation_shape: Annotated[tuple[Size, ...], range(3, 4)] = (4, 84, 84)
    num_actions: Annotated[int, range(1, 2**20)] = 6
    # Names of the games. With PopArt each has a value head, in this order.
    tasks: Annotated[tuple[Name, ...], range(1, 1001)] = ("PongNoFrameskip-v4",)
    use_lstm: bool = False
    use_popart: bool = False
    # Without PopArt: "one" value head for all games, or one of each "game".
    value_heads: Annotated[str, ("one", "game")] = "one"
    # PopArt's rules, which its layer needs: they may change when a run is resumed.
    beta: Fraction = 0.00001
    # "target": each value target moves the statistics by beta, and the loss is normalised by the
    # moved ones. "batch": all targets of a batch together, after the optimizer, as in 2019.
    beta_per: Annotated[str, ("target", "batch")] = "target"
    # Lowest sigma of a game, as a share of the mean magnitude of its rewards.
    sigma_floor: Fraction = 0.1
    # Whether the reward is clipped to [-1, 1] where it is an input of the network.
    clip_reward_input: bool = True
    # Where the memory is reset, in training as in evaluation: where a "life" or a "game" begins.
    lstm_reset: Annotated[str, ("life", "game")] = "life"

    @property
    def num_heads(self) -> int:
        """Value heads; with more than one each game has the head of its index."""
        return len(self.tasks) if self.use_popart or self.value_heads == "game" else 1


class LossConfig(NamedTuple):
    """Weights of the losses, discount, and how rewards are clipped."""

    discounting: float = 0.99
    baseline_cost: float = 0.5
    entropy_cost: float = 0.0006
    reward_clipping: Annotated[str, ("abs_one", "none")] = "abs_one"

    @property
    def clip_rewards(self) -> bool:
        """Whether the learner clips rewards to [-1, 1]."""
        return self.reward_clipping == "abs_one"


class OptimizerConfig(NamedTuple):
    """RMSProp with TorchBeast's constants.

    The learning rate falls linearly to 0 over ``total_steps``. RMSProp is torch's: ``epsilon`` is
    added to the root of the mean square, which starts at 0. IMPALA used TensorFlow's, with
    ``epsilon`` under the root and a start at 1.
    """

    learning_rate: float = 0.00048
    alpha: float = 0.99
    momentum: float = 0.0
    epsilon: float = 0.01
    grad_norm_clipping: float = 40.0
    total_steps: int = 3_000_000


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
