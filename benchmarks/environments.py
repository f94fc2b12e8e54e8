"""Atari preprocessing: this program's wrapper beside ale-py's C++ vector environment.

    python benchmarks/environments.py [--steps 4000]

Agent steps per CPU second of one core, random actions, and what the bare emulator takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import ale_py
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from torchbeast.envs import make_env

GAMES = {"Pong": "pong", "Breakout": "breakout", "SpaceInvaders": "space_invaders"}
VECTOR_ENVS = 8


def wrapper(game: str, actions: np.ndarray) -> None:
    env = make_env(f"{game}NoFrameskip-v4", seed=0)
    env.reset()
    num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
    for action in actions % num_actions:
        _, _, terminated, truncated, _ = env.step(int(action))
        if terminated or truncated:
            env.reset()


def vector(game: str, actions: np.ndarray) -> None:
    env = AtariVectorEnv(
        GAMES[game],
        VECTOR_ENVS,
        num_threads=1,
        reward_clipping=False,
        episodic_life=True,
        use_fire_reset=True,
    )
    env.reset(seed=0)
    num_actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
    for row in (actions % num_actions).reshape(-1, VECTOR_ENVS):
        env.step(row)


def emulator(game: str, actions: np.ndarray) -> None:
    ale = make_env(f"{game}NoFrameskip-v4", seed=0).unwrapped.ale  # type: ignore[attr-defined]
    moves = ale.getMinimalActionSet()
    for action in actions % len(moves):
        for _ in range(4):
            ale.act(moves[action])
        if ale.game_over():
            ale.reset_game()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    flags = parser.parse_args()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    actions = np.random.default_rng(0).integers(2**30, size=flags.steps // 8 * 8)
    print(f"{'steps per CPU second':24}{'vector':>10}{'wrapper':>10}{'ratio':>8}{'emulator':>10}")
    for game in GAMES:
        speeds = []
        for run in (vector, wrapper, emulator):
            start = time.process_time()
            run(game, actions)
            speeds.append(len(actions) / (time.process_time() - start))
        ratio = speeds[1] / speeds[0]
        print(f"{game:24}{speeds[0]:10.0f}{speeds[1]:10.0f}{ratio:8.2f}{speeds[2]:10.0f}")


if __name__ == "__main__":
    main()
