"""Mean full-game return of a uniformly random agent: ``python tools/random_scores.py``.

Measures the games that have no published score. The results are in
``torchbeast/envs/human_scores.py``.
Games as in ``--mode test``: up to 30 no-op steps at the start, four frames per action, at most 30
minutes of play.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from torchbeast.cli.command import run_command
from torchbeast.envs import EnvStream, all_games, make_env, parse_games
from torchbeast.envs.games import short_name
from torchbeast.envs.human_scores import PUBLISHED


def play_at_random(env_id: str, num_games: int, seed: int, all_actions: bool) -> np.ndarray:
    """Full-game returns ``[num_games]`` of uniformly random actions."""
    env = make_env(env_id, full_games=True, full_action_space=all_actions, seed=seed)
    generator = np.random.default_rng(seed)
    num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
    stream = EnvStream(env, task=0)
    stream.initial()
    returns: list[float] = []
    while len(returns) < num_games:
        row = stream.step(int(generator.integers(num_actions)))
        if row.game_over:
            returns.append(row.episode_return)
    env.close()
    return np.array(returns)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", help="Games (default: those without a published score).")
    parser.add_argument("--games", type=int, default=30, help="Full games per game.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all_actions", action="store_true", help="All 18 actions.")
    flags = parser.parse_args()

    def work(_: object) -> None:
        unpublished = [game for game in all_games() if short_name(game) not in PUBLISHED]
        for game in parse_games(flags.env or ",".join(unpublished)):
            returns = play_at_random(game, flags.games, flags.seed, flags.all_actions)
            error = returns.std() / len(returns) ** 0.5
            print(f"{short_name(game):20} {returns.mean():10.1f} +- {error:.1f}", flush=True)

    return run_command("random_scores", work)


if __name__ == "__main__":
    sys.exit(main())
