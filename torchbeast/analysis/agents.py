"""Trained ResNet agents in a directory, and their checkpoints over training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchbeast.analysis.filters import Weights, read_weights
from torchbeast.core.types import UsageError
from torchbeast.envs import parse_games
from torchbeast.envs.games import GROUPS, short_name
from torchbeast.evaluate.trained import Trained, allow
from torchbeast.records import checkpoint, run_files
from torchbeast.runtime.text import first_line

log = logging.getLogger("torchbeast")

# What an agent is: trained on one game, on several, on several with PopArt; not trained.
SINGLE, MULTI, MULTIPOP, UNTRAINED = "single", "multi", "multipop", "untrained"
# Directories of 2019, in both of its spellings.
OLD_NAMES = {"MultiTask": MULTI, "MultiTaskPopArt": MULTIPOP, "MultiTaskPopart": MULTIPOP}


class Snapshot(NamedTuple):
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
    """Of its run; None if that is unknown."""


def find_agents(directory: Path, models: str | None = None) -> list[RunAgent]:
    """Finds the ResNet agents in ``directory``, or those that ``models`` names as ``name=dir,...``.

    What cannot be used is named in a warning and left out. Raises UsageError if nothing is left.
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
            raise UsageError(f"{directory} is no directory")
        places = [
            (p.name, p) for p in sorted(directory.iterdir()) if p.is_dir() and not p.is_symlink()
        ]
    agents = []
    for name, path in places:
        try:
            agents.append(_read_agent(name, path))
        except UsageError as error:
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
    if "feat_convs.0.0.weight" not in contents["model_state_dict"]:
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
        args = meta.get("args", {})
        if "env" not in args:
            return OLD_NAMES.get(name, SINGLE), ()
        env = str(args["env"])
        tasks = GROUPS.get(env, tuple(env.split(",")))
        popart = "baseline.mu" in contents["model_state_dict"]
    if len(tasks) < 2 and tasks != ("all",):
        return SINGLE, tasks
    return MULTIPOP if popart else MULTI, tasks


def spread(steps: list[int], count: int) -> list[int]:
    """Chooses ``count`` of ``steps``, evenly spread, the last one always among them.

    >>> spread([10, 20, 30, 40, 50], 3), spread([10, 20], 3), spread([10, 20], 1)
    ([10, 30, 50], [10, 20], [20])
    """
    count = min(count, len(steps))
    if count == 1:
        return steps[-1:]
    return [steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count)]


def check_alike(players: Sequence[Trained], purpose: str) -> None:
    """Checks that agents have one network and see their games alike.

    Args:
        players: the agents.
        purpose: what is done with them, such as ``compared``.

    Raises:
        UsageError: they have not, or do not.
    """
    kinds = {(type(p.agent), p.agent.config.observation_shape) for p in players}
    if len(kinds) > 1:
        raise UsageError(f"Agents of one network and one frame format can be {purpose}")
    if len({player.observation for player in players}) > 1:
        raise UsageError(
            f"Agents can be {purpose} that see their games with the same preprocessing"
        )


def choose_known_games(
    players: Sequence[Trained], names: str | None, flag: str = "--games"
) -> list[str]:
    """Returns the games that ``names``, the value of ``flag``, lists; else those that all players
    know.

    Raises:
        UsageError: a player does not know one of them, they have no game in common, or its custom
            environment is not named.
    """
    if names is None:
        first = players[0].agent.config.tasks
        games = [game for game in first if all(short_name(game) in p.games for p in players)]
        allow(tuple(games), flag)
        if not games:
            raise UsageError(f"{' and '.join(p.xpid for p in players)} have no game in common")
        return games
    chosen = list(parse_games(names))
    for player in players:
        for name in map(short_name, chosen):
            if name not in player.games:
                raise UsageError(
                    f"{player.xpid} does not know {name}: it knows {', '.join(player.games)}"
                )
    return chosen


class SnapshotReader:
    """Reads every checkpoint once. What cannot be read is named and None."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[str, int], Snapshot | None] = {}

    def read(self, agent: RunAgent, step: int) -> Snapshot | None:
        """Reads a checkpoint, or returns what was read before; None if it cannot be read."""
        key = (agent.name, step)
        if key not in self._snapshots:
            self._snapshots[key] = self._read(agent, step)
        return self._snapshots[key]

    def _read(self, agent: RunAgent, step: int) -> Snapshot | None:
        path = agent.checkpoints[step]
        try:
            state = checkpoint.load(path)["model_state_dict"]
            return Snapshot(agent.name, step, path, read_weights(state))
        except UsageError as error:
            log.warning("Left out: %s", first_line(error))  # Names the file.
        except (KeyError, ValueError) as error:
            log.warning("%s is left out: %s", path, first_line(error))
        return None
