import gymnasium
import numpy as np
import pytest

from torchbeast.envs import DEFAULT_OBSERVATION, make_env, measure_frames, measure_returns

PONG, INVADERS = "PongNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4"
OPTIONS = {"full_action_space": True, "seed": 0}


class PaysLate(gymnasium.Env):
    """Pays 0, then 10, and ends; or never pays anything."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, payment=10.0):
        self._payment = payment

    def reset(self, *, seed=None, options=None):
        self._step = 0
        return np.zeros((1, 8, 8), np.uint8), {}

    def step(self, action):
        self._step += 1
        last = self._step == 2
        return np.zeros((1, 8, 8), np.uint8), self._payment * last, last, False, {}


@pytest.fixture
def pays_late():
    gymnasium.register("PaysLate-v0", PaysLate)
    gymnasium.register("PaysNothing-v0", PaysLate, kwargs={"payment": 0.0})
    yield
    del gymnasium.registry["PaysLate-v0"], gymnasium.registry["PaysNothing-v0"]


def test_each_game_is_measured_by_itself():
    mean, std = measure_frames((PONG, INVADERS), DEFAULT_OBSERVATION, **OPTIONS)
    assert mean.shape == (2, 4, 84, 84)
    for game, env_id in enumerate((PONG, INVADERS)):
        alone, alone_std = measure_frames((env_id,), DEFAULT_OBSERVATION, **OPTIONS)
        np.testing.assert_array_equal(mean[game], alone[0])
        assert std[game] == alone_std[0]


def test_what_always_stands_still_is_in_the_mean_picture():
    mean, std = measure_frames((PONG,), DEFAULT_OBSERVATION, **OPTIONS)
    env = make_env(PONG, **DEFAULT_OBSERVATION._asdict(), full_action_space=False, seed=2)
    env.reset()
    for _ in range(150):
        frame = env.step(0)[0]
    moving = np.abs(frame - mean[0]) > 3 * std[0]
    assert 0 < moving.mean() < 0.05  # Ball, paddles and score.


def test_returns_are_discounted_within_episodes(pays_late):
    options = {**OPTIONS, "discounting": 0.5}
    envs = ("torchbeast.envs.mock:PaysLate-v0", "torchbeast.envs.mock:PaysNothing-v0")
    late, nothing = measure_returns(envs, DEFAULT_OBSERVATION, **options, clip_rewards=False)
    # Returns of the two steps: 0.5 * 10 and 10.
    assert late == (7.5, 2.5)
    assert nothing == (0.0, 1.0)
    clipped, _ = measure_returns(envs, DEFAULT_OBSERVATION, **options, clip_rewards=True)
    assert clipped == (0.75, 0.25)


def test_games_that_pay_differently_have_different_returns():
    (pong_mean, pong_std), (invaders_mean, invaders_std) = measure_returns(
        (PONG, INVADERS), DEFAULT_OBSERVATION, **OPTIONS, discounting=0.99, clip_rewards=False
    )
    assert -5 < pong_mean < 0 < pong_std < 2
    assert invaders_mean > 5
    assert invaders_std > 5
