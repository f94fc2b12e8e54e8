"""An environment that costs nothing, for tests and benchmarks of everything around it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Mock(gymnasium.Env):
    """Constant frames; an episode of 1000 steps with a reward of 1 each.

    Observations are uint8 ``[4, 84, 84]``, 4 actions.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(4)
        self._frame = np.full((4, 84, 84), 7, np.uint8)
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
        return self._frame, 1.0, self._step >= 1000, False, {}
