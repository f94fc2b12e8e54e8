from types import SimpleNamespace

import pytest

from torchbeast.records.progress import MIN_TREND_GAMES, WINDOW, Progress

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


def test_returns_are_those_of_the_last_games(make, make_stats):
    progress = make()
    progress.record(make_stats(20, 1000.0, *[1.0] * WINDOW))
    assert progress.snapshot(QUEUES).games[0].mean_return == 1.0
    assert len(progress.state_dict()["returns"][0]) == WINDOW


def test_the_trend_is_positive_where_newer_games_return_more(make, make_stats):
    progress = make()
    progress.record(make_stats(20, *range(MIN_TREND_GAMES - 1)))
    assert progress.snapshot(QUEUES).games[0].trend is None
    progress.record(make_stats(40, MIN_TREND_GAMES - 1))
    assert progress.snapshot(QUEUES).games[0].trend == MIN_TREND_GAMES / 2


def test_the_speed_is_that_of_the_last_minutes(make, make_stats, clock):
    progress = make(total=1_000_000)
    for second in range(1000):
        clock.now += 1
        progress.record(make_stats(second if second < 500 else 500 + (second - 500) * 10))
        snapshot = progress.snapshot(QUEUES)
    assert snapshot.sps == pytest.approx(10.0)
    assert snapshot.seconds == 1000
    assert snapshot.seconds_left == pytest.approx((1_000_000 - 5490) / 10)


def test_the_entropy_of_each_game_is_kept_from_when_it_was_measured(make, make_stats):
    progress = make()
    progress.record(make_stats(20, task_entropies={0: 1.5, 1: 1.0}))
    progress.record(make_stats(40, task_entropies={1: 0.5}))
    progress.record(make_stats(60, task_entropies={}))
    assert [game.entropy for game in progress.snapshot(QUEUES).games] == [1.5, 0.5]


def test_scores_are_compared_with_human_play_where_that_is_known(make, make_stats):
    progress = make(human_normalized=lambda task, value: value / 10 if task == 0 else None)
    progress.record(make_stats(20, 2.0))
    progress.record_evaluation(10, (5.0, 7.0), 0.5)
    snapshot = progress.snapshot(QUEUES)
    assert [game.human for game in snapshot.games] == [0.2, None]
    assert [game.evaluated_return for game in snapshot.games] == [5.0, 7.0]
    assert (snapshot.median_human, snapshot.median_evaluated_human) == (0.2, 0.5)
    assert snapshot.evaluation_step == 10


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
        "No full game finished yet: Breakout",
    ]


def test_a_snapshot_shows_a_stall(make, make_stats, clock):
    progress = make()
    for _ in range(100):
        clock.now += 1
        progress.record(make_stats(20))
    clock.now += 59
    assert progress.snapshot(QUEUES).stalled_s is None
    clock.now += 141
    assert progress.snapshot(QUEUES).stalled_s == 200.0
