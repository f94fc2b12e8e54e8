"""Games that are hard to evaluate: ``tests.odd_games:Endless-v0`` and others, for Gymnasium."""

import random
import time
from typing import ClassVar

import gymnasium
import numpy as np


class Endless(gymnasium.Env):
    """Each step pays 1. With ``life_steps`` a life, never a game, ends every so many steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, life_steps=0):
        self._life_steps = life_steps
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros((1, 36, 36), np.uint8), {}

    def step(self, action):
        self._steps += 1
        is_dead = self._life_steps > 0 and self._steps % self._life_steps == 0
        return np.zeros((1, 36, 36), np.uint8), 1.0, is_dead, False, {"game_over": False}


class Undeclared(Endless):
    """Returns larger observations than it declares."""

    def reset(self, *, seed=None, options=None):
        return np.zeros((1, 40, 36), np.uint8), {}


class Deep(Endless):
    """Twelve channels, in the last axis."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 40, 12), np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.zeros((36, 40, 12), np.uint8), {}


class Nested(Endless):
    """Has observations that are no picture."""

    observation_space = gymnasium.spaces.Dict({"picture": Endless.observation_space})

    def reset(self, *, seed=None, options=None):
        return {"picture": super().reset()[0]}, {}


class Fractions(Endless):
    """Has pictures of fractions, not bytes."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1, 36, 36), np.float32)


class Hangs(Endless):
    """Hangs in its first step."""

    def step(self, action):
        time.sleep(1e6)


class Slow(Endless):
    """Takes its time for each of its eight steps."""

    def step(self, action):
        time.sleep(0.3)
        frame, reward, *_ = super().step(action)
        return frame, reward, self._steps % 8 == 0, False, {}


class Unequal(Endless):
    """Games of 5 steps, but of 50 in an environment with seed 0."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._length = 50 if seed == 0 else 5
        return super().reset()

    def step(self, action):
        frame, reward, *_ = super().step(action)
        return frame, reward, self._steps % self._length == 0, False, {}


class Canvas(Endless):
    """Games of 9 steps with random rewards. Draws into one buffer, and forgets its render mode."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, render_mode=None):
        super().__init__()
        self._canvas = np.zeros((32, 32, 3), np.uint8)

    def step(self, action):
        self._canvas += 1
        frame, *_ = super().step(action)
        return frame, random.random() + np.random.random(), self._steps % 9 == 0, False, {}

    def render(self):
        return self._canvas


gymnasium.register("Endless-v0", Endless)
gymnasium.register("Canvas-v0", Canvas)
gymnasium.register("ManyLives-v0", Endless, kwargs={"life_steps": 7})
gymnasium.register("Limited-v0", Endless, max_episode_steps=30)
gymnasium.register("Undeclared-v0", Undeclared)
gymnasium.register("Deep-v0", Deep)
gymnasium.register("Nested-v0", Nested)
gymnasium.register("Fractions-v0", Fractions)
gymnasium.register("Hangs-v0", Hangs)
gymnasium.register("Slow-v0", Slow)
gymnasium.register("Unequal-v0", Unequal)
