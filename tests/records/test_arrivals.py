import pytest

from torchbeast.records.progress import SHOWN_AFTER_S, USUAL_INTERVALS, WARNED_AFTER_S, Arrivals


def run(arrivals, batches, start=0.0, interval=1.0):
    """Records a batch per ``interval`` seconds; returns the time of the last."""
    now = start
    for task_steps in batches:
        now += interval
        arrivals.record(task_steps, now)
    return now


def test_games_that_take_turns_are_not_silent():
    arrivals = Arrivals(2)
    now = run(arrivals, [[10, 0], [0, 10]] * 100)
    assert [arrivals.silence(task, now) for task in (0, 1)] == [None, None]
    assert arrivals.newly_silent(now) == {}


def test_a_silence_is_shown_before_it_is_warned_about():
    arrivals = Arrivals(2)
    now = run(arrivals, [[10, 10]])
    now = run(arrivals, [[10, 0]] * int(SHOWN_AFTER_S), now)
    assert arrivals.silence(1, now) == SHOWN_AFTER_S
    assert arrivals.silence(0, now) is None
    assert arrivals.newly_silent(now) == {}
    now = run(arrivals, [[10, 0]] * int(WARNED_AFTER_S - SHOWN_AFTER_S), now)
    assert arrivals.newly_silent(now) == {1: WARNED_AFTER_S}


def test_a_game_that_never_sent_anything_is_found():
    arrivals = Arrivals(2)
    now = run(arrivals, [[10, 0]] * 200)
    assert arrivals.newly_silent(now) == {1: 199.0}


def test_many_games_with_a_slow_network_are_not_silent():
    # A batch of one game every two seconds: each game waits for two minutes between its turns.
    arrivals = Arrivals(62)
    turns = [[10 * (task == turn) for task in range(62)] for turn in range(62)]
    now = 0.0
    for _ in range(3):
        for turn in turns:
            now = run(arrivals, [turn], now, interval=2.0)
            assert arrivals.newly_silent(now) == {}
    # One hangs: that many rounds later it is named.
    turns[7] = turns[8]
    for _ in range(USUAL_INTERVALS + 1):
        now = run(arrivals, turns, now, interval=2.0)
    assert list(arrivals.newly_silent(now)) == [7]


def test_when_the_whole_run_waits_no_game_is_at_fault():
    arrivals = Arrivals(2)
    now = run(arrivals, [[10, 10]] * 10) + 1000.0
    assert arrivals.newly_silent(now) == {}
    assert arrivals.stall(now) == 1000.0
    assert arrivals.newly_stalled(now) == 1000.0
    assert arrivals.newly_stalled(now + 1000.0) is None
    now = run(arrivals, [[10, 10]], now)
    assert arrivals.stall(now) is None
    assert arrivals.newly_stalled(now + 1000.0) == 1000.0


@pytest.mark.parametrize("now", [0.0, 1e6])
def test_before_the_first_batch_nothing_is_silent(now):
    arrivals = Arrivals(1)
    assert arrivals.silence(0, now) is None
    assert arrivals.stall(now) is None
    assert arrivals.newly_silent(now) == {}
