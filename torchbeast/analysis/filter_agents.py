"""The agents whose filters are compared: found in a directory, and untrained ones beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchbeast.analysis.filters import Weights, read_weights
from torchbeast.core.types import UsageError
from torchbeast.envs.games import short_name
from torchbeast.models import Agent, config_from_state, make_agent
from torchbeast.models.loading import from_contents
from torchbeast.records import checkpoint, run_files
from torchbeast.runtime.text import first_line

log = logging.getLogger("torchbeast")

# What an agent is: trained on one game, on several, on several with PopArt; not trained.
SINGLE, MULTI, MULTIPOP, UNTRAINED = "single", "multi", "multipop", "untrained"
# Directories of 2019, in both of its spellings.
OLD_NAMES = {"MultiTask": MULTI, "MultiTaskPopArt": MULTIPOP, "MultiTaskPopart": MULTIPOP}


class AgentCheckpoint(NamedTuple):
    """One checkpoint of an agent."""

    agent: str
    step: int
    path: Path
    weights: Weights


class RunAgent(NamedTuple):
    """An agent and the steps of its checkpoints, ascending."""

    name: str
    kind: str
    checkpoints: dict[int, Path]
    games: frozenset[str] = frozenset()
    """Short names of what it learned; empty if that is unknown."""
    seed: int | None = None
    """The seed of its run; None if that is unknown."""

    @property
    def newest(self) -> Path:
        """The checkpoint of the most steps."""
        return self.checkpoints[max(self.checkpoints)]


def find_agents(directory: Path, models: str | None = None) -> list[RunAgent]:
    """Finds the ResNet agents in ``directory``, or those that ``models`` names as ``name=dir,...``.

    What cannot be used of a directory is named in a warning and left out.

    Raises:
        UsageError: an agent that ``models`` names cannot be used, or ``directory`` has none.
    """
    if models:
        named = [part.partition("=") for part in models.split(",")]
        if any(not name or not path for name, _, path in named):
            raise UsageError(f"--models wants name=directory,..., not {models}")
        names = [name for name, _, _ in named]
        if len(set(names)) < len(names):
            raise UsageError(f"--models {models}: give every agent a name of its own")
        places = [(name, directory / Path(path).expanduser()) for name, _, path in named]
    else:
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a directory")
        places = [
            (p.name, p)
            for p in sorted(directory.iterdir())
            if p.is_dir() and p.name != run_files.LATEST and not (p / "filter_comp.csv").exists()
        ]
    agents = []
    for name, path in places:
        try:
            agents.append(_read_agent(name, path))
        except UsageError as error:
            if models:
                raise UsageError(f"--models: {name}: {error}") from error
            log.warning("%s is left out: %s", name, error)
    if not agents:
        raise UsageError(
            f"There is no ResNet agent in {directory}: it should hold a directory per agent"
        )
    return agents


def _read_agent(name: str, path: Path) -> RunAgent:
    checkpoints = run_files.intermediate_paths(path)
    newest = path / "model.tar"
    if not checkpoints and not newest.exists():
        raise UsageError(f"there is no checkpoint in {path}")
    contents = checkpoint.load(newest if newest.exists() else next(iter(checkpoints.values())))
    needed = {"feat_convs.0.0.weight", "policy.bias", "baseline.bias"}
    if not needed <= contents["model_state_dict"].keys():
        raise UsageError("it is no ResNet")
    if newest.exists():  # A run that was stopped has it after its last copy.
        steps = checkpoint.steps_of(contents) or 0
        if not checkpoints or steps > max(checkpoints):
            checkpoints[steps] = newest
    meta = checkpoint.read_meta(newest)
    kind, tasks = _describe(name, contents, meta)
    return RunAgent(name, kind, checkpoints, frozenset(map(short_name, tasks)), meta.get("seed"))


def _describe(
    name: str, contents: dict[str, Any], meta: dict[str, Any]
) -> tuple[str, tuple[str, ...]]:
    """What kind of agent it is, and its games."""
    agent = contents.get("agent")
    if agent is not None:
        tasks, popart = tuple(agent["tasks"]), agent["use_popart"]
    else:
        if "env" not in meta.get("args", {}):
            return OLD_NAMES.get(name, SINGLE), ()
        config = config_from_state(contents["model_state_dict"], meta)
        tasks, popart = config.tasks, config.use_popart
    if len(tasks) < 2 and tasks != ("all",):
        return SINGLE, tasks
    return MULTIPOP if popart else MULTI, tasks


def read_checkpoint(agent: str, step: int, path: Path) -> AgentCheckpoint | None:
    """Reads the filters of a checkpoint. One that cannot be read is named in a warning and None."""
    try:
        state = checkpoint.load(path)["model_state_dict"]
        return AgentCheckpoint(agent, step, path, read_weights(state))
    except UsageError as error:
        log.warning("Left out: %s", first_line(error))  # Names the file.
    except (KeyError, ValueError) as error:
        log.warning("%s is left out: %s", path, first_line(error))
    return None


def make_untrained(like: Agent, seed: int) -> Agent:
    """Makes a new network with an agent's configuration and mean pictures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        agent = make_agent(like.config).eval()
        agent.scale_initial_weights()
    agent.frame_mean.copy_(like.frame_mean)
    agent.frame_scale.copy_(like.frame_scale)
    return agent


def save_untrained(like: RunAgent, directory: Path) -> list[RunAgent]:
    """Saves three untrained networks, to be compared like trained agents.

    Args:
        like: an agent whose configuration and mean pictures they have.

    Raises:
        UsageError: the agent cannot be read.
    """
    contents = checkpoint.load(like.newest)
    contents.pop("optimizer_state_dict", None)
    trained = from_contents(contents, like.newest)
    contents |= {"agent": trained.config._asdict(), "steps": 0}
    agents = []
    for seed in range(3):
        name = f"untrained{seed}"
        path = run_files.model_path(directory / name)
        state = make_untrained(trained, seed).state_dict()
        checkpoint.save(path, {**contents, "model_state_dict": state})
        agents.append(RunAgent(name, UNTRAINED, {0: path}, like.games))
    return agents
