import numpy as np
import pytest

from torchbeast.atari_wrappers import make_atari, wrap_deepmind, wrap_pytorch
from torchbeast.envs import make_env

PONG = "PongNoFrameskip-v4"


def play(env):
    frames = [env.reset(seed=1)[0]]
    frames += [env.step(action)[0] for action in range(6)]
    env.close()
    return np.stack(frames)


def test_the_call_of_2019_makes_the_same_game():
    old = wrap_pytorch(wrap_deepmind(make_atari(PONG), clip_rewards=False, frame_stack=True))
    assert np.array_equal(play(old), play(make_env(PONG)))


@pytest.mark.parametrize("options", [{}, {"clip_rewards": False}, {"frame_stack": True}])
def test_other_preprocessing_is_refused(options):
    env = make_atari(PONG)
    with pytest.raises(ValueError, match="clip_rewards=False, frame_stack=True"):
        wrap_deepmind(env, **options)
    env.close()
