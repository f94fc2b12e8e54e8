"""What a run starts from: its last checkpoint, or a new agent."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchbeast.cli.config import describe_changes
from torchbeast.core.learner import Learner, StepStats
from torchbeast.core.optimizer import optimizer_kind
from torchbeast.core.precision import choose_dtype
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files
from torchbeast.runtime.text import first_line
from torchbeast.training.config import TrainingConfig
from torchbeast.training.initialisation import Initialisation, initialise, plan_initialisation
from torchbeast.training.resuming import check_resumable
from torchbeast.training.setup import Setup

log = logging.getLogger("torchbeast")


class RunState(NamedTuple):
    """What a run starts from."""

    seed: int
    checkpoint: dict[str, Any] | None = None
    """Contents of the checkpoint that the run resumes; None for a new run."""
    changes: tuple[str, ...] = ()
    """The flags that differ from those of the run so far."""
    initialisation: Initialisation | None = None
    """What initialises the agent of a new run; None for a resumed one."""

    @property
    def steps(self) -> int | None:
        """Agent steps of the checkpoint; None for a new run."""
        return None if self.checkpoint is None else self.checkpoint["steps"]

    def agent_config(self, setup: Setup) -> AgentConfig:
        """Returns the agent of the run. Its weights decide whether it sees clipped rewards."""
        if self.checkpoint is not None:
            clips = self.checkpoint["agent"]["clip_reward_input"]
        elif self.initialisation is not None and self.initialisation.source is not None:
            clips = self.initialisation.source.agent.config.clip_reward_input
        else:
            clips = True
        return setup.agent._replace(clip_reward_input=clips)


def resume_or_start(setup: Setup) -> RunState:
    """Loads the run's checkpoint, or what initialises a new agent. Writes nothing.

    Raises:
        UsageError: the checkpoint cannot be read, is damaged or of another agent, a run without
            checkpoints would overwrite it, or ``--init_from`` cannot be used.
        RunError: an environment failed while a new run's games were measured.
    """
    config = setup.config
    path = run_files.model_path(config.output.savedir, setup.xpid)
    if not path.exists():
        seed = _choose_seed(config, None)
        return RunState(seed, initialisation=plan_initialisation(setup, seed))
    if config.output.disable_checkpoint:
        raise UsageError(
            f"{path} is the checkpoint of an earlier run: choose another --xpid, or leave out "
            "--disable_checkpoint to resume that run"
        )
    contents = _load_run(path, setup.agent)
    if config.network.init_from is not None:
        log.info("--init_from is ignored: the run resumes from its own checkpoint")
    saved_seed = contents.get("seed")
    seed = _choose_seed(config, saved_seed)
    changes = _list_changes(config._replace(seed=seed), saved_seed, path)
    if optimizer_kind(contents["optimizer_state_dict"]) != config.optimizer.optimizer:
        changes.append("the optimizer, whose running averages start anew")
    if contents.get("emulator_gray", True) and "AirRaid" in map(short_name, config.games):
        changes.append("AirRaid's pictures, whose gray was wrong before")
    return RunState(seed, contents, tuple(changes))


def _load_run(path: Path, agent: AgentConfig) -> dict[str, Any]:
    """The contents of a run's checkpoint. Raises UsageError if it cannot be resumed."""
    try:
        contents = checkpoint.load(path)
        check_resumable(contents, path, agent)
    except UsageError as error:
        previous = run_files.previous_path(path)
        hint = f" ({previous.name} beside it is the checkpoint before)" if previous.exists() else ""
        raise UsageError(f"{error}{hint}") from error
    return contents


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
    agent = make_agent(state.agent_config(setup))
    if state.initialisation is not None:
        # Anew: the heads of many games took more random numbers than those of one. So encoders of
        # the same seed have the same initial weights, whatever the games.
        torch.manual_seed(state.seed)
        initialise(agent, setup, state.initialisation)
    agent.compute_dtype = choose_dtype(config.machine.precision, device)
    learner = Learner(
        agent.to(device),
        config.learning.loss,
        config.optimizer,
        config.learning.batch_size,
        on_step,
        on_gradients,
        setup.ranks,
    )
    if state.checkpoint is not None:
        learner.load_state_dict(state.checkpoint)
        if "random_state" in state.checkpoint:
            torch.set_rng_state(state.checkpoint["random_state"])
    return learner


def _list_changes(config: TrainingConfig, saved_seed: int | None, path: Path) -> list[str]:
    """The flags that differ from those in meta.json; none if that cannot be used."""
    try:
        saved = checkpoint.read_meta(path).get("args", {})
        # A flag that an earlier version of the program lacked counts as unchanged.
        before = TrainingConfig.from_flags({**config.args, **saved})
        return describe_changes(
            before._replace(seed=saved_seed),
            config,
            ignored=("savedir", "xpid", "games", "args", "init_from"),
        )
    except (UsageError, TypeError, ValueError, KeyError, AttributeError) as error:
        log.warning(
            "%s cannot be used (%s): flags that changed since then are not listed",
            path.parent / "meta.json",
            first_line(error),
        )
        return []


def _choose_seed(config: TrainingConfig, saved: int | None) -> int:
    """The seed that the user named, else the run's own, else a new one."""
    if config.seed is not None:
        return config.seed
    return int.from_bytes(os.urandom(4), "little") if saved is None else saved
