import time

import pytest

from torchbeast.runtime.watchdog import Watchdog
from torchbeast.runtime.workers import fork_context


class Env:
    name = "env"

    def __init__(self, watchdog):
        self.watchdog = watchdog
        self.seen = []

    def _see(self):
        self.seen.append(self.watchdog.is_hung(1))

    def step(self, action):
        time.sleep(0.1)
        self._see()
        return action

    def reset(self, *, seed=None):
        time.sleep(0.1)
        self._see()
        return seed

    def close(self):
        time.sleep(0.1)
        self._see()


@pytest.mark.parametrize("timeout_s", [0.05, 60])
def test_calls_that_last_are_seen_from_outside(timeout_s):
    watchdog = Watchdog(fork_context(), 2, timeout_s)
    env = Env(watchdog)
    watched = watchdog.watch(1, env)
    assert watched.name == "env"
    assert watched.step(3) == 3
    assert watched.reset(seed=4) == 4
    watched.close()
    with watchdog.inside(1):
        time.sleep(0.1)
        env._see()
    assert env.seen == [timeout_s < 1] * 4
    assert not watchdog.is_hung(0)
    assert not watchdog.is_hung(1)


def test_time_in_which_the_watching_process_was_stopped_does_not_count(monkeypatch):
    watchdog = Watchdog(fork_context(), 1, timeout_s=30.0)
    now = time.monotonic()
    with watchdog.inside(0):
        for seconds, is_hung in ((1000, False), (1015, False), (1029, False), (1031, True)):
            monkeypatch.setattr(time, "monotonic", lambda s=seconds: now + s)
            assert watchdog.is_hung(0) is is_hung


def test_what_raises_is_not_hung():
    watchdog = Watchdog(fork_context(), 1, timeout_s=0.0)
    watched = watchdog.watch(0, Env(watchdog))
    with pytest.raises(TypeError):
        watched.reset(other=1)
    assert not watchdog.is_hung(0)
    with pytest.raises(ZeroDivisionError), watchdog.inside(0):
        raise ZeroDivisionError
    assert not watchdog.is_hung(0)
