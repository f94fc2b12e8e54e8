import pytest

from torchbeast.core.stats import Game, StepStats
from torchbeast.records.progress import GameSnapshot, Snapshot

STATS = StepStats(
    steps=20,
    learner_steps=1,
    total_loss=2.0,
    pg_loss=40.0,
    baseline_loss=0.5,
    entropy_loss=-0.5,
    value_loss=0.25,
    entropy=1.5,
    grad_norm=3.0,
    learning_rate=1e-3,
    policy_lag=0.5,
    games=[],
    task_steps=[20, 0],
    task_grad_norms={},
    task_entropies={0: 1.5},
)


@pytest.fixture
def make_stats():
    """Statistics of a learner step of two games, with a full game of task 0 for each return."""

    def make(steps, *returns, **changes):
        games = [Game(0, value, 100) for value in returns]
        return STATS._replace(steps=steps, games=games, **changes)

    return make


@pytest.fixture
def make_game():
    def make(name="Pong", **changes):
        game = GameSnapshot(
            name=name,
            steps=104_000,
            games=20,
            mean_return=17.46,
            std_return=2.0,
            human=None,
            trend=None,
            grad_norm=None,
            entropy=None,
            mu=None,
            sigma=None,
            silent_s=None,
            evaluated=None,
            evaluated_human=None,
        )
        return game._replace(**changes)

    return make


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
            limit=None,
            games=games or (make_game(),),
            evaluation_step=None,
        )
        return snapshot._replace(**changes)

    return make
