import pytest

from torchbeast.core.stats import Game, StepStats
from torchbeast.records.progress import GameSnapshot, Snapshot

# Both in the order of their fields.
STATS = StepStats(20, 1, 2.0, 40.0, 0.5, -0.5, 0.25, 1.5, 3.0, 1e-3, 0.5, [], [20, 0], {}, {0: 1.5})
GAME = GameSnapshot("Pong", 104_000, 20, 17.46, 2.0, *[None] * 8)


@pytest.fixture
def make_stats():
    """Statistics of a learner step of two games, with a full game of task 0 for each return."""

    def make(steps, *returns, **changes):
        games = [Game(0, value, 100) for value in returns]
        return STATS._replace(steps=steps, games=games, **changes)

    return make


@pytest.fixture
def make_game():
    return lambda name="Pong", **changes: GAME._replace(name=name, **changes)


@pytest.fixture
def make_snapshot(make_game):
    def make(*games, **changes):
        snapshot = Snapshot(
            steps=623_360,
            total_steps=2_000_000,
            seconds=441.0,
            sps=1413.0,
            stalled_s=None,
            last=STATS,
            queues={"learner": 1, "inference": 0},
            bottleneck=None,
            games=games or (make_game(),),
            evaluation_step=None,
        )
        return snapshot._replace(**changes)

    return make
