import multiprocessing

import psutil
import pytest

from tests.processes import all_end
from tests.runtime.tasks import start_and_be_killed
from torchbeast.core.types import RunError
from torchbeast.runtime import workers


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(workers.time, "monotonic", lambda: now[0])
    return now


def live(restarts, clock, seconds, hung_s=0.0):
    generation = restarts.note_start(1)
    clock[0] += seconds
    restarts.note_end(1, "died (exit code -9)", hung_s)
    return generation


def test_a_worker_whose_parent_died_before_it_began_ends():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    parent = context.Process(target=start_and_be_killed, args=(theirs,))
    parent.start()
    worker = psutil.Process(ours.recv())
    parent.join()
    all_end([worker], timeout=60)


def test_a_long_life_makes_up_for_quick_deaths(clock):
    restarts = workers.Restarts("actor", 2)
    for _ in range(3):
        for seconds in (1, 1, 1, 1, 11):
            live(restarts, clock, seconds)


def test_time_in_which_a_worker_hung_is_no_life(clock):
    restarts = workers.Restarts("actor", 2)
    for _ in range(4):
        live(restarts, clock, 61, hung_s=60)
    with pytest.raises(RunError):
        live(restarts, clock, 61, hung_s=60)


def test_failures_are_forgiven_and_forgotten_until_there_are_too_many_in_a_time(clock, caplog):
    budget = workers.FailureBudget(3, 600)
    for _ in range(3):  # Two within ten minutes, again and again.
        for pause in (1, 600):
            budget.note("actor 1 (Pong)", "Traceback:\nValueError: no")
            clock[0] += pause
    assert caplog.messages[1] == (
        "actor 1 (Pong) failed, restarting it (2 of 3 failures within 600 s):\n"
        "Traceback:\nValueError: no"
    )
    clock[0] += 1
    for _ in range(2):
        budget.note("actor 1 (Pong)", "Traceback:\nValueError: no")
    with pytest.raises(RunError, match=r"^actor 1 \(Pong\) failed 3 times within 600 s: Value"):
        budget.note("actor 1 (Pong)", "Traceback:\nValueError: no")
    assert caplog.messages[-1] == "actor 1 (Pong) failed:\nTraceback:\nValueError: no"
