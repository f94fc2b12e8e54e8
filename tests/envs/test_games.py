import pytest

from torchbeast.core.types import UsageError
from torchbeast.envs import SIX, THREE, all_games, make_env, parse_games
from torchbeast.envs.games import short_name


def test_groups():
    assert parse_games("three") == THREE
    assert parse_games("six") == SIX
    assert set(THREE) < set(SIX) < set(all_games())
    assert parse_games("all") == all_games()
    assert len(all_games()) >= 60


def test_every_game_of_all_steps():
    for game in all_games():
        env = make_env(game, seed=0)
        observation, _ = env.reset()
        for _ in range(3):
            observation, reward, terminated, truncated, info = env.step(env.action_space.n - 1)
        assert observation.shape == (4, 84, 84)
        assert isinstance(reward, float)
        assert not terminated
        assert not truncated
        assert info["game_over"] is False
        env.close()


@pytest.mark.parametrize(
    ("game", "hint"),
    [
        ("PongNoFrameskip-v5", "did you mean PongNoFrameskip-v4"),
        ("ALE/Brekout-v5", "BreakoutNoFrameskip-v4"),
        ("xyz", "games are named like"),
    ],
)
def test_unknown_games_are_one_line_with_a_way_out(game, hint):
    with pytest.raises(UsageError, match=hint) as error:
        parse_games(f"PongNoFrameskip-v4,{game}")
    assert "\n" not in str(error.value)


def test_a_game_is_found_by_its_name_alone():
    assert parse_games("Pong") == parse_games("PongNoFrameskip-v4")
    assert parse_games("spaceinvaders") == ("SpaceInvadersNoFrameskip-v4",)
    env = make_env("Pong")
    assert env.action_space.n == 6
    env.close()


def test_groups_may_stand_among_other_names():
    assert parse_games("Qbert,three") == ("QbertNoFrameskip-v4", *THREE)
    with pytest.raises(UsageError, match=r"twice.*: Pong$"):
        parse_games("six,Pong")


def test_a_game_twice_is_refused():
    with pytest.raises(UsageError, match="twice"):
        parse_games("PongNoFrameskip-v4,PongNoFrameskip-v4")
    with pytest.raises(UsageError, match="twice"):
        parse_games("PongNoFrameskip-v4,ALE/Pong-v5")


def test_versions_of_a_custom_environment_are_two_games():
    ids = ("my:Level-v0", "my:Level-v1")
    assert parse_games(",".join(ids)) == ids
    assert [short_name(i) for i in ids] == ["Level", "Level-v1"]


def test_an_empty_name_is_refused():
    for text in ("", "Pong,"):
        with pytest.raises(UsageError, match="names no game"):
            parse_games(text)


def test_gymnasiums_name_of_a_package_changes_nothing():
    assert parse_games("ale_py:ALE/Pong-v5") == ("ALE/Pong-v5",)


def test_games_of_one_namespace_alone_are_found():
    assert parse_games("tetris,pong") == ("ALE/Tetris-v5", "PongNoFrameskip-v4")


def test_both_spellings_have_one_name():
    assert {short_name(g) for g in ("PongNoFrameskip-v4", "ALE/Pong-v5")} == {"Pong"}


@pytest.mark.parametrize(
    ("env_id", "reason"),
    [
        ("no.such.module:Env-v0", "No module named 'no'"),
        ("tests.hostile:Env-v0", "Env"),
        (":Env-v0", "Empty module name"),
        ("broken:Env-v0", "invalid syntax"),
    ],
)
def test_a_custom_environment_that_is_not_there_is_one_line(monkeypatch, tmp_path, env_id, reason):
    (tmp_path / "broken.py").write_text("def\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert parse_games(env_id) == (env_id,)  # Nothing is imported before it is made.
    with pytest.raises(UsageError, match="Cannot find environment .*" + reason) as error:
        make_env(env_id)
    assert "\n" not in str(error.value)
