"""Scores of full games: what an evaluation reports of an agent."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

POLICIES = ("greedy", "sampled")

# The columns of scores.csv: a row per evaluated step, game and policy.
SCORE_FIELDS = [
    "step",
    "seconds",
    "game",
    "policy",
    "episodes",
    "mean",
    "std",
    "min",
    "max",
    "mean_steps",
    "human_normalized",
]


class GameScore(NamedTuple):
    """Returns of full games that one agent played in one game, and scores to compare them with."""

    env: str
    """Id of the game."""

    policy: str
    """One of ``POLICIES``: the likeliest action, or one sampled from the policy."""

    episodes: int

    different: int
    """How many of them differ in steps or return: greedy play repeats games."""

    mean: float
    std: float
    min: float
    max: float

    mean_steps: float
    """Agent steps per full game."""

    random: float | None
    """Return of a random agent: published, else measured, else None."""

    human: float | None
    """Return of a professional games tester; None where it is not published."""

    human_normalized: float | None
    """``mean`` on a scale from 0, ``random``, to 1, ``human``; None without these."""


class Normalized(NamedTuple):
    """Human-normalised scores of several games in two numbers."""

    median: float
    mean: float
    games: int
    """How many games these are of: those with a published human score."""


class Evaluation(NamedTuple):
    """The scores of an agent at one step of its training."""

    step: int
    """Agent steps that the evaluated agent was trained for."""

    scores: tuple[GameScore, ...]
    """The results of every game, under each of ``POLICIES``."""

    def select(self, policy: str) -> tuple[GameScore, ...]:
        """Returns the scores under one policy, in the order of the games."""
        return tuple(score for score in self.scores if score.policy == policy)


def normalize(scores: Iterable[GameScore]) -> Normalized | None:
    """Computes median and mean human-normalised score over the games that have one.

    Args:
        scores: at most one per game.

    Returns:
        None if no game has a published human score.
    """
    known = [s.human_normalized for s in scores if s.human_normalized is not None]
    if not known:
        return None
    return Normalized(statistics.median(known), statistics.fmean(known), len(known))
