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
from torchbeast.envs import GameStatistics, RandomPlayConfig, measure_games
from torchbeast.envs.games import short_name
from torchbeast.envs.random_play import NUM_FRAME_STEPS, NUM_RETURN_STEPS
from torchbeast.models import Agent
from torchbeast.models.loading import from_contents
from torchbeast.records import checkpoint, run_files
from torchbeast.train.plan import RunPlan

log = logging.getLogger("torchbeast")

# Seconds between two messages while games are measured: on a terminal where there is news, and
# otherwise.
NEWS_INTERVAL_S, REPORT_INTERVAL_S = 1.0, 10.0
# With more games than this, each is played for fewer steps before a run starts.
MAX_LONG_GAMES = 16
# Parts of an agent that mean nothing in other games or with other actions.
GAME_PARTS = ("policy", "baseline", "frame_mean", "frame_scale")


class Source(NamedTuple):
    """The trained agent of ``--init_from``."""

    path: Path
    agent: Agent
    is_complete: bool
    """Whether all of it is copied: it knows the games of the new agent, in the same order."""


class Initialisation(NamedTuple):
    """What initialises a new agent, besides random weights."""

    source: Source | None
    """The agent whose weights it takes; None for none."""
    statistics: list[GameStatistics]
    """What was measured of each game; empty if nothing was."""


def plan_initialisation(plan: RunPlan, seed: int) -> Initialisation:
    """Loads the agent of ``--init_from``, and measures the games unless that agent knows them.

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
    if source is not None and source.is_complete:
        if network.use_popart and network.unit_statistics:
            log.info("PopArt's statistics are those of --init_from")
        return Initialisation(source, [])
    measures = _measures_frames(plan, source) or network.measures_returns
    return Initialisation(source, _measure(plan, seed) if measures else [])


def load_source(plan: RunPlan, name: str) -> Source:
    """Loads the agent that ``--init_from`` names.

    Raises:
        UsageError: there is no such agent, or it does not fit the run.
    """
    path = run_files.find_agent(plan.config.output.savedir, name)
    if not path.exists() and plan.xpid in (name, name.rpartition(":")[0]):
        # This run itself, which has no checkpoint yet, and the name of a shipped agent.
        shipped = run_files.find_agent(run_files.SHIPPED, name)
        path = shipped if shipped.exists() else path
    agent = from_contents(checkpoint.load(path), path, plan.agent.agent_type)
    old, new, games = agent.config, plan.agent, plan.config.games
    refusal = f"--init_from {name} cannot be used: it"
    if (old.agent_type, old.use_lstm) != (new.agent_type, new.use_lstm):
        networks = [
            f"--agent_type {agent.agent_type} {'with' if agent.use_lstm else 'without'} --use_lstm"
            for agent in (old, new)
        ]
        raise UsageError(f"{refusal} has {networks[0]}, this run has {networks[1]}")
    if old.observation_shape != new.observation_shape:
        raise UsageError(
            f"{refusal} looks at pictures {old.observation_shape}, these games show "
            f"{new.observation_shape}"
        )
    is_complete = (
        [short_name(task) for task in old.tasks] == [short_name(game) for game in games]
        and old.num_actions == new.num_actions
        and (old.use_popart, old.num_heads) == (new.use_popart, new.num_heads)
    )
    return Source(path, agent, is_complete)


def has_fixed_input(agent: Agent) -> bool:
    """Whether the input of an agent's network is x / 255, as in 2019."""
    scales = torch.full_like(agent.frame_scale, 1.0 / 255.0)
    return not agent.frame_mean.any() and torch.equal(agent.frame_scale, scales)


def initialise(agent: Agent, plan: RunPlan, initialisation: Initialisation) -> None:
    """Gives a new agent its weights, and statistics of its games."""
    network, (source, measured) = plan.config.network, initialisation
    if source is not None and source.is_complete:
        agent.load_state_dict(source.agent.state_dict())
        log.info("Initialised from %s: the whole agent", source.path)
        return
    if _measures_frames(plan, source):
        mean, std = torch.zeros_like(agent.frame_mean), torch.ones_like(agent.frame_scale)
        for task, statistics in enumerate(measured):
            mean[task] = torch.from_numpy(statistics.frame_mean)
            std[task] = statistics.frame_std
        agent.set_frame_statistics(mean, std)
    if not network.torch_initial_weights:
        agent.scale_initial_weights()
    if isinstance(agent.baseline, PopArtLayer) and network.measures_returns:
        # Else a game that pays in hundreds has advantages of hundreds until --beta has moved its
        # statistics, thousands of updates later.
        agent.baseline.set_statistics([(x.return_mean, x.return_std) for x in measured])
    if source is not None:
        left = copy_encoder(source.agent, agent)
        log.info("Initialised from %s, anew: %s", source.path, ", ".join(left))


def copy_encoder(source: Agent, target: Agent) -> list[str]:
    """Copies the encoder and the memory of an agent to one of other games or actions.

    Policy, values and the statistics of the games are left as they are, as are weights of another
    shape: those that depend on the number of actions.

    Args:
        target: the new one, of the same type.

    Returns:
        The names of what was left: whole parts, and single weights of the other parts.
    """
    known, new = source.state_dict(), target.state_dict()
    copied = [
        name
        for name, value in new.items()
        if _part(name) not in GAME_PARTS and name in known and known[name].shape == value.shape
    ]
    for name in copied:
        new[name].copy_(known[name])
    parts = set(map(_part, copied))
    left = (name for name in new if name not in copied)
    return list(dict.fromkeys(name if _part(name) in parts else _part(name) for name in left))


def _part(name: str) -> str:
    return name.partition(".")[0]


def _measures_frames(plan: RunPlan, source: Source | None) -> bool:
    """Whether frames are centred and scaled; a trained encoder keeps the input that it knows."""
    if source is not None:
        return not has_fixed_input(source.agent)
    return not plan.config.network.fixed_input_scale


def _measure(plan: RunPlan, seed: int) -> list[GameStatistics]:
    config = plan.config
    # More steps where returns matter, unless it would take long.
    is_long = config.network.measures_returns and len(config.games) <= MAX_LONG_GAMES
    play = RandomPlayConfig(
        config.observation,
        plan.full_action_space,
        seed,
        config.learning.loss.discounting,
        config.learning.loss.clip_rewards,
        NUM_RETURN_STEPS if is_long else NUM_FRAME_STEPS,
    )
    return measure_games(
        config.games,
        play,
        num_processes=plan.cores,
        deadline_s=config.step_timeout_s,
        on_progress=_Reporter(len(config.games)),
    )


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
