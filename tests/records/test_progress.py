import pytest

from torchbeast.core.learner import Game, StepStats
from torchbeast.records.progress import Limit, Progress, log_fields

QUEUES = {"learner": 1, "inference": 0}


class Writer:
    def __init__(self):
        self.rows = []
        self.tags = {}

    def log(self, row):
        self.rows.append(row)

    def scalars(self, values, step):
        self.tags.update(values)


def stats(steps, *returns):
    games = [Game(0, value, 100) for value in returns]
    return StepStats(steps, 1, 2.0, 1.0, 0.5, -0.5, 3.0, 1e-3, 0.5, games, [20, 0], {})


@pytest.fixture
def writer():
    return Writer()


def make(writer, total=100):
    return Progress(writer, ["Pong", "Breakout"], total)


def test_a_row_has_every_column_and_says_nothing_about_games_that_have_not_finished(writer):
    progress = make(writer)
    progress.record(stats(20, 1.0, 3.0))
    progress.report(QUEUES)
    (row,) = writer.rows
    assert set(row) == set(log_fields(["Pong", "Breakout"], use_popart=False))
    assert (row["mean_episode_return/Pong"], row["std_episode_return/Pong"]) == (2.0, 1.0)
    assert row["mean_episode_return/Breakout"] is None
    assert (row["games/Pong"], row["steps/Pong"]) == (2, 20)
    assert "charts/SPS" in writer.tags


def test_the_gradient_of_each_game_is_recorded_when_it_is_measured(writer):
    progress = make(writer)
    progress.record(stats(20)._replace(task_grad_norms={0: 3.0, 1: 4.0}))
    progress.record(stats(40)._replace(task_grad_norms={1: 5.0}))
    progress.record(stats(60))
    progress.report(QUEUES)
    (row,) = writer.rows
    assert (row["grad_norm/Pong"], row["grad_norm/Breakout"]) == (3.0, 5.0)
    assert writer.tags["losses/grad_norm/Breakout"] == 5.0


def test_the_line_says_what_is_known(writer, capsys):
    progress = make(writer)
    progress.record(stats(20, 1.0))
    progress.report(QUEUES, Limit("the learner", "--cores"))
    line = capsys.readouterr().err
    assert line.startswith("20 of 100 steps")
    assert "Pong 1.0  Breakout no game finished yet" in line
    assert "held back by the learner (--cores)" in line


def test_no_step_is_logged_twice(writer):
    progress = make(writer)
    progress.record(stats(20))
    progress.report(QUEUES)
    progress.report(QUEUES)
    assert [row["step"] for row in writer.rows] == [20]


def test_a_resumed_run_counts_on(writer):
    first = make(writer)
    first.record(stats(20, 1.0, 3.0))
    second = make(writer)
    second.load_state_dict({**first.state_dict(), "seconds": 1000.0}, 20)
    second.report(QUEUES)
    assert not writer.rows
    second.record(stats(40, 5.0))
    second.report(QUEUES)
    (row,) = writer.rows
    assert (row["games/Pong"], row["mean_episode_return/Pong"], row["steps/Pong"]) == (3, 3.0, 40)
    assert float(row["seconds"]) >= 1000.0
    assert second.finish()[0] == "Pong: mean return 3.00 over the last 3 full games"
