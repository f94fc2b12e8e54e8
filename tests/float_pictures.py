"""An environment whose pictures are fractions, not bytes."""

import gymnasium
import numpy as np


class FloatPictures(gymnasium.Env):
    """Pictures float32 ``[1, 36, 36]`` from 0 to 1."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1, 36, 36), np.float32)
    action_space = gymnasium.spaces.Discrete(2)


gymnasium.register("FloatPictures-v0", FloatPictures)
