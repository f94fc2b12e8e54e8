import pytest

from torchbeast.envs import all_games
from torchbeast.envs.games import SIX, short_name
from torchbeast.records.display.table import block_lines, most_interesting, run_parts, table_lines
from torchbeast.records.progress import Limit

POPART = {"mu": 12.345, "sigma": 25.1}


@pytest.fixture
def make_games(make_game):
    def make(ids):
        return tuple(make_game(short_name(i), human=0.05, trend=1.25, **POPART) for i in ids)

    return make


def test_six_games_with_everything_fit_into_80_columns(make_games):
    games = [game._replace(silent_s=75.0) for game in make_games(SIX)]
    heading, *lines = table_lines(games, 79)
    assert heading.split() == [
        "game", "steps", "return", "%human", "trend", "mu", "sigma", "silent",
    ]  # fmt: skip
    for game, line in zip(games, lines, strict=True):
        assert len(line) <= 79
        assert line.split() == [game.name, "104k", "17.5", "5", "+1.2", "12.3", "25.1", "1m15s"]


def test_columns_without_any_value_are_left_out(make_game):
    heading, line = table_lines([make_game()], 79)
    assert heading.split() == ["game", "steps", "return"]
    assert line.split() == ["Pong", "104k", "17.5"]


def test_a_score_that_nobody_published_stays_blank(make_game):
    games = [make_game("Carnival"), make_game(human=0.96)]
    _, carnival, pong = table_lines(games, 79)
    assert carnival.split() == ["Carnival", "104k", "17.5"]
    assert pong.split() == ["Pong", "104k", "17.5", "96"]


def test_a_narrow_terminal_keeps_the_most_important_columns(make_games):
    games = [game._replace(silent_s=75.0) for game in make_games(SIX[:1])]
    headings = [table_lines(games, width)[0].split() for width in (40, 30, 20)]
    assert headings[0] == ["game", "steps", "return", "%human", "silent"]
    assert headings[1] == ["game", "return", "silent"]
    assert headings[2] == ["game", "return"]


def test_long_names_are_cut(make_game):
    line = table_lines([make_game("A" * 50)], 79)[1]
    assert line.startswith("A" * 18 + "..  ")


def test_the_run_says_how_fast_it_is_and_what_helps(make_snapshot, make_game):
    limit = Limit("learner", "try more --cores")
    assert run_parts(make_snapshot(limit=limit)) == [
        "623,360 of 2,000,000 steps",
        "1413 steps/s",
        "16m14s left",
        "bottleneck: learner; try more --cores",
    ]
    games = (make_game(human=0.5, evaluated_human=0.6), make_game("Carnival"))
    assert run_parts(make_snapshot(*games, sps=0.0, stalled_s=75.0, evaluation_step=500_000)) == [
        "623,360 of 2,000,000 steps",
        "0 steps/s",
        "? left",
        "no steps for 1m15s",
        "median 50 % of human",
        "evaluated at 500k steps: median 60 % of human",
    ]


@pytest.mark.parametrize("ids", [SIX[:1], SIX, all_games()], ids=len)
@pytest.mark.parametrize("size", [(79, 21), (79, 5), (79, 1), (30, 10), (8, 8), (200, 100)])
def test_a_block_has_the_size_that_it_may_have(make_games, make_snapshot, ids, size):
    games = make_games(ids)
    limit = Limit("environments", "try more --num_actors")
    width, height = size
    lines = block_lines(make_snapshot(*games, limit=limit), width, height)
    assert 1 <= len(lines) <= height
    assert max(map(len, lines)) <= width
    shown = sum(line.split()[0] in {game.name for game in games} for line in lines)
    hidden = [line for line in lines if line.startswith("and ")]
    if width >= 30 and 3 < height < len(games):
        assert hidden == [f"and {len(games) - shown} more games"]
    if height > len(games) + 5:
        assert shown == len(games)
        assert not hidden


def test_silent_games_and_those_that_change_are_shown_first(make_game):
    games = [make_game(str(i), trend=0.1 * i, std_return=1.0) for i in range(10)]
    games[2] = games[2]._replace(silent_s=90.0)
    games[5] = games[5]._replace(trend=-3.0)
    games[7] = games[7]._replace(trend=5.0, std_return=100.0)  # Small for its spread.
    assert [game.name for game in most_interesting(games, 4)] == ["2", "5", "8", "9"]
