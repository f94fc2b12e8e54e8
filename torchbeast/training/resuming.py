"""Whether a run can be resumed from its checkpoint: checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from torchbeast.cli.config import describe_changes
from torchbeast.core.checks import find_not_finite
from torchbeast.core.optimizer import check_optimizer_state
from torchbeast.core.types import UsageError
from torchbeast.models import Agent, AgentConfig, make_agent
from torchbeast.records.checkpoint import damaged

# The first three may change while a run is stopped; the last is taken from the checkpoint.
FREE_FIELDS = ("beta", "beta_per", "sigma_floor", "clip_reward_input")


def check_resumable(contents: dict[str, Any], path: Path, config: AgentConfig) -> None:
    """Checks that a checkpoint holds a whole run of an agent.

    Args:
        contents: the checkpoint.
        path: its file, for messages.
        config: the agent that the flags describe.

    Raises:
        UsageError: the run cannot be resumed.
    """
    other_run = f"to start from its weights, choose another --xpid and --init_from {path}"
    if "agent" not in contents:
        raise UsageError(
            f"{path} is of the program of 2019; its optimizer state has another format: {other_run}"
        )
    try:
        agent = make_agent(config)
        changed = changed_fields(contents["agent"], config)
        if changed:
            raise UsageError(
                f"{path} is of another agent: {'; '.join(changed)}; choose another --xpid"
            )
        if "optimizer_state_dict" not in contents:
            raise UsageError(
                f"{path} has no optimizer state, because it is a copy from intermediate/: "
                f"{other_run}"
            )
        missing = {"steps", "learner_steps", "task_steps"} - contents.keys()
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        _check_weights(contents["model_state_dict"], agent)
        parameters = [p for p in agent.parameters() if p.requires_grad]
        check_optimizer_state(contents["optimizer_state_dict"], parameters)
        if "random_state" in contents:
            torch.Generator().set_state(contents["random_state"])
    except (ValueError, TypeError, RuntimeError) as error:
        raise damaged(path, error) from error


def changed_fields(saved: dict[str, Any], config: AgentConfig) -> list[str]:
    """Describes the fields in which a saved agent differs from ``config``: ``use_lstm True ->
    False``.

    Fields that may change are left out.
    """
    before = AgentConfig(**saved)._replace(**{name: getattr(config, name) for name in FREE_FIELDS})
    return [change.removeprefix("--") for change in describe_changes(before, config)]


def _check_weights(state: dict[str, Any], agent: Agent) -> None:
    """Raises an error if ``state`` does not fit ``agent``, or a weight is not finite."""
    agent.load_state_dict(state)
    faulty = find_not_finite(agent.state_dict())
    if faulty:
        raise ValueError(f"{faulty[0]} is not finite")
