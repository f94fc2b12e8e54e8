"""A small environment that cannot be solved from one picture, nor without looking ahead."""

import gymnasium
import numpy as np

SIZE, CELL = 36, 4
EPISODE_STEPS = 3


class MovingTarget(gymnasium.Env):
    """A block moves left or right; the agent names the direction and is paid a step later.

    Observations are the last two pictures, uint8 ``[2, 36, 36]``: either one alone says nothing.
    Actions 0 (left), 1 (right), 2 (neither: never right). A right answer pays 1, a wrong one -1.
    Episodes of 3 steps. Only the second answer is paid, with the last step: chance is -1/3, a
    perfect score 1. A learner that meets rewards a row too late credits them to the next episode;
    and the second observation is the first whose older plane the actor pool has restacked.
    """

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 255, (2, SIZE, SIZE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)

    def _draw(self):
        self._stack[0] = self._stack[1]
        self._stack[1] = 0
        self._stack[1, 16 : 16 + CELL, self._place * CELL : (self._place + 1) * CELL] = 255
        return self._stack.copy()

    def _move(self):
        cells = SIZE // CELL
        self._direction = int(self.np_random.integers(2))
        self._place = (self._place + 2 * self._direction - 1) % cells

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._stack = np.zeros((2, SIZE, SIZE), np.uint8)
        self._place = int(self.np_random.integers(SIZE // CELL))
        self._draw()
        self._move()
        self._owed, self._step = 0.0, 0
        return self._draw(), {}

    def step(self, action):
        reward, self._owed = self._owed, 0.0
        self._step += 1
        if self._step == 2:
            self._owed = 1.0 if action == self._direction else -1.0
        self._move()
        return self._draw(), reward, self._step == EPISODE_STEPS, False, {}


gymnasium.register("MovingTarget-v0", MovingTarget)
