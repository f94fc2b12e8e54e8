"""A small environment that cannot be solved without memory."""

import gymnasium
import numpy as np

SIZE = 36
WAIT = 4


class Recall(gymnasium.Env):
    """A cue is shown once; a few steps later the agent is asked for it.

    Observations are the last two pictures, uint8 ``[2, 36, 36]``: a block on the left or on the
    right, then nothing for ``WAIT`` steps, then a bar that asks. Actions 0 (left), 1 (right), 2
    (wait). The right answer pays 1, everything else -1. Each answer before the question costs 0.5,
    so that it does not pay to use the last action as a memory. Without memory there is no more than
    0 to be had on average, with it 1.
    """

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 255, (2, SIZE, SIZE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)

    def _show(self, *block):
        self._stack[0] = self._stack[1]
        self._stack[1] = 0
        self._stack[1][block] = 255
        return self._stack.copy()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._stack = np.zeros((2, SIZE, SIZE), np.uint8)
        self._cue = int(self.np_random.integers(2))
        self._step = 0
        left = 4 + 20 * self._cue
        return self._show(slice(12, 20), slice(left, left + 8)), {}

    def step(self, action):
        self._step += 1
        if self._step > WAIT + 1:
            return self._show(slice(0, 0)), 1.0 if action == self._cue else -1.0, True, False, {}
        asked = self._step > WAIT
        picture = self._show(slice(28, 32) if asked else slice(0, 0))
        return picture, 0.0 if action == 2 else -0.5, False, False, {}


gymnasium.register("Recall-v0", Recall)
