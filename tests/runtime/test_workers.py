import pytest

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


def test_a_worker_is_replaced_until_it_keeps_dying_of_its_start(clock, capsys):
    restarts = workers.Restarts("program", "actor", 2)
    assert [live(restarts, clock, 1) for _ in range(4)] == [0, 1, 2, 3]
    assert capsys.readouterr().err.count("program: actor 1 died (exit code -9), restarting") == 4
    with pytest.raises(
        RunError, match=r"actor 1 died \(exit code -9\), 5 times right after its start"
    ):
        live(restarts, clock, 1)


def test_a_long_life_makes_up_for_quick_deaths(clock):
    restarts = workers.Restarts("program", "actor", 2)
    for _ in range(3):
        for seconds in (1, 1, 1, 1, 11):
            live(restarts, clock, seconds)


def test_time_in_which_a_worker_hung_is_no_life(clock):
    restarts = workers.Restarts("program", "actor", 2)
    for _ in range(4):
        live(restarts, clock, 61, hung_s=60)
    with pytest.raises(RunError):
        live(restarts, clock, 61, hung_s=60)
