"""Atari games as reinforcement learning environments: which there are and how to make one."""

from torchbeast.envs.environment import (
    DEFAULT_OBSERVATION,
    derive_seed,
    describe_environment,
    make_env,
    make_watched,
)
from torchbeast.envs.games import SIX, THREE, all_games, parse_games
from torchbeast.envs.random_play import GameStatistics, RandomPlayConfig, measure_games
from torchbeast.envs.specs import EnvSpec, atari_actions, plan_envs
from torchbeast.envs.stream import EnvStream

__all__ = [
    "DEFAULT_OBSERVATION",
    "SIX",
    "THREE",
    "EnvSpec",
    "EnvStream",
    "GameStatistics",
    "RandomPlayConfig",
    "all_games",
    "atari_actions",
    "derive_seed",
    "describe_environment",
    "make_env",
    "make_watched",
    "measure_games",
    "parse_games",
    "plan_envs",
]
