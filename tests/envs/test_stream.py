"""Rows of a scripted environment: from EnvStream, and from the C++ server and actor pool."""

import re

import gymnasium
import numpy as np
import pytest
import torch

from libtorchbeast import Server
from tests.libtorchbeast.pools import Pool
from tests.threads import start
from torchbeast.core.types import EnvOutput, EnvStep
from torchbeast.envs import EnvStream

# (reward, terminated, truncated, info) of each step; repeated.
SCRIPT = [
    (1.0, False, False, {}),
    (0.1, True, False, {"game_over": False}),  # A life is lost.
    (-2.5, False, False, {}),
    (3.0, True, False, {"game_over": True}),
    (1e-3, False, True, {}),  # A time limit; the game is over where nothing else is said.
    (4.0, False, False, {}),
    (5.0, True, True, {}),  # Both at once: a terminal state.
    (6.0, False, True, {"game_over": False}),
    (7.0, True, False, {"game_over": None}),  # Nothing is said.
]
NUM_STEPS = 2 * len(SCRIPT) + 3


class Scripted(gymnasium.Env):
    """Plays SCRIPT. A frame counts what happened to the environment, resets included."""

    def __init__(self):
        self._events = self._steps = 0

    def _observe(self):
        self._events += 1
        return np.array([self._events], np.uint8)

    def reset(self, **_):
        return self._observe(), {}

    def step(self, action):
        reward, terminated, truncated, info = SCRIPT[self._steps % len(SCRIPT)]
        self._steps += 1
        return self._observe(), reward + action, terminated, truncated, info


def rows_of_stream(actions, task):
    stream = EnvStream(Scripted(), task)
    return [stream.initial(), *map(stream.step, actions)]


def test_rows_of_a_scripted_environment():
    rows = rows_of_stream([0] * (len(SCRIPT) + 2), task=3)
    assert [row.task for row in rows] == [3] * len(rows)
    assert [row.reward for row in rows] == pytest.approx(
        [0, 1, 0.1, -2.5, 3, 1e-3, 0, 4, 5, 6, 0, 7]
    )
    assert [row.done for row in rows] == [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1]
    assert [row.game_over for row in rows] == [1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1]
    assert [row.truncated for row in rows] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    assert [row.episode_step for row in rows] == [0, 1, 2, 3, 4, 1, 1, 1, 2, 1, 1, 2]
    returns = [0, 1, 1.1, -1.4, 1.6, 1e-3, 1e-3, 4, 9, 6, 6, 13]
    assert [row.episode_return for row in rows] == pytest.approx(returns)
    # A terminal observation is followed by that of the reset, which is the row's; after a time
    # limit each has a row.
    assert [int(row.frame[0]) for row in rows] == [1, 2, 4, 5, 7, 8, 9, 10, 12, 13, 14, 16]


def test_a_server_yields_the_same_rows(tmp_path):
    address = f"unix:{tmp_path}/server"
    server = Server(Scripted, address, 2)
    thread, _ = start(server.run)
    with Pool([address], unroll_length=NUM_STEPS) as pool:
        (env_output, _), _ = next(pool.queue)
    server.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
    expected = rows_of_stream(range(1, NUM_STEPS + 1), task=2)  # The pool's actions count.
    found = EnvOutput(*env_output)
    for name, values in zip(EnvStep._fields, zip(*expected, strict=True), strict=True):
        column = getattr(found, name)[:, 0]
        wanted = torch.as_tensor(np.stack(values), dtype=column.dtype)
        # The pool marks no start of an episode where a stream starts: the learner leaves that row's
        # flags out, and the recurrent state is the initial one.
        first = 1 if name in ("done", "game_over") else 0
        assert torch.equal(column[first:], wanted[first:]), name


@pytest.mark.parametrize(
    ("reward", "truncated", "message"),
    [
        (float("nan"), False, "its reward is"),
        (2e38, False, "its return is"),
        (0.0, 0, "returned 0 for `truncated`, which is no bool"),
        (0.0, np.int64(1), "returned 1 for `truncated`, which is no bool"),
    ],
)
def test_what_a_step_must_not_return_is_an_error(reward, truncated, message):
    env = Scripted()
    env.step = lambda action: (env._observe(), reward, False, truncated, {})
    stream = EnvStream(env, task=0)
    stream.initial()
    with pytest.raises(ValueError, match=message):
        [stream.step(0) for _ in range(2)]


def test_an_observation_that_is_not_finite_is_an_error():
    env = Scripted()
    env.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    env.reset = lambda **_: (np.array([0, np.nan], np.float32), {})
    with pytest.raises(ValueError, match="its observation is not finite"):
        EnvStream(env, task=0).initial()


class Pictures(gymnasium.Env):
    """Shows what it is given: first in ``reset``, then in ``step``."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 2, 3), np.uint8)

    def __init__(self, first, second):
        self._first, self._second = first, second

    def reset(self, **_):
        return self._first, {}

    def step(self, action):
        return self._second, 0.0, False, False, {}


PICTURE = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)


@pytest.mark.parametrize(
    ("picture", "found"),
    [
        (PICTURE.astype(np.float32), "float32[1, 2, 3]"),
        (PICTURE[:, :1], "uint8[1, 1, 3]"),  # Would be repeated in both rows.
    ],
)
def test_an_observation_that_its_space_does_not_have_is_an_error(picture, found):
    message = re.escape(f"its observation is {found}, its observation_space says uint8[1, 2, 3]")
    with pytest.raises(ValueError, match=f"^{message}$"):
        EnvStream(Pictures(picture, PICTURE), task=0).initial()
    stream = EnvStream(Pictures(PICTURE, picture), task=0)
    stream.initial()
    with pytest.raises(ValueError, match=f"^{message}$"):
        stream.step(0)


def test_a_mirrored_observation_is_what_it_shows():
    stream = EnvStream(Pictures(PICTURE[..., ::-1], PICTURE[:, ::-1]), task=0)
    for row, expected in (
        (stream.initial(), [2, 1, 0, 5, 4, 3]),
        (stream.step(0), [3, 4, 5, 0, 1, 2]),
    ):
        assert torch.from_numpy(row.frame).flatten().tolist() == expected
