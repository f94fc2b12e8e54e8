"""Rollouts that were learned from, kept to be learned from again.

V-trace corrects for the policy that acted, which is older here than in a new rollout. Schmitt et
al. 2019 (arXiv:1909.11583) show that this stays stable where every batch has new rollouts, too.
"""

from __future__ import annotations

import collections
import random
import threading
from typing import Any, NamedTuple

from torch import Tensor

from torchbeast.core.types import AgentOutput, EnvOutput


class ReplayConfig(NamedTuple):
    """How often rollouts are learned from again."""

    replay_ratio: float = 0.0
    """Replayed rollouts for each new one; 0 for no replay."""

    replay_size: int = 500
    """The newest rollouts, this many, are kept."""


class KeptRollouts(NamedTuple):
    """Rollouts as :meth:`Learner.learn` takes them, leaves ``[T + 1, B, ...]``."""

    env: EnvOutput
    actor: AgentOutput
    initial_state: tuple[Tensor, ...]


class Replay:
    """The newest rollouts, from which some are drawn for every new one; thread-safe.

    They are kept in the groups in which threads learned from them, on the learner's device, and
    are not saved: a resumed run begins without any.
    """

    def __init__(self, config: ReplayConfig) -> None:
        """Keeps nothing yet."""
        self._config = config
        self._groups: collections.deque[KeptRollouts] = collections.deque()
        self._num_rollouts = 0
        self._owed = 0.0
        self._lock = threading.Lock()
        # Not torch's, which the inference threads use: synchronous runs are repeatable.
        self._random = random.Random(0)

    def draw(self, num_new: int) -> list[KeptRollouts]:
        """Draws what is to be learned from again beside ``num_new`` new rollouts.

        On average these are ``replay_ratio * num_new`` rollouts. None before any were kept.
        """
        with self._lock:
            if not self._groups:
                return []
            drawn = []
            self._owed += self._config.replay_ratio * num_new
            while self._owed >= num_new:
                group = self._random.choice(self._groups)
                drawn.append(group)
                self._owed -= group.env.done.shape[1]
            return drawn

    def keep(self, env: EnvOutput, actor: AgentOutput, initial_state: Any) -> None:
        """Keeps copies of rollouts; the oldest make room for them."""
        if not self._config.replay_ratio:
            return
        group = KeptRollouts(
            EnvOutput(*(field.clone() for field in env)),
            AgentOutput(*(field.clone() for field in actor)),
            tuple(field.clone() for field in initial_state),
        )
        with self._lock:
            self._groups.append(group)
            self._num_rollouts += env.done.shape[1]
            while self._num_rollouts > self._config.replay_size and len(self._groups) > 1:
                self._num_rollouts -= self._groups.popleft().env.done.shape[1]

    def clear(self) -> None:
        """Drops all rollouts."""
        with self._lock:
            self._groups.clear()
            self._num_rollouts = 0
