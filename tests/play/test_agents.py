import pytest
import torch

from torchbeast import monobeast, polybeast, saliency
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import (
    Trained,
    load_trained,
    name_apart,
    read_agents,
    read_observation_config,
)
from torchbeast.play.config import TrainedAgentConfig
from torchbeast.records import checkpoint, run_files

PONG = "PongNoFrameskip-v4"


def make(**config):
    torch.manual_seed(0)
    return Trained(make_agent(AgentConfig(agent_type="atari", **config)).eval(), "run", "7")


@pytest.mark.parametrize("xpid", ["run", "run/model.tar", "{}/run", "{}/run/model.tar"])
def test_an_agent_is_found_by_name_or_path(tmp_path, monkeypatch, xpid):
    trained = make()
    contents = {
        "agent": trained.agent.config._asdict(),
        "model_state_dict": trained.agent.state_dict(),
    }
    checkpoint.save(tmp_path / "run" / "model.tar", contents)
    flags = TrainedAgentConfig(str(tmp_path), xpid.format(tmp_path), None, None)
    found = load_trained(flags)
    assert found.xpid == "run"
    assert found.directory == tmp_path / "run"
    assert found.agent.config == trained.agent.config
    assert found.agent.config.lstm_reset == "life"
    found = load_trained(flags._replace(lstm_reset="game"))
    assert found.agent.config.lstm_reset == "game"
    monkeypatch.chdir(tmp_path)
    flags = TrainedAgentConfig("elsewhere", "run/model.tar", None, None)
    found = load_trained(flags)
    assert found.xpid == "run"
    assert found.directory.resolve() == tmp_path / "run"


@pytest.mark.parametrize("xpid", ["Pong", "Pong/model.tar", str(run_files.SHIPPED / "Pong")])
def test_films_of_a_shipped_agent_go_below_the_directory_of_runs(tmp_path, xpid):
    found = load_trained(TrainedAgentConfig(str(tmp_path), xpid, None, None))
    assert (found.xpid, found.directory) == ("Pong", tmp_path / "Pong")


def test_a_checkpoint_is_known_by_its_place_also_from_beside_it(tmp_path, monkeypatch):
    agent = make().agent
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    path = run_files.intermediate_path(tmp_path / "run", 500)
    checkpoint.save(path, contents)
    monkeypatch.chdir(path.parent)
    found = load_trained(TrainedAgentConfig("elsewhere", path.name, None, None))
    assert (found.xpid, found.model_id, found.intermediate_id) == ("run", "500", 500)
    assert found.directory == tmp_path / "run"


def test_the_newest_run_is_called_by_its_own_name(tmp_path):
    agent = make().agent
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "run" / "model.tar", contents)
    (tmp_path / "latest").symlink_to("run")
    found = load_trained(TrainedAgentConfig(str(tmp_path), None, None, None))
    assert (found.xpid, found.directory) == ("run", tmp_path / "run")


@pytest.mark.parametrize(
    ("recorded", "model_id"),
    [({"steps": 20}, "20"), ({"steps": 0}, "0"), ({"stats": {"step": 7}}, "7"), ({}, "model")],
)
def test_an_agent_is_known_by_its_steps(tmp_path, recorded, model_id):
    agent = make().agent
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "model.tar", {**contents, **recorded})
    assert read_agents(tmp_path)[0].model_id == model_id


@pytest.mark.parametrize(
    ("tasks", "env", "expected"),
    [
        (("BreakoutNoFrameskip-v4", PONG), PONG, 1),
        ((PONG, "BreakoutNoFrameskip-v4"), PONG, 0),
        (("BreakoutNoFrameskip-v4", PONG), "ALE/Pong-v5", 1),
        (("BreakoutNoFrameskip-v4",), PONG, 0),
    ],
)
def test_a_game_finds_its_own_value_head(tasks, env, expected):
    assert make(tasks=tasks).find_task(env) == expected


def test_agents_of_one_name_are_told_apart():
    agents = [make()._replace(xpid=xpid, model_id=step)
              for xpid, step in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"))]  # fmt: skip
    assert [a.xpid for a in name_apart(agents)] == ["a:1", "b", "a:2", "a:1 (2)"]


def test_checkpoints_of_one_run_are_told_apart(tmp_path):
    agent = make().agent
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "run" / "model.tar", {**contents, "steps": 20})
    intermediate = run_files.intermediate_path(tmp_path / "run", 10)
    checkpoint.save(intermediate, {**contents, "steps": 10})
    agents = read_agents(tmp_path / "run", intermediate)
    assert [a.xpid for a in agents] == ["run:20", "run:10"]
    assert [a.intermediate_id for a in agents] == [None, 10]
    (agent,) = read_agents(tmp_path / "run")
    assert agent.xpid == "run"


@pytest.mark.parametrize(
    ("contents", "emulator_gray"),
    [
        ({"agent": {}}, True),  # Of a version that drew AirRaid wrong.
        ({"agent": {}, "emulator_gray": False}, False),
        ({}, False),  # Of 2019.
    ],
)
def test_an_agent_sees_the_gray_that_it_learned_with(contents, emulator_gray):
    assert read_observation_config(contents).emulator_gray == emulator_gray


@pytest.mark.parametrize("program", [
    (polybeast.main, "--mode=test"), (monobeast.main, "--mode=record"),
    (polybeast.main, "--mode=test_render"), (saliency.main,),
])  # fmt: skip
@pytest.mark.parametrize(
    ("flag", "value", "saved"),
    [("preprocessing", "machado", "deepmind"), ("frame_height", "42", "84"),
     ("frame_format", "rgb_last", "gray_stack"), ("use_lstm", "True", "False"),
     ("use_popart", "True", "False"), ("agent_type", "resnet", "atari"), ("num_actions", "4", "6")],
)  # fmt: skip
def test_flags_that_contradict_the_checkpoint_are_refused(
    assert_misuse, tmp_path, program, flag, value, saved
):
    if program[0] is saliency.main and flag not in ("use_lstm", "agent_type"):
        pytest.skip("has no such flag")
    agent = make().agent
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "run" / "model.tar", contents)
    main, *mode = program
    given = f"--{flag}" if value == "True" else f"--{flag}={value}"
    message = f"--{flag} {value} contradicts the checkpoint of run, which says {saved}"
    assert_misuse(main, [*mode, f"--savedir={tmp_path}", "--xpid=run", given], message)


def test_flags_that_agree_with_the_checkpoint_are_accepted(tmp_path):
    agent = make().agent
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(tmp_path / "run" / "model.tar", contents)
    arguments = ["--agent_type=atari", "--frame_height=84", "--beta=0.5", "--lstm_reset=game"]
    parser = polybeast.make_parser()
    values = vars(parser.parse_args([*arguments, f"--savedir={tmp_path}", "--xpid=run"]))
    found = load_trained(TrainedAgentConfig.from_flags(values, parser.given(arguments)))
    assert found.agent.config.lstm_reset == "game"
