import pytest
import torch

from tests import checkpoints
from torchbeast import modes, monobeast, polybeast, polybeast_learner, saliency
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import (
    Trained,
    load_trained,
    name_apart,
    read_agent,
)
from torchbeast.play.config import TrainedAgentConfig
from torchbeast.records import run_files

PONG = "PongNoFrameskip-v4"


def make(**config):
    torch.manual_seed(0)
    return Trained(make_agent(AgentConfig(agent_type="atari", **config)).eval(), "run", "7")


def save(path, **contents):
    """Saves a new agent; returns its configuration."""
    return checkpoints.save_agent(path, make().agent, **contents).config


@pytest.mark.parametrize("xpid", ["run", "run/model.tar", "{}/run"])
def test_an_agent_is_found_by_name_or_path(tmp_path, xpid):
    config = save(tmp_path / "run" / "model.tar")
    flags = TrainedAgentConfig(str(tmp_path), xpid.format(tmp_path), None, None)
    found = load_trained(flags)
    assert found.xpid == "run"
    assert found.directory == tmp_path / "run"
    assert found.agent.config == config


def test_films_of_a_shipped_agent_go_below_the_directory_of_runs(tmp_path):
    found = load_trained(TrainedAgentConfig(str(tmp_path), "Pong", None, None))
    assert (found.xpid, found.directory) == ("Pong", tmp_path / "Pong")


def test_a_checkpoint_is_known_by_its_place_also_from_beside_it(tmp_path, monkeypatch):
    path = run_files.model_path(tmp_path / "run", 500)
    save(path)
    monkeypatch.chdir(path.parent)
    found = load_trained(TrainedAgentConfig("elsewhere", path.name, None, None))
    assert (found.xpid, found.model_id, found.intermediate_id) == ("run", "500", 500)
    assert found.directory == tmp_path / "run"


@pytest.mark.parametrize(
    ("recorded", "model_id"),
    [({"steps": 20}, "20"), ({"steps": 0}, "0"), ({"stats": {"step": 7}}, "7"), ({}, "model")],
)
def test_an_agent_is_known_by_its_steps(tmp_path, recorded, model_id):
    save(tmp_path / "model.tar", **recorded)
    assert read_agent(tmp_path).model_id == model_id


@pytest.mark.parametrize(
    ("tasks", "env", "expected"),
    [
        (("BreakoutNoFrameskip-v4", PONG), PONG, 1),
        (("BreakoutNoFrameskip-v4", PONG), "ALE/Pong-v5", 1),
        (("BreakoutNoFrameskip-v4",), PONG, 0),
    ],
)
def test_a_game_finds_its_own_value_head(tasks, env, expected):
    assert make(tasks=tasks).task_or_first(env) == expected


def test_checkpoints_of_one_run_are_told_apart(tmp_path):
    save(tmp_path / "run" / "model.tar", steps=20)
    intermediate = run_files.model_path(tmp_path / "run", 10)
    save(intermediate, steps=10)
    agents = name_apart([read_agent(path) for path in (tmp_path / "run", intermediate)])
    assert [a.xpid for a in agents] == ["run:20", "run:10"]
    assert [a.intermediate_id for a in agents] == [None, 10]
    found = load_trained(TrainedAgentConfig(str(tmp_path), "run", 10, None))
    assert (found.model_id, found.intermediate_id) == ("10", 10)
    (tmp_path / "latest").symlink_to("run")
    found = load_trained(TrainedAgentConfig(str(tmp_path), None, None, None))
    assert (found.xpid, found.directory) == ("run", tmp_path / "run")


def test_a_newest_run_without_checkpoint_is_named(tmp_path):
    (tmp_path / "killed").mkdir()
    (tmp_path / "latest").symlink_to("killed")
    with pytest.raises(
        UsageError, match=r"The newest run, killed, has no model\.tar: name another"
    ):
        load_trained(TrainedAgentConfig(str(tmp_path), None, None, None))


@pytest.mark.parametrize(
    ("program", "flag", "value", "saved"),
    [
        ((polybeast.main, "--mode=test"), "preprocessing", "machado", "deepmind"),
        ((polybeast.main, "--mode=test"), "use_popart", "True", "False"),
        ((monobeast.main, "--mode=record"), "use_lstm", "True", "False"),
        ((saliency.main,), "use_lstm", "True", "False"),
    ],
)
def test_flags_that_contradict_the_checkpoint_are_refused(
    assert_misuse, tmp_path, program, flag, value, saved
):
    save(tmp_path / "run" / "model.tar")
    main, *mode = program
    given = f"--{flag}" if value == "True" else f"--{flag}={value}"
    message = f"--{flag} {value} contradicts the checkpoint of run, which says {saved}"
    assert_misuse(main, [*mode, f"--savedir={tmp_path}", "--xpid=run", given], message)


def test_flags_that_a_mode_does_not_read_are_named(tmp_path, caplog):
    arguments = ["--movie=a.gif", "--total_steps=9", "--beta=0.5", "--preprocessing=machado"]
    mode = ["--mode=test", f"--savedir={tmp_path}", "--xpid=nobody", "--num_episodes=1"]
    assert polybeast.main([*mode, *arguments]) == 2
    assert [record.message for record in caplog.records[:3]] == [
        f"--{name} has no effect in --mode test" for name in ("beta", "movie", "total_steps")
    ]
    arguments = ["--mode=env_info", f"--env={PONG}", "--preprocessing=machado", "--greedy"]
    caplog.clear()
    assert polybeast_learner.main(arguments) == 0
    assert [record.message for record in caplog.records] == [
        f"--{name} has no effect in --mode env_info" for name in ("greedy", "preprocessing")
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--beta=0.5"], "without --use_popart"),
        (["--value_heads=game", "--use_popart"], "with --use_popart"),
        (["--movie=a.gif"], "in --mode train"),
        (["--evaluation_episodes=3"], "without --evaluate_every"),
    ],
)
def test_flags_that_training_does_not_read_are_named(caplog, given, reason):
    parser = polybeast.make_parser()
    assert modes.run_mode("polybeast", parser, given, train=lambda *_: None) == 0
    flag, _ = given[0].split("=")
    assert caplog.messages == [f"{flag} has no effect {reason}"]


def test_flags_that_agree_with_the_checkpoint_are_accepted(tmp_path):
    save(tmp_path / "run" / "model.tar")
    arguments = ["--agent_type=atari", "--frame_height=84", "--beta=0.5", "--lstm_reset=game"]
    parser = polybeast.make_parser()
    values = vars(parser.parse_args([*arguments, f"--savedir={tmp_path}", "--xpid=run"]))
    found = load_trained(TrainedAgentConfig.from_flags(values, parser.given))
    assert found.agent.config.lstm_reset == "game"
