import pytest

from torchbeast.core.types import UsageError
from torchbeast.envs import SIX, THREE, all_games, make_env, parse_games
from torchbeast.envs.games import short_name


@pytest.mark.parametrize(
    ("text", "games"),
    [
        ("three", THREE),
        ("six", SIX),
        ("all", all_games()),
        ("Pong", ("PongNoFrameskip-v4",)),
        ("spaceinvaders", ("SpaceInvadersNoFrameskip-v4",)),
        ("Qbert,three", ("QbertNoFrameskip-v4", *THREE)),
        ("tetris,pong", ("ALE/Tetris-v5", "PongNoFrameskip-v4")),  # One has no older name.
        ("ale_py:ALE/Pong-v5", ("ALE/Pong-v5",)),
        ("my:Level-v0,my:Level-v1", ("my:Level-v0", "my:Level-v1")),
    ],
)
def test_games_have_their_own_names_short_names_and_those_of_groups(text, games):
    assert parse_games(text) == games
    assert len({short_name(game) for game in games}) == len(games)


def test_every_eighth_game_steps():
    assert len(all_games()) >= 60
    for game in all_games()[::8]:
        env = make_env(game, seed=0)
        observation, _ = env.reset()
        for _ in range(3):
            observation, reward, terminated, truncated, info = env.step(env.action_space.n - 1)
        assert observation.shape == (4, 84, 84)
        assert isinstance(reward, float)
        assert (terminated, truncated, info["game_over"]) == (False, False, False)
        env.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PongNoFrameskip-v4,PongNoFrameskip-v5", "did you mean Pong"),
        ("ALE/Brekout-v5", "did you mean Breakout"),
        ("xyz", "games are named like"),
        ("six,Pong", r"twice.*: Pong$"),
        ("PongNoFrameskip-v4,ALE/Pong-v5", "twice"),
        ("", "has an empty name"),
        ("Pong,", "has an empty name"),
    ],
)
def test_unknown_and_repeated_games_are_refused_in_one_line(text, message):
    with pytest.raises(UsageError, match=message) as error:
        parse_games(text)
    assert "\n" not in str(error.value)


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
