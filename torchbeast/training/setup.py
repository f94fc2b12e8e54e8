"""What the flags amount to: all that a user can get wrong is checked before anything starts."""

from __future__ import annotations

import argparse
import logging
import os
from typing import NamedTuple

from torchbeast.core.allocation import default_num_servers
from torchbeast.core.devices import Devices, choose_devices
from torchbeast.core.file_writer import default_xpid
from torchbeast.core.flags import DEFAULT_ENV
from torchbeast.core.threads import ThreadPlan, available_cores, plan_threads
from torchbeast.core.types import UsageError
from torchbeast.envs import EnvSpec, ObservationConfig, parse_games, plan_envs

log = logging.getLogger("torchbeast")


class Setup(NamedTuple):
    """What the flags amount to on this machine. Flags themselves are never changed."""

    games: tuple[str, ...]
    num_actors: int
    observation: ObservationConfig
    spec: EnvSpec
    plan: ThreadPlan
    devices: Devices
    xpid: str
    seed: int
    clip_rewards: bool


def prepare(flags: argparse.Namespace, *, has_pool: bool = True) -> Setup:
    """Checks the flags. Raises UsageError.

    ``has_pool``: whether servers and inference threads are needed. Without them, in MonoBeast,
    ``--num_actors`` is per game, as in 2019.
    """
    games = parse_games(flags.env or DEFAULT_ENV)
    num_actors = flags.num_actors * (1 if has_pool else len(games))
    if len(games) > num_actors:
        raise UsageError(
            f"{len(games)} games need at least as many actors: --num_actors {num_actors}"
        )
    observation = ObservationConfig.from_flags(flags)
    spec = plan_envs(games, observation)
    if flags.num_actions is not None and flags.num_actions != spec.num_actions:
        raise UsageError(
            f"--num_actions {flags.num_actions} contradicts the games, which have "
            f"{spec.num_actions}; leave it out"
        )
    if flags.xpid is not None and (flags.xpid in ("", ".", "..", "latest") or "/" in flags.xpid):
        raise UsageError(f"--xpid '{flags.xpid}' cannot be the name of a run")
    devices = choose_devices(flags.disable_cuda)
    cores = flags.cores or available_cores()
    plan = plan_threads(
        cores,
        min(
            getattr(flags, "num_servers", None)
            or default_num_servers(cores, num_actors, len(games)),
            num_actors,
        ),
        cuda=devices.learner.type == "cuda",
        learner_threads=flags.num_learner_threads,
        inference_threads=getattr(flags, "num_inference_threads", None),
    )
    if not has_pool:
        plan = plan._replace(inference_threads=0, servers=0)
    if flags.use_popart and flags.reward_clipping == "abs_one":
        log.warning(
            "--use_popart with --reward_clipping abs_one normalises clipped rewards: the scales of "
            "the games, which PopArt is for, are lost before it sees them"
        )
    clipping = flags.reward_clipping or ("none" if flags.use_popart else "abs_one")
    return Setup(
        games=games,
        num_actors=num_actors,
        observation=observation,
        spec=spec,
        plan=plan,
        devices=devices,
        xpid=flags.xpid or default_xpid(),
        seed=flags.seed if flags.seed is not None else int.from_bytes(os.urandom(4), "little"),
        clip_rewards=clipping == "abs_one",
    )
