"""What a run starts from: its last checkpoint, or a new agent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torchbeast.cli.config import describe_changes
from torchbeast.core.learner import Learner, StepStats
from torchbeast.core.precision import choose_dtype
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint
from torchbeast.training.beginning import begin
from torchbeast.training.config import TrainingConfig
from torchbeast.training.setup import Setup


class RunState(NamedTuple):
    """What a run starts from."""

    seed: int
    checkpoint: dict[str, Any] | None = None
    """Contents of the checkpoint that the run resumes; None for a new run."""
    changes: tuple[str, ...] = ()
    """The flags that differ from those of the run so far."""

    @property
    def steps(self) -> int | None:
        """Agent steps of the checkpoint; None for a new run."""
        return None if self.checkpoint is None else self.checkpoint["steps"]


def resume_or_start(setup: Setup) -> RunState:
    """Loads the run's checkpoint if there is one. Writes nothing.

    Raises:
        UsageError: the checkpoint cannot be read or is of another agent.
    """
    config = setup.config
    path = checkpoint.model_path(config.output.savedir, setup.xpid)
    if config.output.disable_checkpoint or not path.exists():
        return RunState(_choose_seed(config, None))
    contents = checkpoint.load(path)
    changed = _changed_fields(contents, setup.agent)
    if changed:
        raise UsageError(
            f"{path} is of another agent: {', '.join(changed)} changed; choose another --xpid"
        )
    # A flag that an earlier version of the program lacked counts as unchanged.
    earlier = {**config.args, **checkpoint.read_meta(path).get("args", {})}
    before = TrainingConfig.from_flags(earlier)
    saved_seed = contents.get("seed")
    seed = _choose_seed(config, saved_seed)
    changes = describe_changes(
        before._replace(seed=saved_seed),
        config._replace(seed=seed),
        ignored=("savedir", "xpid", "games", "args"),
    )
    return RunState(seed, contents, tuple(changes))


def make_learner(
    setup: Setup,
    state: RunState,
    on_step: Callable[[StepStats], None],
    on_gradients: Callable[[], None],
) -> Learner:
    """Makes the learner with its agent, and seeds PyTorch's random numbers.

    Args:
        setup: the run.
        state: what the run starts from. A new agent gets its initial weights; otherwise agent,
            optimizer, step counts and random numbers are those of the checkpoint.
        on_step: see :class:`Learner`.
        on_gradients: see :class:`Learner`.

    Returns:
        The learner. Its agent is on the learner's device.
    """
    config, device = setup.config, setup.devices.learner
    torch.manual_seed(state.seed)
    agent = make_agent(setup.agent)
    if state.checkpoint is None:
        begin(agent, setup, state.seed)
    agent.compute_dtype = choose_dtype(config.machine.precision, device)
    learner = Learner(
        agent.to(device),
        config.learning.loss,
        config.optimizer,
        config.learning.batch_size,
        on_step,
        on_gradients,
    )
    if state.checkpoint is not None:
        learner.load_state_dict(state.checkpoint)
        if "random_state" in state.checkpoint:
            torch.set_rng_state(state.checkpoint["random_state"])
    return learner


def _choose_seed(config: TrainingConfig, saved: int | None) -> int:
    """The seed that the user named, else the run's own, else a new one."""
    if config.seed is not None:
        return config.seed
    return int.from_bytes(os.urandom(4), "little") if saved is None else saved


def _changed_fields(contents: dict[str, Any], agent: AgentConfig) -> list[str]:
    """Names of the fields in which a checkpoint's agent differs; PopArt's step size may change."""
    # A field that an earlier version did not save has its default.
    saved = {**AgentConfig()._asdict(), **contents.get("agent", {})}
    return [
        name
        for name, value in agent._asdict().items()
        if name not in ("beta", "beta_per") and saved[name] != value
    ]
