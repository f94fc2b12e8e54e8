"""Atari games as reinforcement learning environments: which there are and how to make one."""

from torchbeast.envs.environment import (
    DEFAULT_OBSERVATION,
    EnvSpec,
    ObservationConfig,
    derive_seed,
    make_env,
    plan_envs,
)
from torchbeast.envs.games import SIX, THREE, all_games, parse_game_weights, parse_games
from torchbeast.envs.measuring import measure_frames, measure_returns
from torchbeast.envs.stream import EnvStream

__all__ = [
    "DEFAULT_OBSERVATION",
    "SIX",
    "THREE",
    "EnvSpec",
    "EnvStream",
    "ObservationConfig",
    "all_games",
    "derive_seed",
    "make_env",
    "measure_frames",
    "measure_returns",
    "parse_game_weights",
    "parse_games",
    "plan_envs",
]
