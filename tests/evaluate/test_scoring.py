import pytest

from torchbeast.evaluate.playing import Episode
from torchbeast.evaluate.scoring import format_table, summarize


def test_summary():
    episodes = [Episode("PongNoFrameskip-v4", value, 10) for value in (-20.7, 14.6)]
    summary = summarize(episodes)
    assert summary.pop("human_normalized") == pytest.approx(0.5)
    assert summary == {
        "env": "PongNoFrameskip-v4",
        "episodes": 2,
        "mean": pytest.approx(-3.05),
        "std": pytest.approx(17.65),
        "min": -20.7,
        "max": 14.6,
        "mean_steps": 10.0,
    }


def test_table_has_a_row_per_game_and_says_where_no_score_is_published():
    games = ("PongNoFrameskip-v4", "ALE/Carnival-v5")
    table = format_table([summarize([Episode(game, 14.6, 10)]) for game in games])
    _, pong, carnival, _ = table.splitlines()
    assert pong.split() == ["Pong", "1", "14.60", "0.00", "14.6", "14.6", "10", "100%"]
    assert carnival.split()[0::7] == ["Carnival", "-"]
