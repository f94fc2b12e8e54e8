from types import SimpleNamespace

import pytest

from torchbeast.records.progress import (
    USUAL_INTERVALS,
    Arrivals,
    EvaluatedReturns,
    Progress,
)

QUEUES = {"learner": 1, "inference": 0}


@pytest.fixture
def clock():
    """Time that passes when the test says so."""
    return SimpleNamespace(now=1000.0)


@pytest.fixture
def make(clock):
    def run(total=100, human_normalized=lambda task, value: None):
        return Progress(["Pong", "Breakout"], total, human_normalized, lambda: clock.now)

    return run


def test_nothing_is_said_about_games_that_have_not_finished(make, make_stats):
    progress = make()
    progress.record(make_stats(20, 1.0, 3.0))
    pong, breakout = progress.snapshot(QUEUES).games
    assert (pong.mean_return, pong.std_return, pong.games, pong.steps) == (2.0, 1.0, 2, 20)
    assert (breakout.mean_return, breakout.std_return, breakout.games) == (None, None, 0)


def test_the_speed_is_that_of_the_last_minutes(make, make_stats, clock):
    progress = make(total=1_000_000)
    for second in range(1000):
        clock.now += 1
        progress.record(make_stats(second if second < 500 else 500 + (second - 500) * 10))
        snapshot = progress.snapshot(QUEUES)
    assert snapshot.sps == pytest.approx(10.0)
    assert snapshot.seconds == 1000
    assert snapshot.seconds_left == pytest.approx((1_000_000 - 5490) / 10)


def test_the_gradient_of_each_game_is_kept_from_when_it_was_measured(make, make_stats):
    progress = make()
    entropies = {0: 1.5, 1: 1.0}, {1: 0.5}
    progress.record(make_stats(20, task_grad_norms={0: 3.0, 1: 4.0}, task_entropies=entropies[0]))
    progress.record(make_stats(40, task_grad_norms={1: 5.0}, task_entropies=entropies[1]))
    progress.record(make_stats(60))
    assert [game.grad_norm for game in progress.snapshot(QUEUES).games] == [3.0, 5.0]
    assert [game.entropy for game in progress.snapshot(QUEUES).games] == [1.5, 0.5]


def test_scores_are_compared_with_human_play_where_that_is_known(make, make_stats):
    progress = make(human_normalized=lambda task, value: value / 10 if task == 0 else None)
    progress.record(make_stats(20, 2.0))
    progress.evaluated(EvaluatedReturns(step=10, returns=(5.0, 7.0)))
    snapshot = progress.snapshot(QUEUES)
    assert [game.human for game in snapshot.games] == [0.2, None]
    assert [game.evaluated for game in snapshot.games] == [5.0, 7.0]
    assert [game.evaluated_human for game in snapshot.games] == [0.5, None]
    assert (snapshot.median_human, snapshot.median_evaluated_human) == (0.2, 0.5)
    assert snapshot.evaluation_step == 10


def test_a_game_that_hangs_is_named_once(make, make_stats, clock):
    progress = make()
    progress.record(make_stats(20, task_steps=[10, 10]))
    for second in range(1, 200):
        clock.now += 1
        progress.record(make_stats(20 + 10 * second, task_steps=[10, 0]))
        said = progress.warnings()
        assert bool(said) == (second == 60)
        if said:
            assert said == [
                "No steps of Breakout for 1m00s while other games go on: its environments may hang"
            ]
    assert [game.silent_s for game in progress.snapshot(QUEUES).games] == [None, 199.0]


def test_a_resumed_run_continues_its_counts(make, make_stats):
    first = make()
    first.record(make_stats(20, 1.0, 3.0))
    second = make()
    second.load_state_dict({**first.state_dict(), "seconds": 1000.0}, [20, 0])
    assert second.snapshot(QUEUES).steps == 20
    second.record(make_stats(40, 5.0))
    snapshot = second.snapshot(QUEUES)
    pong = snapshot.games[0]
    assert (pong.games, pong.mean_return, pong.steps) == (3, 3.0, 40)
    assert snapshot.seconds == 1000.0
    assert second.summary() == [
        "Pong: mean return 3.00 over the last 3 full games",
        "No game finished: Breakout",
    ]


def run(arrivals, batches, start=0.0, interval=1.0):
    """Records a batch per ``interval`` seconds; returns the time of the last."""
    now = start
    for task_steps in batches:
        now += interval
        arrivals.record(task_steps, now)
    return now


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
