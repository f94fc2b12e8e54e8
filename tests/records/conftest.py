from dataclasses import replace

import pytest

from tests.learner_steps import STEP
from torchbeast.core.stats import FinishedGame
from torchbeast.records.progress import GameSnapshot, Snapshot

# In the order of its fields.
GAME = GameSnapshot("Pong", 104_000, 20, 17.46, 2.0, *[None] * 6)


@pytest.fixture
def make_stats():
    """Statistics of a learner step of two games, with a full game of task 0 for each return."""

    def make(steps, *returns, **changes):
        episodes = [FinishedGame(0, value, 100) for value in returns]
        return replace(STEP, steps=steps, episodes=episodes, **changes)

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
            last=STEP,
            queues={"learner": 1, "inference": 0},
            bottleneck=None,
            games=games or (make_game(),),
            evaluation_step=None,
            median_evaluated_human=None,
        )
        return snapshot._replace(**changes)

    return make
