"""An environment that costs nothing, for tests and benchmarks of everything around it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Mock(gymnasium.Env):
    """Constant frames; an episode of ``episode_length`` steps with a reward of 1 each.

    Observations are uint8 ``[4, 84, 84]``, 4 actions. ``truncate``: end episodes by truncation.
    """

    def __init__(self, episode_length: int = 1000, truncate: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._frame = np.full((4, 84, 84), 7, np.uint8)
        self._episode_length = episode_length
        self._truncate = truncate
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; see gymnasium.Env."""
        super().reset(seed=seed)
        self._step = 0
        return self._frame, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step, whose reward is 1; see gymnasium.Env."""
        self._step += 1
        over = self._step >= self._episode_length
        return self._frame, 1.0, over and not self._truncate, over and self._truncate, {}
