"""Initialisation of a new agent: its first weights and the statistics of its games."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

from torchbeast.core.popart import PopArtLayer
from torchbeast.core.types import UsageError
from torchbeast.envs import GameStatistics, RandomPlayConfig, atari_actions, measure_games
from torchbeast.envs.games import is_atari, short_name
from torchbeast.envs.preprocessing import shows_wrong_gray
from torchbeast.envs.random_play import NUM_FRAME_STEPS, NUM_RETURN_STEPS
from torchbeast.envs.specs import FULL_ACTIONS
from torchbeast.models import Agent, AgentConfig
from torchbeast.models.loading import from_contents
from torchbeast.models.transfer import check_transfer, has_fixed_input, transfer
from torchbeast.records import checkpoint, run_files
from torchbeast.train.plan import RunPlan

log = logging.getLogger("torchbeast")

# Seconds between two messages while games are measured: on a terminal where there is news, and
# otherwise.
NEWS_INTERVAL_S, REPORT_INTERVAL_S = 1.0, 10.0
# With more games than this, each is played for fewer steps before a run starts.
MAX_LONG_GAMES = 16


class Source(NamedTuple):
    """The trained agent of ``--init_from``, and what the new agent has in common with it."""

    path: Path
    agent: Agent
    games: dict[int, int]
    """Common games, index in the new agent to index in the trained one."""
    actions: dict[int, int]
    """Common actions, likewise."""


class Initialisation(NamedTuple):
    """What initialises a new agent, besides random weights."""

    source: Source | None
    """The agent whose weights it takes; None for none."""
    statistics: dict[int, GameStatistics]
    """What was measured, by the index of the game."""


def plan_initialisation(plan: RunPlan, seed: int) -> Initialisation:
    """Loads the agent of ``--init_from`` and measures the games that it does not know.

    Args:
        plan: the run.
        seed: of the games.

    Returns:
        What :func:`initialise` needs.

    Raises:
        UsageError: ``--init_from`` names no agent, or one that does not fit the run.
        RunError: an environment failed.
    """
    network = plan.config.network
    source = None if network.init_from is None else load_source(plan, network.init_from)
    if source is not None and network.fixed_input_scale and not has_fixed_input(source.agent):
        log.warning(
            "--fixed_input_scale changes nothing: the agent of --init_from keeps the input that it "
            "knows"
        )
    tasks = list(range(len(plan.config.games)))
    if not (network.use_popart and not network.torch_initial_weights):
        # Frames alone: a trained agent knows those of its games.
        known = () if source is None else source.games
        tasks = [i for i in tasks if i not in known] if _measures_frames(plan, source) else []
    return Initialisation(source, _measure(plan, tasks, seed))


def load_source(plan: RunPlan, name: str) -> Source:
    """Loads the agent that ``--init_from`` names and finds what the run has in common with it.

    Raises:
        UsageError: there is no such agent, or it does not fit the run.
    """
    path = run_files.find_agent(plan.config.output.savedir, name)
    if not path.exists() and plan.xpid in (name, name.rpartition(":")[0]):
        # This run itself, which has no checkpoint yet, and the name of a shipped agent.
        shipped = run_files.find_agent(run_files.SHIPPED, name)
        path = shipped if shipped.exists() else path
    contents = checkpoint.load(path)
    agent = from_contents(contents, path, plan.agent.agent_type)
    try:
        check_transfer(agent.config, plan.agent)
    except UsageError as error:
        raise UsageError(f"--init_from {name} cannot be used: {error}") from None
    names = [short_name(task) for task in agent.config.tasks]
    games = {
        task: names.index(short_name(game))
        for task, game in enumerate(plan.config.games)
        if short_name(game) in names
    }
    observation = checkpoint.read_observation_config(contents)
    for task in [t for t in games if shows_wrong_gray(plan.config.games[t], observation)]:
        game = short_name(plan.config.games[task])
        log.warning("%s counts as new: the agent of --init_from saw wrong pictures of it", game)
        del games[task]
    return Source(path, agent, games, match_actions(plan.agent, agent.config, bool(games)))


def match_actions(new: AgentConfig, old: AgentConfig, common_game: bool) -> dict[int, int]:
    """Finds the actions that two agents have in common.

    Those of Atari games are compared by name. Those of custom environments are the same if the
    agents have as many, and a game in common.

    Args:
        new: one agent.
        old: the other one.
        common_game: whether they have a game in common.

    Returns:
        The index of each common action in ``new``, to that in ``old``.
    """
    new_names, old_names = _action_names(new), _action_names(old)
    if new_names and old_names:
        return {i: old_names.index(n) for i, n in enumerate(new_names) if n in old_names}
    same = common_game and new.num_actions == old.num_actions
    return {i: i for i in range(new.num_actions)} if same else {}


def initialise(agent: Agent, plan: RunPlan, initialisation: Initialisation) -> None:
    """Gives a new agent its weights, and statistics of its games."""
    network, measured = plan.config.network, initialisation.statistics
    if _measures_frames(plan, initialisation.source):
        mean, std = torch.zeros_like(agent.frame_mean), torch.ones_like(agent.frame_scale)
        for task, statistics in measured.items():
            mean[task] = torch.from_numpy(statistics.frame_mean)
            std[task] = statistics.frame_std
        agent.set_frame_statistics(mean, std)
    if not network.torch_initial_weights:
        agent.scale_initial_weights()
        if isinstance(agent.baseline, PopArtLayer):
            # Else a game that pays in hundreds has advantages of hundreds until --beta has moved
            # its statistics, thousands of updates later; no policy survives that.
            games = (measured[task] for task in range(len(measured)))
            agent.baseline.set_statistics([(x.return_mean, x.return_std) for x in games])
    if initialisation.source is not None:
        _take_weights(agent, plan, initialisation.source)


def _take_weights(agent: Agent, plan: RunPlan, source: Source) -> None:
    """Copies the weights of the trained agent and logs which."""
    transferred = transfer(source.agent, agent, source.games, source.actions)
    games = [short_name(plan.config.games[task]) for task in source.games]
    log.info("Initialised from %s: %s", source.path, ", ".join(transferred.copied))
    if "policy" in transferred.copied:
        log.info("Known actions: %d of %d", len(source.actions), agent.config.num_actions)
    if games:
        log.info("Known games: %s", ", ".join(games))
    new = [short_name(g) for i, g in enumerate(plan.config.games) if i not in source.games]
    if new:
        log.info("New games: %s", ", ".join(new))
    if transferred.new:
        log.info("Initialised anew: %s", ", ".join(transferred.new))


def _measures_frames(plan: RunPlan, source: Source | None) -> bool:
    """Whether frames are centred and scaled; a trained encoder keeps the input that it knows."""
    if source is not None:
        return not has_fixed_input(source.agent)
    return not plan.config.network.fixed_input_scale


def _measure(plan: RunPlan, tasks: list[int], seed: int) -> dict[int, GameStatistics]:
    if not tasks:
        return {}
    config = plan.config
    play = RandomPlayConfig(
        config.observation,
        plan.full_action_space,
        seed,
        config.learning.discounting,
        config.learning.clip_rewards,
        _choose_num_steps(len(tasks), config.network.use_popart),
    )
    measured = measure_games(
        tuple(config.games[task] for task in tasks),
        play,
        num_processes=plan.cores,
        deadline_s=config.step_timeout_s,
        on_progress=_Reporter(len(tasks)),
    )
    return dict(zip(tasks, measured, strict=True))


def _choose_num_steps(num_games: int, use_popart: bool) -> int:
    """Steps of random play in each game: more where returns matter, unless it would take long."""
    return NUM_RETURN_STEPS if use_popart and num_games <= MAX_LONG_GAMES else NUM_FRAME_STEPS


class _Reporter:
    """Says how far the measurement of the games is, if it takes long."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._told = 0
        self._told_at = time.monotonic()

    def __call__(self, done: int) -> None:
        is_news = done > self._told and sys.stderr.isatty()
        interval = NEWS_INTERVAL_S if is_news else REPORT_INTERVAL_S
        if time.monotonic() - self._told_at >= interval:
            log.info("Measuring games by random play: %d of %d done", done, self._total)
            self._told, self._told_at = done, time.monotonic()


def _action_names(config: AgentConfig) -> tuple[str, ...] | None:
    """Names of an agent's actions; None if its games do not tell them."""
    if not all(is_atari(task) for task in config.tasks):
        return None
    if config.num_actions == len(FULL_ACTIONS):
        return FULL_ACTIONS
    names = atari_actions(config.tasks[0])
    return names if len(names) == config.num_actions else None
