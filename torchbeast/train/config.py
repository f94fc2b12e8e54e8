"""What a trainer's command line asks for, as typed values.

Fields have the names of their flags; ``cli/flags.py`` and ``cli/training_flags.py`` describe them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torchbeast.cli.config import build
from torchbeast.cli.flags import DEFAULT_ENV
from torchbeast.cli.training_flags import resolve_flags
from torchbeast.core.types import LossConfig, ObservationConfig, OptimizerConfig
from torchbeast.envs import parse_games


class OutputConfig(NamedTuple):
    """Where the files of a run are and which of them are written."""

    savedir: str
    xpid: str | None
    disable_checkpoint: bool
    checkpoint_interval_s: int
    save_model_every_nsteps: int
    track_gradients: bool
    write_profiler_trace: bool
    logger: str | None
    """``wandb``, if Weights & Biases gets what TensorBoard gets."""


class EvaluationSchedule(NamedTuple):
    """When the agent in training plays full games."""

    evaluate_every: int
    """Steps; 0: never."""
    evaluation_episodes: int
    """Full games per game and policy."""


class NetworkConfig(NamedTuple):
    """The agent's network and its initialisation."""

    agent_type: str
    use_lstm: bool
    lstm_reset: str
    use_popart: bool
    value_heads: str
    beta: float
    beta_per: str
    sigma_floor: float
    num_actions: int | None
    fixed_input_scale: bool
    init_from: str | None
    """The trained agent whose weights a new run starts from."""
    torch_initial_weights: bool
    unit_statistics: bool
    """Whether PopArt's statistics start at 0 and 1, not with those of random play."""

    @property
    def measures_returns(self) -> bool:
        """Whether the returns of random play are measured, for PopArt's statistics."""
        return self.use_popart and not self.unit_statistics


class LearningConfig(NamedTuple):
    """Batches and losses."""

    batch_size: int
    unroll_length: int
    loss: LossConfig


class MachineConfig(NamedTuple):
    """How the machine is used. None leaves the choice to the program."""

    num_actors: int
    num_learner_threads: int | None
    cores: int | None
    disable_cuda: bool
    precision: str
    num_buffers: int | None = None


class PoolConfig(NamedTuple):
    """How PolyBeast's actor pool feeds inference and the learner."""

    num_inference_threads: int | None = None
    max_learner_queue_size: int | None = None
    synchronous: bool = False


class ServersConfig(NamedTuple):
    """PolyBeast's environment servers."""

    start_servers: bool = True
    pipes_basename: str | None = None
    num_servers: int | None = None
    tls_dir: str | None = None
    ray_address: str | None = None


class TrainingConfig(NamedTuple):
    """A training run as its user asked for it. The same on every machine.

    PolyBeast and MonoBeast share it. A flag that only one of them has keeps its default in the
    other.
    """

    games: tuple[str, ...]
    """Ids of the games. A game's index is its task."""
    seed: int | None
    """None: the seed of the run's checkpoint, or a new one."""
    preset: str
    observation: ObservationConfig
    step_timeout_s: float
    """Seconds after which an environment counts as hung, also while games are measured."""
    network: NetworkConfig
    learning: LearningConfig
    optimizer: OptimizerConfig
    output: OutputConfig
    evaluation: EvaluationSchedule
    machine: MachineConfig
    pool: PoolConfig
    servers: ServersConfig
    args: Mapping[str, Any]
    """The values of all flags, for meta.json."""

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> TrainingConfig:
        """Builds the configuration from the values of a trainer's flags.

        Raises:
            UsageError: ``--env`` names no game.
        """
        games = parse_games(DEFAULT_ENV if flags["env"] is None else flags["env"])
        resolved = resolve_flags(flags, len(games))
        return build(cls, {**flags, **resolved, "games": games, "args": dict(flags)})

    @property
    def learner_queue_size(self) -> int:
        """Rollouts that wait for the learner at most. In MonoBeast so many count as full."""
        return self.pool.max_learner_queue_size or self.learning.batch_size
