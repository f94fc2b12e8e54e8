import pytest

from torchbeast.envs import all_games
from torchbeast.envs.games import short_name
from torchbeast.envs.human_scores import (
    MEASURED_RANDOM,
    PUBLISHED,
    find_reference,
    human_normalized,
)


def test_every_game_has_a_random_score_and_those_of_the_benchmark_a_human_one():
    for game in all_games():
        random, human = find_reference(game)
        assert random is not None
        assert (human is None) == (short_name(game) in MEASURED_RANDOM)
    assert len(PUBLISHED) == 57
    assert not set(PUBLISHED) & set(MEASURED_RANDOM)


def test_a_users_own_environment_has_no_scores():
    for env_id in ("my.module:Catch-v0", "my.module:Pong-v0"):
        assert find_reference(env_id) == (None, None)
        assert human_normalized(env_id, 1.0) is None


def test_scores_lie_between_random_and_human():
    assert human_normalized("ALE/Breakout-v5", 1.7) == 0
    assert human_normalized("BreakoutNoFrameskip-v4", 16.1) == pytest.approx(0.5)
