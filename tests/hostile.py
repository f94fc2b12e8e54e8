"""Environments that misbehave, registered with Gymnasium: ``tests.hostile:Exits-v0`` and others."""

import asyncio
import ctypes
import multiprocessing
import os
import random
import signal
import sys
import time

import gymnasium
import numpy as np

# How long a process lives that LeavesAProcess leaves.
LEFT_PROCESS_S = 60


class Hostile(gymnasium.Env):
    """Misbehaves at its third step."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, misbehave):
        self._misbehave = misbehave
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros((1, 8, 8), np.uint8), {}

    def step(self, action):
        self._steps += 1
        if self._steps == 3:
            self._misbehave()
        return np.zeros((1, 8, 8), np.uint8), 0.0, False, False, {}


def fail(error=ZeroDivisionError):
    raise error("the third step")


def hang_once():
    """Hangs with Python's lock held, unless the file exists that HANG_ONCE names. Makes it."""
    path = os.environ["HANG_ONCE"]
    if not os.path.exists(path):
        open(path, "x").close()
        ctypes.PyDLL(None).pause()


class HangsOnce(Hostile):
    """Hangs at its third step, once; if it is closed after a step it makes the file that CLOSED
    names.
    """

    def __init__(self):
        super().__init__(hang_once)

    def close(self):
        if self._steps > 0:
            open(os.environ["CLOSED"], "w").close()


class HangsWhenMade(Hostile):
    """Makes the file that HANGING names, and hangs with Python's lock held."""

    def __init__(self):
        open(os.environ["HANGING"], "w").close()
        ctypes.PyDLL(None).pause()


def hang_again():
    """Hangs with Python's lock held if the file exists that MADE names. Else makes it."""
    path = os.environ["MADE"]
    if os.path.exists(path):
        ctypes.PyDLL(None).pause()
    open(path, "x").close()


class HangsWhenMadeAgain(Hostile):
    """Hangs when it is made, but for the first time."""

    def __init__(self):
        super().__init__(fail)
        hang_again()


class StartsAProcess(gymnasium.Env):
    """Needs a process of its own, which daemons may not have."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        child = multiprocessing.get_context("fork").Process(target=os.getpid)
        child.start()
        child.join()

    def reset(self, **_):
        return np.zeros((1, 8, 8), np.uint8), {}

    def step(self, _):
        return np.zeros((1, 8, 8), np.uint8), 0.0, True, False, {}


class LeavesAProcess(StartsAProcess):
    """Is killed at its first step; a process that it started goes on for a while."""

    def __init__(self):
        sleep = {"target": time.sleep, "args": (LEFT_PROCESS_S,)}
        multiprocessing.get_context("fork").Process(**sleep).start()

    def step(self, _):
        os.kill(os.getpid(), signal.SIGKILL)


class ClosesItsPipe(StartsAProcess):
    """Closes all files of its process at its first step, and stays."""

    def __init__(self):
        pass

    def step(self, _):
        os.closerange(3, 256)
        time.sleep(LEFT_PROCESS_S)


class DrawsLevels(StartsAProcess):
    """Draws a level from the global generators, and is killed in its second rollout."""

    def __init__(self):
        draws = f"{np.random.random():.20f} {random.random():.20f}".encode()
        self._level = np.frombuffer(draws.ljust(64), np.uint8).reshape(1, 8, 8)
        self._steps = 0

    def reset(self, **_):
        return self._level, {}

    def step(self, _):
        self._steps += 1
        if self._steps > 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._level, 0.0, False, False, {}


for environment in (
    ClosesItsPipe,
    DrawsLevels,
    HangsOnce,
    HangsWhenMade,
    HangsWhenMadeAgain,
    LeavesAProcess,
    StartsAProcess,
):
    gymnasium.register(f"{environment.__name__}-v0", environment)
for name, misbehave in {
    "Exits-v0": lambda: sys.exit("bye"),
    "Crashes-v0": lambda: ctypes.string_at(0),
    "Raises-v0": fail,
    "Cancels-v0": lambda: fail(asyncio.CancelledError),
}.items():
    gymnasium.register(name, Hostile, kwargs={"misbehave": misbehave})
