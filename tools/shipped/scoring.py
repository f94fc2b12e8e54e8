"""Scores on a card: full games of a shipped agent, with greedy and with sampled actions."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from torchbeast.analysis import aggregates
from torchbeast.core.types import UsageError
from torchbeast.envs.scores import human_normalized
from torchbeast.evaluate.playing import play
from torchbeast.evaluate.trained import read_trained
from torchbeast.records.scores import POLICIES
from torchbeast.runtime.threads import available_cores
from torchbeast.runtime.workers import begin_worker

FILE = "evaluation.json"
EPISODES = 30
# The seed of the games; those of training begin with the run's own seed.
SEED = 100


class Score(NamedTuple):
    """A mean and its 95 % bootstrap interval; no interval where all values are one."""

    mean: float
    interval: aggregates.Interval | None


class Evaluation(NamedTuple):
    """The full games that an agent played."""

    model: str
    """Agent steps that it was trained for."""
    seed: int
    returns: dict[str, dict[str, np.ndarray]]
    """By id of the game and policy: returns ``[N]``."""

    def score(self, game: str, policy: str) -> Score:
        """Returns the mean return in a game."""
        return score_returns(self.returns[game][policy])

    def normalized(self, game: str, policy: str) -> Score | None:
        """Returns the human-normalised mean return; None where no human score is published."""
        returns = self.returns[game][policy]
        if human_normalized(game, 0.0) is None:
            return None
        return score_returns(np.array([human_normalized(game, x) for x in returns]))

    def normalized_median(self, policy: str) -> Score | None:
        """Returns the median over games of human-normalised scores; None with fewer than two."""
        return normalized_median({game: r[policy] for game, r in self.returns.items()})


def normalized_median(returns: Mapping[str, np.ndarray]) -> Score | None:
    """Returns the median over games of the human-normalised means of returns ``[N]``.

    None if fewer than two of the games have a human score.
    """
    scores = [
        np.array([human_normalized(game, x) for x in values])
        for game, values in returns.items()
        if human_normalized(game, 0.0) is not None
    ]
    if len(scores) < 2:
        return None
    interval = aggregates.bootstrap(scores, aggregates.median)
    return Score(float(aggregates.median(scores)), interval)


def score_returns(values: np.ndarray) -> Score:
    """Returns the mean of values ``[N]`` with its interval."""
    return Score(float(values.mean()), aggregates.bootstrap([values], aggregates.mean))


def evaluate(agent: Path, episodes: int = EPISODES, seed: int = SEED) -> Evaluation:
    """Returns the games that an agent played, and has it play them if that was not done before.

    The games are in evaluation.json beside the agent's checkpoint.

    Args:
        agent: the agent's directory.
        episodes: full games per game and policy.
        seed: of the games.

    Raises:
        UsageError: the checkpoint or evaluation.json is damaged.
    """
    path = agent / FILE
    known = read_evaluation(agent)
    trained = read_trained(agent / "model.tar", agent.name)
    wanted = (trained.model_id, seed, episodes)
    if known is not None and (known.model, known.seed, _count(known)) == wanted:
        return known
    tasks = trained.agent.config.tasks
    # A process for each core: a game with one thread is played as in --mode test.
    context = multiprocessing.get_context("spawn")
    workers = min(available_cores(), len(tasks) * len(POLICIES))
    with ProcessPoolExecutor(workers, context, initializer=begin_worker) as pool:
        played = {
            game: {
                policy: pool.submit(_play_games, agent, game, policy, episodes, seed)
                for policy in POLICIES
            }
            for game in tasks
        }
        try:
            games = {
                game: {policy: returns.result() for policy, returns in of_game.items()}
                for game, of_game in played.items()
            }
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    document = {"model": trained.model_id, "seed": seed, "games": games}
    path.write_text(json.dumps(document, indent=1) + "\n")
    evaluation = read_evaluation(agent)
    assert evaluation is not None
    return evaluation


def _play_games(agent: Path, game: str, policy: str, episodes: int, seed: int) -> list[float]:
    """Returns of an agent's full games; runs in a process of its own."""
    torch.set_num_threads(1)
    trained = read_trained(agent / "model.tar", agent.name)
    played = play(trained, game, episodes, greedy=policy == "greedy", seed=seed)
    return [episode.episode_return for episode in played]


def read_evaluation(agent: Path) -> Evaluation | None:
    """Returns the games in evaluation.json of an agent's directory; None where there is none.

    Raises UsageError if the file is damaged.
    """
    path = agent / FILE
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text())
        returns = {
            game: {policy: np.array(values[policy], float) for policy in POLICIES}
            for game, values in document["games"].items()
        }
        return Evaluation(document["model"], document["seed"], returns)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is damaged: remove it, and the games are played anew") from error


def _count(evaluation: Evaluation) -> int:
    """The number of games per game and policy; the smallest if they differ."""
    return min(
        (len(values) for game in evaluation.returns.values() for values in game.values()), default=0
    )
