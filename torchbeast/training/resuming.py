"""Whether a run can be resumed from its checkpoint: checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from torchbeast.core.checks import find_not_finite
from torchbeast.core.optimizer import check_optimizer_state
from torchbeast.core.types import UsageError
from torchbeast.models import Agent, AgentConfig, make_agent
from torchbeast.runtime.text import first_line

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
                f"{path} is of another agent: {', '.join(changed)} changed; choose another --xpid"
            )
        if "optimizer_state_dict" not in contents:
            raise UsageError(
                f"{path} has no optimizer state, because it is a copy from intermediate/: "
                f"{other_run}"
            )
        _check_weights(contents["model_state_dict"], agent)
        _check_counts(contents, len(config.tasks))
        parameters = [p for p in agent.parameters() if p.requires_grad]
        check_optimizer_state(contents["optimizer_state_dict"], parameters)
        _check_progress(contents.get("progress", {}), len(config.tasks))
        if "random_state" in contents:
            torch.Generator().set_state(contents["random_state"])
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError) as error:
        raise UsageError(
            f"{path} is damaged ({first_line(error)}): move it away to start anew, or choose "
            "another --xpid"
        ) from error


def changed_fields(saved: dict[str, Any], config: AgentConfig) -> list[str]:
    """Returns the names of the fields in which a saved agent differs from ``config``.

    Fields that may change are left out. A field that an earlier version did not save has its
    default.
    """
    if not isinstance(saved, dict):
        raise ValueError("agent is not a dictionary")
    before = {**AgentConfig()._asdict(), **saved}
    for name in ("observation_shape", "tasks"):
        before[name] = tuple(before[name])
    return [
        name
        for name, value in config._asdict().items()
        if name not in FREE_FIELDS and before[name] != value
    ]


def _check_weights(state: dict[str, Any], agent: Agent) -> None:
    """Raises an error if ``state`` does not fit ``agent``, or a weight is not finite."""
    agent.load_state_dict(state)
    faulty = find_not_finite(agent.state_dict())
    if faulty:
        raise ValueError(f"{faulty[0]} is not finite")


def _check_counts(contents: dict[str, Any], num_tasks: int) -> None:
    for name in ("steps", "learner_steps"):
        _check_naturals(name, [contents[name]])
    _check_naturals("task_steps", contents["task_steps"], num_tasks)
    if contents.get("seed") is not None:
        _check_naturals("seed", [contents["seed"]])


def _check_progress(progress: dict[str, Any], num_tasks: int) -> None:
    """Checks those fields of the progress that are used here. Each of them may be missing."""
    if not isinstance(progress, dict):
        raise ValueError("progress is not a dictionary")
    if "games" in progress:
        _check_naturals("progress: games", progress["games"], num_tasks)
    if not isinstance(progress.get("seconds", 0.0), int | float):
        raise ValueError("progress: seconds is not a number")
    if "returns" in progress:
        returns = progress["returns"]
        _check_length("progress: returns", returns, num_tasks)
        if not all(isinstance(x, int | float) for values in returns for x in values):
            raise ValueError("progress: returns are not numbers")


def _check_naturals(name: str, values: Any, count: int = 1) -> None:
    _check_length(name, values, count)
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{name} is no count")


def _check_length(name: str, values: Any, count: int) -> None:
    if not isinstance(values, list | tuple) or len(values) != count:
        raise ValueError(f"{name} is not a list of {count}")
