"""An environment for tools/soak.py that raises and hangs now and then: ``tests.faulty:Faulty-v0``.

SOAK_DIRECTORY names a directory in which each environment counts its steps. SOAK_RAISE_S and
SOAK_HANG_S are the mean times in seconds between the faults of one environment.
"""

import mmap
import os
import random
import struct
import tempfile
import time

import gymnasium
import numpy as np

EPISODE_STEPS = 200


class Faulty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self):
        handle, _ = tempfile.mkstemp(prefix="steps-", dir=os.environ["SOAK_DIRECTORY"])
        os.write(handle, bytes(8))
        # In shared memory: the count survives the process.
        self._count = mmap.mmap(handle, 8)
        os.close(handle)
        now = time.monotonic()
        self._raise_at = now + random.expovariate(1 / float(os.environ["SOAK_RAISE_S"]))
        self._hang_at = now + random.expovariate(1 / float(os.environ["SOAK_HANG_S"]))
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        return self._observe(), {}

    def step(self, action):
        now = time.monotonic()
        if now > self._raise_at:
            raise RuntimeError("an environment raises now and then")
        if now > self._hang_at:
            time.sleep(1e6)
        self._steps += 1
        self._count[:] = struct.pack("q", self._steps)
        ends = self._steps % EPISODE_STEPS == 0
        return self._observe(), float(action == 0), ends, False, {}

    def _observe(self):
        return np.full((4, 84, 84), self._steps % 256, np.uint8)

    def close(self):
        self._count.close()


gymnasium.register("Faulty-v0", Faulty)
