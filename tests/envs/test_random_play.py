import random

import gymnasium
import numpy as np
import pytest

from torchbeast.envs import DEFAULT_OBSERVATION, RandomPlayConfig, make_env, measure_games
from torchbeast.envs.random_play import measure_game

PONG, INVADERS = "PongNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4"
PLAY = RandomPlayConfig(
    DEFAULT_OBSERVATION, full_action_space=True, seed=0, discounting=0.99, clip_rewards=False
)


class PaysLate(gymnasium.Env):
    """Pays 0, then 10, and ends; or never pays anything. Its pictures are of one buffer.

    ``truncates``: what ends it is a limit.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, payment=10.0, truncates=False):
        self._payment = payment
        self._truncates = truncates
        self._frame = np.zeros((1, 8, 8), np.uint8)

    def reset(self, *, seed=None, options=None):
        self._step = 0
        return self._frame, {}

    def step(self, action):
        self._step += 1
        self._frame += 1
        last = self._step == 2
        terminated, truncated = last and not self._truncates, last and self._truncates
        return self._frame, self._payment * last, terminated, truncated, {}


class Draws(PaysLate):
    """Pays what Python's and NumPy's own generators draw."""

    def step(self, action):
        self._payment = random.random() + np.random.random()
        return super().step(action)


@pytest.fixture
def pays_late():
    variants = {
        "PaysLate": (PaysLate, {}),
        "PaysNothing": (PaysLate, {"payment": 0.0}),
        "Truncates": (PaysLate, {"truncates": True}),
        "Draws": (Draws, {}),
    }
    for name, (game, kwargs) in variants.items():
        # The checker would complain about the buffer.
        gymnasium.register(f"{name}-v0", game, kwargs=kwargs, disable_env_checker=True)
    yield
    for name in variants:
        del gymnasium.registry[f"{name}-v0"]


@pytest.fixture(scope="module")
def measured():
    return {game: measure_game(game, PLAY) for game in (PONG, INVADERS)}


def test_measuring_in_other_processes_changes_nothing(measured):
    found = measure_games(tuple(measured), PLAY, num_processes=2)
    for game, expected in zip(found, measured.values(), strict=True):
        np.testing.assert_array_equal(game.frame_mean, expected.frame_mean)
        assert game[1:] == expected[1:]


def test_a_game_of_the_global_generators_is_measured_the_same_again(pays_late):
    first, again = (measure_game("torchbeast.envs.mock:Draws-v0", PLAY) for _ in range(2))
    assert first[1:] == again[1:]


def test_what_always_stands_still_is_in_the_mean_picture(measured):
    mean, std, *_ = measured[PONG]
    assert mean.shape == (4, 84, 84)
    assert mean.dtype == np.float32
    env = make_env(PONG, **DEFAULT_OBSERVATION._asdict(), full_action_space=False, seed=2)
    env.reset()
    for _ in range(150):
        frame = env.step(0)[0]
    env.close()
    moving = np.abs(frame - mean) > 3 * std
    assert 0 < moving.mean() < 0.05  # Ball, paddles and score.


def test_returns_are_discounted_within_episodes(pays_late):
    play = PLAY._replace(discounting=0.5)
    late = measure_game("torchbeast.envs.mock:PaysLate-v0", play)
    # Returns of the two steps: 0.5 * 10 and 10.
    assert late[2:] == (7.5, 2.5)
    assert measure_game("torchbeast.envs.mock:Truncates-v0", play)[2:] == (7.5, 2.5)
    clipped = measure_game("torchbeast.envs.mock:PaysLate-v0", play._replace(clip_rewards=True))
    assert clipped[2:] == (0.75, 0.25)
    nothing = measure_game("torchbeast.envs.mock:PaysNothing-v0", play)
    assert nothing[2:] == (0.0, 1.0)
