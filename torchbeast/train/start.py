"""What a run starts from: its last checkpoint, which is checked whole before anything is written,
or a new agent.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchbeast import __version__
from torchbeast.cli.config import build, describe_changes, flatten
from torchbeast.core.learner import Learner
from torchbeast.core.optimizer import check_optimizer_state
from torchbeast.core.stats import StepStats
from torchbeast.core.types import ObservationConfig, UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.models.loading import load_weights, try_agent
from torchbeast.records import checkpoint, run_files
from torchbeast.records.checkpoint import damaged
from torchbeast.runtime.precision import choose_dtype
from torchbeast.runtime.text import first_line
from torchbeast.train.config import TrainingConfig
from torchbeast.train.initialisation import Initialisation, initialise, plan_initialisation
from torchbeast.train.plan import RunPlan

log = logging.getLogger("torchbeast")

# Fields of an agent that may change while a run is stopped: PopArt's rules. The last one is always
# the checkpoint's.
MAY_CHANGE = ("beta", "beta_per", "sigma_floor", "clip_reward_input")
# What initialises a new agent.
INITIAL = ("init_from", "fixed_input_scale", "torch_initial_weights", "unit_statistics")


def recipe(config: TrainingConfig) -> dict[str, Any]:
    """Returns what all ranks of a run must have in common, by the name of the flag: plain values.

    Ranks add up their gradients. Each then changes its own copy of the agent, and these stay equal
    only if all learn the same games by the same rules.
    """
    parts = (config.observation, config.network, config.learning, config.optimizer)
    values = {name: value for part in parts for name, value in flatten(part).items()}
    return {"env": ",".join(config.games), **values, "version": __version__}


def check_recipe(first: dict[str, Any], own: dict[str, Any]) -> None:
    """Raises UsageError if a rank's :func:`recipe` differs from that of the first rank."""
    differences = [
        f"{name} {own.get(name)} instead of {first.get(name)}"
        for name in sorted({*first, *own})
        if own.get(name) != first.get(name)
    ]
    if differences:
        raise UsageError(
            f"this rank differs from the first one: {', '.join(differences)}; start all ranks of a "
            "run with the same flags and the same version"
        )


def check_resumable(
    contents: dict[str, Any], path: Path, config: AgentConfig, observation: ObservationConfig
) -> None:
    """Checks that a checkpoint holds a whole run of an agent.

    Args:
        config: the agent that the flags describe.
        observation: what it sees, by the flags.

    Raises:
        UsageError: the run cannot be resumed.
    """
    other_run = f"to start from its weights, choose another --xpid and --init_from {path}"
    if "agent" not in contents:
        raise UsageError(
            f"{path} is of the program of 2019; its optimizer state has another format: {other_run}"
        )
    agent = make_agent(config)
    try:
        seen = build(ObservationConfig, contents)
        # --value_heads has no effect beside PopArt, which always has a head for each game.
        ignored = (*MAY_CHANGE, "value_heads") if config.use_popart else MAY_CHANGE
        changes = [
            *describe_changes(AgentConfig(**contents["agent"]), config, ignored),
            *describe_changes(seen, observation, ()),
        ]
        changed = [change.removeprefix("--") for change in changes]
        if changed:
            raise UsageError(
                f"{path} is of another agent: {'; '.join(changed)}; repeat the flags that the run "
                f"began with ({run_files.run_of(path) / 'meta.json'} has them), or choose another "
                "--xpid"
            )
        if "optimizer_state_dict" not in contents:
            raise UsageError(
                f"{path} has no optimizer state, as shipped agents and checkpoints in "
                f"intermediate/: {other_run}"
            )
        missing = {"steps", "learner_steps", "task_steps"} - contents.keys()
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        load_weights(agent, contents["model_state_dict"], path)
        parameters = [p for p in agent.parameters() if p.requires_grad]
        check_optimizer_state(contents["optimizer_state_dict"], parameters)
    except (ValueError, TypeError, RuntimeError) as error:
        raise damaged(path, error) from error


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

    def agent_config(self, plan: RunPlan) -> AgentConfig:
        """Returns the agent of the run. Its weights decide whether it sees clipped rewards."""
        if self.checkpoint is not None:
            clips = self.checkpoint["agent"]["clip_reward_input"]
        elif self.initialisation is not None and self.initialisation.source is not None:
            clips = self.initialisation.source.agent.config.clip_reward_input
        else:
            clips = True
        return plan.agent._replace(clip_reward_input=clips)


def resume_or_start(plan: RunPlan) -> RunState:
    """Loads the run's checkpoint, or what initialises a new agent. Writes nothing.

    Raises:
        UsageError: the checkpoint cannot be read, is damaged or of another agent, a run without
            checkpoints would overwrite it, or ``--init_from`` cannot be used.
        RunError: an environment failed while a new run's games were measured.
    """
    config = plan.config
    path = run_files.model_path(plan.directory)
    if not path.exists():
        # If a custom agent does not work, there is no run.
        try_agent(plan.agent, choose_dtype(config.machine.precision, plan.devices.learner))
        seed = _choose_seed(config, None)
        return RunState(seed, initialisation=plan_initialisation(plan, seed))
    if config.output.disable_checkpoint:
        raise UsageError(
            f"{path} is the checkpoint of an earlier run: choose another --xpid, or leave out "
            "--disable_checkpoint to resume that run"
        )
    contents = checkpoint.load(path)
    check_resumable(contents, path, plan.agent, config.observation)
    if config.network.init_from is not None:
        log.info("--init_from is ignored: the run resumes from its own checkpoint")
    saved_seed = contents.get("seed")
    seed = _choose_seed(config, saved_seed)
    changes = _list_changes(config._replace(seed=seed), saved_seed, path)
    return RunState(seed, contents, tuple(changes))


def make_learner(
    plan: RunPlan,
    state: RunState,
    on_step: Callable[[StepStats], None],
    on_gradients: Callable[[], None],
) -> Learner:
    """Makes the learner with its agent, and seeds PyTorch's random numbers.

    Args:
        state: what the run starts from. A new agent gets its initial weights; otherwise agent,
            optimizer and step counts are those of the checkpoint.

    Returns:
        The learner. Its agent is on the learner's device.
    """
    config, device = plan.config, plan.devices.learner
    # A resumed run goes on with other numbers than those before.
    torch.manual_seed(state.seed + (state.steps or 0))
    agent = make_agent(state.agent_config(plan))
    if state.initialisation is not None:
        # Anew: the heads of many games took more random numbers than those of one. So encoders of
        # the same seed have the same initial weights, whatever the games.
        torch.manual_seed(state.seed)
        initialise(agent, plan, state.initialisation)
    agent.compute_dtype = choose_dtype(config.machine.precision, device)
    learner = Learner(
        agent.to(device),
        config.learning.loss,
        config.optimizer,
        config.learning.batch_size,
        on_step,
        on_gradients,
        plan.ranks,
    )
    if state.checkpoint is not None:
        learner.load_state_dict(state.checkpoint)
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
            ignored=("savedir", "xpid", "games", "args", *INITIAL),
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
    return secrets.randbits(32) if saved is None else saved
