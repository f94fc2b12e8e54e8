"""What a configuration amounts to here: all that can be wrong is checked before anything starts."""

from __future__ import annotations

import datetime
import logging
import math
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from torchbeast.cli.config import build
from torchbeast.core.types import ObservationConfig, UsageError
from torchbeast.envs import EnvSpec, plan_envs
from torchbeast.envs.games import short_name
from torchbeast.models import Agent, AgentConfig
from torchbeast.models.loading import find_agent_type
from torchbeast.records.run_files import LATEST, run_path
from torchbeast.records.scalars import check_logger
from torchbeast.records.validation import read
from torchbeast.runtime.allocation import (
    MAX_ENVIRONMENTS_PER_STREAM,
    allocate,
    default_num_servers,
    divide,
)
from torchbeast.runtime.devices import Devices, choose_devices
from torchbeast.runtime.ranks import Ranks, read_ranks
from torchbeast.runtime.threads import ThreadPlan, available_cores
from torchbeast.train.config import TrainingConfig

log = logging.getLogger("torchbeast")

# Bytes in a run's name. File systems allow 255, and files beside the directory get longer names.
MAX_RUN_NAME = 200
# What the actor pool takes.
MAX_UNROLL_LENGTH = 2**20
# More than any machine has memory for: the flag has too many digits.
MAX_ACTORS = 2**16
# Bytes: the path of a socket has 107, of which a directory and a name in TMPDIR take up to 35.
MAX_TMPDIR = 72
RESERVED_NAMES = ("", ".", "..", LATEST, "intermediate")


class RunPlan(NamedTuple):
    """A configuration and what follows from it on this machine."""

    config: TrainingConfig
    xpid: str
    agent: AgentConfig
    full_action_space: bool
    """Whether all 18 actions are used because the games' own sets differ."""
    shares: tuple[int, ...]
    """Environments of each game."""
    servers: tuple[int, ...]
    """Environments of each environment server; empty in MonoBeast."""
    cores: int
    threads: ThreadPlan
    devices: Devices
    ranks: Ranks
    """The processes that learn together. All else is of one of them."""

    @property
    def num_actors(self) -> int:
        """Environments of all games together."""
        return sum(self.shares)

    @property
    def directory(self) -> Path:
        """Where the run's files are."""
        return run_path(self.config.output.savedir, self.xpid)


def make_plan(
    config: TrainingConfig, ranks: Ranks | None = None, *, has_pool: bool = True
) -> RunPlan:
    """Checks a configuration and plans a run of it on this machine.

    Args:
        config: the configuration. Its batch size, actors, servers and cores are each rank's.
        ranks: the processes that learn together; by default those that the environment names.
        has_pool: whether servers and inference threads are needed. MonoBeast has neither, and its
            ``num_actors`` is per game, as in 2019.

    Returns:
        The plan.

    Raises:
        UsageError: the configuration contradicts itself, the games or this machine.
        RunError: a custom environment failed when it was made.
    """
    ranks = ranks or read_ranks()
    num_tasks = len(config.games)
    if ranks.is_first:
        check_logger(config.output.logger)
    spec = plan_envs(config.games, config.observation, config.step_timeout_s)
    _check(config, spec)
    _check_ranks(config, ranks)
    agent_type = find_agent_type(config.network.agent_type)
    _check_agent_type(config, agent_type, spec)
    machine = config.machine
    num_actors = machine.num_actors * (1 if has_pool else num_tasks)
    devices = choose_devices(machine.disable_cuda, ranks.local_index, ranks.local_count)
    if not has_pool:  # MonoBeast's actors compute on the CPU.
        devices = devices._replace(inference=torch.device("cpu"))
    cores = machine.cores or available_cores(ranks.local_count)
    if cores > available_cores():
        log.warning("--cores %s: this process may use %s", cores, available_cores())
    if num_tasks > num_actors:
        raise UsageError(
            f"{num_tasks} games need at least as many actors: --num_actors {num_actors}"
        )
    shares = divide(num_actors, num_tasks)
    servers = _allocate_servers(config, shares, cores) if has_pool else ()
    threads = _plan_threads(config, agent_type, devices, cores)
    return RunPlan(
        config=config,
        xpid=config.output.xpid or f"torchbeast-{datetime.datetime.now():%Y%m%d-%H%M%S}",
        agent=_describe_agent(config, agent_type, spec),
        full_action_space=spec.full_action_space,
        shares=shares,
        servers=servers,
        cores=cores,
        threads=threads if has_pool else threads._replace(inference_threads=0),
        devices=devices,
        ranks=ranks,
    )


def is_run_name(xpid: str) -> bool:
    """Whether a run's directory can have this name.

    >>> is_run_name("pong-1"), is_run_name("latest"), is_run_name("a/b"), is_run_name("a" * 201)
    (True, False, False, False)
    """
    return (
        len(os.fsencode(xpid)) <= MAX_RUN_NAME
        and xpid.isprintable()
        and "/" not in xpid
        and not xpid.startswith("-")
        and xpid not in RESERVED_NAMES
    )


