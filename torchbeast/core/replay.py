"""Rollouts that were learned from, kept to be learned from again.

V-trace corrects for the policy that acted, which is older here than in a new rollout. Schmitt et
al. 2019 (arXiv:1909.11583) show that this stays stable where every batch has new rollouts, too.
"""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchbeast.core.types import AgentOutput, EnvOutput


class ReplayConfig(NamedTuple):
    """How often rollouts are learned from again."""

    replay_ratio: float = 0.0
    """Replayed rollouts for each new one; 0 for no replay."""

    replay_size: int = 500
    """The newest rollouts, this many, are kept."""


class Rollouts(NamedTuple):
    """What a thread learns from at a time, leaves ``[T + 1, B, ...]``."""

    env: EnvOutput
    actor: AgentOutput
    initial_state: tuple[Tensor, ...]
    """The recurrent state before the first row, leaves ``[L, B, H]``."""

    @property
    def num_rollouts(self) -> int:
        """``B``."""
        return self.env.done.shape[1]


class Replay:
    """The newest rollouts, from which some are drawn for every new one; thread-safe.

    They are kept in the groups in which threads learned from them, on the learner's device, and
    are not saved: a resumed run begins without any.
    """

    def __init__(self, config: ReplayConfig) -> None:
        """Keeps nothing yet."""
        self._config = config
        self._groups: collections.deque[Rollouts] = collections.deque()
        self._num_kept = 0
        self._owed = 0.0
        self._lock = threading.Lock()
        # Not torch's, which the inference threads use: synchronous runs are repeatable.
        self._random = random.Random(0)

    def extend(self, new: Rollouts) -> Rollouts:
        """Returns new rollouts, and behind them those that are learned from again.

        On average these are ``replay_ratio`` for each new one. A copy of ``new`` is kept for later;
        the oldest rollouts make room for it.
        """
        if not self._config.replay_ratio:
            return new
        drawn = self._draw(new.num_rollouts)
        joined: Rollouts = join_rollouts([new, *drawn])
        self._keep(join_rollouts([new]))
        return joined

    def clear(self) -> None:
        """Drops all rollouts."""
        with self._lock:
            self._groups.clear()
            self._num_kept = 0

    def _draw(self, num_new: int) -> list[Rollouts]:
        """Draws groups; none before any were kept."""
        with self._lock:
            drawn: list[Rollouts] = []
            if self._groups:
                self._owed += self._config.replay_ratio * num_new
            while self._owed >= num_new and self._groups:
                drawn.append(self._random.choice(self._groups))
                self._owed -= drawn[-1].num_rollouts
            return drawn

    def _keep(self, group: Rollouts) -> None:
        with self._lock:
            self._groups.append(group)
            self._num_kept += group.num_rollouts
            while self._num_kept > self._config.replay_size and len(self._groups) > 1:
                self._num_kept -= self._groups.popleft().num_rollouts


def join_rollouts(groups: Sequence[Any]) -> Any:
    """Copies rollouts into one group: nested tuples of tensors ``[T + 1, B, ...]``, joined along
    ``B``.
    """
    first = groups[0]
    if isinstance(first, Tensor):
        return torch.cat(list(groups), dim=1)
    fields = [join_rollouts(parts) for parts in zip(*groups, strict=True)]
    return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)
