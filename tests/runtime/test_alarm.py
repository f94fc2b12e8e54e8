import signal
import time

import pytest

from torchbeast.runtime.alarm import Watched, alarm, describe_end, set_alarm
from torchbeast.runtime.workers import begin_worker, fork_context


class Env:
    name = "env"

    def step(self, action):
        time.sleep(0.6)
        return action

    def reset(self, *, seed=None):
        time.sleep(0.6)
        return seed

    def close(self):
        time.sleep(0.6)


def step(timeout_s):
    Watched(Env(), timeout_s).step(3)


def reset(timeout_s):
    Watched(Env(), timeout_s).reset(seed=4)


def close(timeout_s):
    Watched(Env(), timeout_s).close()


def work_in_parts(timeout_s):
    """Longer than the timeout, but no part of it is."""
    with alarm(timeout_s):
        for _ in range(5):
            time.sleep(timeout_s / 4)
            set_alarm(timeout_s)


def fail(timeout_s):
    """What raises does not hang."""
    with pytest.raises(ZeroDivisionError), alarm(timeout_s):
        raise ZeroDivisionError
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def run(function, timeout_s):
    begin_worker()
    function(timeout_s)


@pytest.mark.parametrize(
    ("function", "timeout_s", "ends"),
    [
        (step, 0.1, True),
        (reset, 0.1, True),
        (close, 0.1, True),
        (step, 2**62, False),
        (work_in_parts, 1.0, False),
        (fail, 1.0, False),
    ],
)
def test_a_call_that_lasts_too_long_ends_its_process(function, timeout_s, ends):
    process = fork_context().Process(target=run, args=(function, timeout_s))
    process.start()
    process.join()
    assert process.exitcode == (-signal.SIGALRM if ends else 0)
    assert ("hung" in describe_end(process.exitcode, timeout_s)) is ends


def test_a_watched_environment_is_used_as_the_environment():
    env = Watched(Env(), 60)
    assert (env.step(3), env.reset(seed=4), env.name) == (3, 4, "env")
