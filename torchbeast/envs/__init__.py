"""Atari games as reinforcement learning environments: which there are and how to make one."""

from torchbeast.envs.environment import (
    DEFAULT_PRESENTATION,
    EnvSpec,
    Presentation,
    derive_seed,
    make_env,
    measure_frames,
    plan_envs,
)
from torchbeast.envs.games import SIX, THREE, all_games, parse_games

__all__ = [
    "DEFAULT_PRESENTATION",
    "SIX",
    "THREE",
    "EnvSpec",
    "Presentation",
    "all_games",
    "derive_seed",
    "make_env",
    "measure_frames",
    "parse_games",
    "plan_envs",
]