def _check(config: TrainingConfig, spec: EnvSpec) -> None:
    num_actions, xpid = config.network.num_actions, config.output.xpid
    if num_actions is not None and num_actions != spec.num_actions:
        raise UsageError(
            f"--num_actions {num_actions} contradicts the games, which have "
            f"{spec.num_actions}; leave it out"
        )
    if config.learning.unroll_length > MAX_UNROLL_LENGTH:
        raise UsageError(f"--unroll_length must be at most {MAX_UNROLL_LENGTH:,}")
    if config.machine.num_actors > MAX_ACTORS:
        raise UsageError(f"--num_actors must be at most {MAX_ACTORS:,}")
    try:
        directory = tempfile.gettempdir()
    except OSError as error:  # All are full or read-only.
        raise UsageError(f"{error.strerror}: TMPDIR may name another one") from error
    if len(os.fsencode(directory)) > MAX_TMPDIR:
        raise UsageError(
            f"TMPDIR={directory} is too long for the paths of sockets: it may have "
            f"{MAX_TMPDIR} bytes"
        )
    if xpid is not None and not is_run_name(xpid):
        raise UsageError(
            f"--xpid {xpid[:MAX_RUN_NAME]!r} cannot be the name of a run: a name has at most "
            f"{MAX_RUN_NAME} bytes, only printable characters, no slash, no - in front, and is "
            "neither 'latest' nor 'intermediate'"
        )
    if config.network.use_popart and config.learning.loss.clip_rewards:
        log.info(
            "--use_popart with --reward_clipping abs_one normalises clipped rewards: clipping "
            "removes the scales of the games before PopArt sees them"
        )


def _check_agent_type(config: TrainingConfig, agent_type: type[Agent], spec: EnvSpec) -> None:
    name, least = config.network.agent_type, agent_type.min_frame_size
    _, height, width = spec.observation_shape
    if min(height, width) < least:
        raise UsageError(
            f"--agent_type {name} needs frames of {least} x {least} at least, not of {height} x "
            f"{width}"
        )
    if config.network.use_lstm and not agent_type.takes_lstm:
        log.warning("--use_lstm changes nothing: --agent_type %s has its own memory", name)


def _check_ranks(config: TrainingConfig, ranks: Ranks) -> None:
    if ranks.count == 1:
        return
    if config.output.xpid is None:
        raise UsageError("name the run with --xpid: torchrun resumes it by that name")
    if config.pool.synchronous:
        raise UsageError("--synchronous is for one process, not for several ranks of torchrun")
    if config.servers.pipes_basename is not None and ranks.local_count > 1:
        raise UsageError(
            "--pipes_basename is for one rank on each machine: ranks would meet at its addresses"
        )


def _describe_agent(config: TrainingConfig, agent_type: type[Agent], spec: EnvSpec) -> AgentConfig:
    agent = build(AgentConfig, config.network._asdict())._replace(
        observation_shape=spec.observation_shape,
        num_actions=spec.num_actions,
        tasks=config.games,
        use_lstm=config.network.use_lstm and agent_type.takes_lstm,
    )
    try:  # A checkpoint of this run must be readable.
        read(AgentConfig, agent._asdict(), "the agent")
        read(ObservationConfig, config.observation._asdict(), "the observation")
    except ValueError as error:
        raise UsageError(f"such a run cannot be saved: {error}") from error
    return agent


def _plan_threads(
    config: TrainingConfig, agent_type: type[Agent], devices: Devices, cores: int
) -> ThreadPlan:
    gpu = devices.learner.type == "cuda"
    # On a CPU several learner threads, each on a part of the batch, beat one thread that splits its
    # operations over the cores; more than there are rollouts in a batch would only hold rollouts
    # that grow older. A GPU wants whole batches, and a second thread that copies the next one
    # meanwhile.
    useful = math.ceil(cores * agent_type.learner_share)
    num_learners = 2 if gpu else min(useful, config.learning.batch_size)
    return ThreadPlan(
        learner_threads=config.machine.num_learner_threads or num_learners,
        inference_threads=config.pool.num_inference_threads or (2 if gpu else 1),
    )


def _allocate_servers(
    config: TrainingConfig, shares: tuple[int, ...], cores: int
) -> tuple[int, ...]:
    num_tasks = len(shares)
    num_servers = config.servers.num_servers or default_num_servers(cores, shares)
    if num_servers < num_tasks:
        raise UsageError(f"{num_tasks} games need at least as many servers, not {num_servers}")
    try:
        if config.servers.start_servers:
            num_servers = min(num_servers, sum(shares))
        servers = allocate(shares, num_servers)
    except ValueError as error:
        counts = ", ".join(
            f"{short_name(game)} {share}" for game, share in zip(config.games, shares, strict=True)
        )
        raise UsageError(
            f"--num_servers {num_servers} is more than these environments need: {counts}"
        ) from error
    if max(servers) > MAX_ENVIRONMENTS_PER_STREAM:
        needed = sum(-(-share // MAX_ENVIRONMENTS_PER_STREAM) for share in shares)
        raise UsageError(
            f"--num_servers {num_servers}: a server has at most {MAX_ENVIRONMENTS_PER_STREAM} "
            f"environments, so at least {needed} servers are needed"
        )
    return servers
