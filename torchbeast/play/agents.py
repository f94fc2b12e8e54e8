"""Trained agents: reading them, and what is known about them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torchbeast.cli.config import build
from torchbeast.core.types import ObservationConfig, UsageError
from torchbeast.envs import DEFAULT_OBSERVATION, parse_games
from torchbeast.envs.games import find_game, is_custom, short_name
from torchbeast.models import Agent
from torchbeast.models.loading import from_contents
from torchbeast.play.config import TrainedAgentConfig
from torchbeast.records import checkpoint, run_files

log = logging.getLogger("torchbeast")


class Trained(NamedTuple):
    """A trained agent and what is known about it."""

    agent: Agent
    xpid: str
    model_id: str
    """The agent steps that it was trained for, where the checkpoint says so."""
    observation: ObservationConfig = DEFAULT_OBSERVATION
    directory: Path = Path()
    """Where its films and maps go by default: the run's directory."""
    intermediate_id: int | None = None
    """The step number of an intermediate checkpoint; None for any other one."""

    @property
    def games(self) -> tuple[str, ...]:
        """The short names of the games that the agent knows, in the order of its tasks."""
        return tuple(map(short_name, self.agent.config.tasks))

    def task_or_first(self, env_id: str) -> int:
        """Returns the game's index among the agent's, whatever the spelling of its id; for any
        other game that of the first one, 0.
        """
        games, name = self.games, short_name(env_id)
        return games.index(name) if name in games else 0

    def head(self, env_id: str) -> int:
        """Returns the index of the value head for a game."""
        return self.task_or_first(env_id) if self.agent.config.num_heads > 1 else 0


def load_trained(config: TrainedAgentConfig) -> Trained:
    """Loads the agent that ``--savedir``, ``--xpid`` and ``--intermediate_model_id`` name.

    A shipped agent is found by its name alone, any checkpoint by its path. Raises UsageError.
    """
    xpid = run_files.LATEST if config.xpid is None else config.xpid
    path = run_files.find_checkpoint(config.savedir, xpid, config.intermediate_model_id)
    directory = run_files.run_of(path)
    if config.xpid is None and directory.is_symlink() and not path.exists():
        name = directory.resolve().name
        raise UsageError(f"The newest run, {name}, has no {path.name}: name another with --xpid")
    shipped = run_files.SHIPPED / xpid / "model.tar"
    if (
        path.name == "model.tar"
        and path.exists()
        and shipped.exists()
        and not path.samefile(shipped)
    ):
        log.info("%s is your run in %s; the shipped agent is --xpid %s", xpid, directory, shipped)
    if xpid == run_files.LATEST or "/" in xpid or xpid.endswith(".tar"):
        if directory.is_symlink():
            directory = directory.resolve()
        xpid = directory.resolve().name
    if directory.resolve().is_relative_to(run_files.SHIPPED):
        # Its films are not written among the files of the project.
        directory = run_files.run_path(config.savedir, xpid)
    trained = read_agent(path, xpid, config.agent_type)._replace(directory=directory)
    says = {**trained.agent.config._asdict(), **trained.observation._asdict()}
    for name, value in config.expected.items():
        if value != says[name]:
            raise UsageError(
                f"--{name} {value} contradicts the checkpoint of {xpid}, which says "
                f"{says[name]}: leave it out"
            )
    if config.lstm_reset is not None:
        trained.agent.config = trained.agent.config._replace(lstm_reset=config.lstm_reset)
    return trained


def read_agent(path: str | Path, name: str | None = None, agent_type: str | None = None) -> Trained:
    """Reads the agent in a checkpoint or in a directory with a ``model.tar``.

    Args:
        name: what to call it; None: as its run.
        agent_type: the only custom class that may be imported.

    Raises:
        UsageError: it cannot be read.
    """
    file = run_files.checkpoint_at(Path(path))
    contents = checkpoint.load(file)
    intermediate_id = run_files.intermediate_id(file)
    steps = checkpoint.steps_of(contents) if intermediate_id is None else intermediate_id
    return Trained(
        from_contents(contents, file, agent_type),
        name or run_files.run_of(file).resolve().name,
        "model" if steps is None else str(steps),
        build(ObservationConfig, contents),
        run_files.run_of(file),
        intermediate_id,
    )


def name_apart(agents: Sequence[Trained]) -> list[Trained]:
    """Returns agents of which no two have the same name.

    Those that share one are called ``NAME:STEPS``. Where that is not enough, because an agent is
    there twice, the later ones get a number, too.
    """
    shared = Counter(agent.xpid for agent in agents)
    given: Counter[str] = Counter()
    result = []
    for agent in agents:
        name = agent.xpid if shared[agent.xpid] == 1 else f"{agent.xpid}:{agent.model_id}"
        given[name] += 1
        number = f" ({given[name]})" if given[name] > 1 else ""
        result.append(agent._replace(xpid=name + number))
    return result


def choose_games(trained: Trained, env: str | None) -> tuple[str, ...]:
    """Returns the games that ``--env`` names, else those that the agent knows."""
    return allow(trained.agent.config.tasks, "--env") if env is None else parse_games(env)


def allow(games: tuple[str, ...], flag: str) -> tuple[str, ...]:
    """Returns games that a checkpoint names, to be played.

    Raises UsageError for an unknown game and for a custom environment. A checkpoint is data: what
    it names must not decide which code is imported or which file is written. The user may name a
    custom environment with ``flag``.
    """
    for game in games:
        try:
            find_game(game)
        except UsageError:
            raise UsageError(
                f"{game!r}, which the checkpoint names, is no game here: name one with {flag}"
            ) from None
        if is_custom(game):
            raise UsageError(
                f"{game} is a custom environment, which the checkpoint alone names: allow its "
                f"import with {flag} {game}"
            )
    return games


def warn_of_unknown(trained: Trained, game: str) -> None:
    """Warns of a game that the agent did not learn: it is played like the first one that it did."""
    if short_name(game) not in trained.games:
        log.warning(
            "%s was trained on %s, not on %s: its value and its mean picture are those of %s",
            trained.xpid,
            ", ".join(trained.games),
            short_name(game),
            trained.games[0],
        )


def check_game(trained: Trained, game: str) -> None:
    """Refuses a game whose value head and mean picture would be a guess.

    A single-task agent has one of each: it can play another game, with a warning. An agent of
    several games raises UsageError.
    """
    known = trained.games
    if len(known) > 1 and short_name(game) not in known:
        raise UsageError(
            f"{trained.xpid} was not trained on {short_name(game)}: it has value heads and mean "
            f"pictures of {', '.join(known)} only"
        )
    warn_of_unknown(trained, game)


def choose_game(trained: Trained, env: str | None) -> str:
    """Returns the game that ``--env`` names, else the only one that the agent knows.

    Raises UsageError.
    """
    games = choose_games(trained, env)
    if len(games) > 1:
        raise UsageError(f"--env: choose one of {', '.join(games)}")
    return games[0]
