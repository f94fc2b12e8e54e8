import json
import os
import signal

import pytest
import torch

from tests import checkpoints
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.config import PlayConfig
from torchbeast.play.game_loop import PlayedGame
from torchbeast.play.testing import format_table, run_test, summarize
from torchbeast.polybeast import make_parser
from torchbeast.runtime.signals import StopSignals

PONG = "PongNoFrameskip-v4"
CARNIVAL = "ALE/Carnival-v5"
TARGET = "tests.moving_target:MovingTarget-v0"


@pytest.fixture
def config(tmp_path):
    """Configures ``--mode test`` of a new agent; more flags may be given."""
    agent = make_agent(
        AgentConfig(
            agent_type="atari", observation_shape=(2, 36, 36), num_actions=3, tasks=(TARGET,)
        )
    )
    checkpoints.save_agent(tmp_path / "mine" / "model.tar", agent, steps=640)

    def make(*more):
        flags = make_parser().parse_args(
            ["--savedir", str(tmp_path), "--xpid=mine", f"--env={TARGET}", *more]
        )
        return PlayConfig.from_flags(vars(flags))

    torch.manual_seed(0)
    return make


def test_a_summary_has_the_statistics_of_the_games():
    found = summarize([PlayedGame(PONG, value, 10) for value in (-20.7, 14.6, -20.7, 14.6)])
    assert (found.episodes, found.different, found.min, found.max) == (4, 2, -20.7, 14.6)
    expected = (pytest.approx(-3.05), pytest.approx(17.65), pytest.approx(0.5))
    assert (found.mean, found.std, found.human_normalized) == expected


def test_table_has_a_row_per_game_and_says_where_no_human_score_is_published():
    scores = [summarize([PlayedGame(PONG, 14.6, 10)]), summarize([PlayedGame(CARNIVAL, 14.6, 10)])]
    _, pong, carnival, normalized, _, blank = format_table(scores).splitlines()
    numbers = ["14.6", "0", "14.6", "14.6", "1/1", "10"]
    assert pong.split() == ["Pong", *numbers, "-20.7", "14.6", "100%"]
    assert carnival.split() == ["Carnival", *numbers, "792", "-", "-"]
    assert "over 1 of 2 games: median 100.0%, mean 100.0%" in normalized
    assert blank == "No human score is published for Carnival"


def test_json_replaces_the_table_or_goes_into_a_file_beside_it(config, capsys, tmp_path):
    run_test(config("--num_episodes=2", "--json"), StopSignals())
    document = json.loads(capsys.readouterr().out)
    run_test(config("--num_episodes=2", "--json", str(tmp_path / "scores.json")), StopSignals())
    assert "MovingTarget" in capsys.readouterr().out.splitlines()[-2]
    assert json.loads((tmp_path / "scores.json").read_text()) == document
    assert document["model"] == "640"
    assert document["complete"]
    assert document["human_normalized"] is None
    (game,) = document["games"]
    assert (game["env"], game["episodes"], game["mean_steps"]) == (TARGET, 2, 3.0)


def test_a_signal_ends_the_games_and_those_that_ended_are_scored(
    config, capsys, caplog, monkeypatch, tmp_path
):
    monkeypatch.setattr(PlayedGame, "print_line", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    caplog.set_level("INFO", "torchbeast")
    signals = StopSignals()
    run_test(config("--num_episodes=50", "--json", str(tmp_path / "scores.json")), signals)
    assert signals.received == signal.SIGINT
    document = json.loads((tmp_path / "scores.json").read_text())
    assert not document["complete"]
    (score,) = document["games"]
    assert 1 <= score["episodes"] < 50
    stopped = f"Stopped after {score['episodes']} of 50 full games of MovingTarget"
    assert stopped in caplog.text
    assert "MovingTarget" in capsys.readouterr().out.splitlines()[-2]
