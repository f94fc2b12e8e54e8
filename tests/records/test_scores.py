import pytest

from torchbeast.records.scores import Evaluation, GameScore, normalize


def score(env, policy, human_normalized):
    return GameScore(env, policy, 5, 5, 1.0, 0.0, 1.0, 1.0, 10.0, None, None, human_normalized)


EVALUATION = Evaluation(
    100,
    (
        score("Pong", "greedy", 0.1),
        score("Pong", "sampled", 0.7),
        score("Breakout", "greedy", 0.2),
        score("Alien", "greedy", 0.9),
        score("Carnival", "greedy", None),
    ),
)


def test_scores_are_summed_up_per_policy_over_the_games_with_a_human_score():
    assert normalize(EVALUATION.select("greedy")) == (0.2, pytest.approx(0.4), 3)
    assert normalize(EVALUATION.select("sampled")) == (0.7, 0.7, 1)


def test_without_human_scores_there_is_no_normalised_score():
    assert normalize(EVALUATION.scores[-1:]) is None
