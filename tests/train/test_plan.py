import tempfile

import pytest
import torch

from torchbeast.core.distributed import Ranks
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.models.loading import find_agent_type
from torchbeast.runtime.allocation import environments_per_task
from torchbeast.runtime.devices import Devices
from torchbeast.runtime.threads import available_cores
from torchbeast.train import prepare

THREE_GAMES = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4,SpaceInvadersNoFrameskip-v4"


def test_the_agent_fits_its_games(make_config):
    plan = prepare(make_config(f"--env={THREE_GAMES}", "--frame_height=42", "--use_popart"))
    assert plan.agent.num_actions == 18
    assert plan.full_action_space
    assert plan.agent.observation_shape == (4, 42, 84)
    assert plan.agent.tasks == tuple(THREE_GAMES.split(","))
    assert plan.agent.use_popart


def test_every_game_has_equally_many_environments(make_config):
    plan = prepare(make_config(f"--env={THREE_GAMES}", "--num_actors=12", "--num_servers=4"))
    assert len(plan.servers) == plan.threads.servers == 4
    assert environments_per_task(plan.servers) == [4, 4, 4]


def test_there_are_no_more_servers_than_environments(make_config):
    assert prepare(make_config("--num_servers=9")).threads.servers == 4


def test_without_a_pool_actors_are_on_the_cpu(make_config, monkeypatch):
    gpu = Devices(torch.device("cuda", 0), torch.device("cuda", 1))
    monkeypatch.setattr("torchbeast.train.plan.choose_devices", lambda *_: gpu)
    plan = prepare(make_config(), has_pool=False)
    assert str(plan.devices) == "learning on cuda:0, acting on cpu"
    assert prepare(make_config()).devices == gpu


def test_without_a_pool_the_actors_are_per_game(make_config):
    config = make_config(f"--env={THREE_GAMES}", "--num_actors=2")
    plan = prepare(config, has_pool=False)
    assert plan.num_actors == 6
    assert plan.servers == ()
    assert (plan.threads.servers, plan.threads.inference_threads) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num_actors=2"], "3 games need at least as many actors"),
        (["--num_servers=2"], "3 games need at least as many servers"),
        (["--num_actions=5"], "contradicts the games, which have 18"),
        (["--xpid=latest"], "cannot be the name of a run"),
        (["--xpid=a\nb"], r"--xpid 'a\\nb' cannot be the name of a run"),
        (["--xpid=" + 300 * "x"], "at most 200 bytes"),
        (["--agent_type=no.such:Thing"], "Cannot find --agent_type"),
        (["--num_actors=4096", "--num_servers=3"], "has at most 1024 environments.* 6 servers"),
        (
            ["--agent_type=atari", "--frame_width=35"],
            "atari needs frames of 36 x 36 at least, not of 84 x 35",
        ),
        (["--agent_type=aaa", "--frame_height=7"], "aaa needs frames of 8 x 8 at least"),
    ],
)
def test_what_cannot_be_is_refused(make_config, arguments, message):
    with pytest.raises(UsageError, match=message):
        prepare(make_config(f"--env={THREE_GAMES}", *arguments))


def test_ranks_of_a_machine_share_its_cores(make_config):
    config = make_config()
    machine = config.machine._replace(cores=None)
    config = config._replace(machine=machine)
    assert prepare(config, Ranks(1, 2, 1, 2)).cores == max(1, available_cores() // 2)
    assert prepare(config, Ranks(1, 2, 0, 1)).cores == available_cores()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--synchronous"], "--synchronous is for one process"),
        (["--pipes_basename=unix:/tmp/a"], "--pipes_basename is for one rank"),
    ],
)
def test_what_ranks_cannot_do_is_refused(make_config, arguments, message):
    with pytest.raises(UsageError, match=message):
        prepare(make_config(*arguments), Ranks(0, 2, 0, 2))


def test_a_run_of_several_ranks_needs_a_name(make_config):
    config = make_config()
    config = config._replace(output=config.output._replace(xpid=None))
    with pytest.raises(UsageError, match="name the run with --xpid"):
        prepare(config, Ranks(0, 2, 0, 2))


def test_servers_are_enough_for_very_many_environments(make_config):
    plan = prepare(make_config(f"--env={THREE_GAMES}", "--num_actors=3075", "--cores=2"))
    assert [load.num_environments for load in plan.servers] == [513, 513, 513, 512, 512, 512]


@pytest.mark.parametrize(("agent_type", "size"), [("atari", 36), ("aaa", 8), ("resnet", 1)])
def test_agents_take_frames_of_their_least_size(agent_type, size):
    config = AgentConfig(agent_type=agent_type, observation_shape=(1, size, size))
    assert find_agent_type(agent_type).min_frame_size == size
    agent = make_agent(config).eval()
    frames = torch.zeros(2, 1, size, size, dtype=torch.uint8)
    assert len(agent.encode_frames(frames, torch.zeros(2, dtype=torch.int64))) == 2


def test_an_agent_with_its_own_memory_takes_no_other(make_config, caplog):
    plan = prepare(make_config("--env=Pong", "--agent_type=aaa", "--use_lstm"))
    assert not plan.agent.use_lstm
    assert "--use_lstm changes nothing" in caplog.text


def test_more_cores_than_there_are_get_a_warning(make_config, caplog):
    prepare(make_config("--cores=500"))
    assert f"--cores 500: this process may use {available_cores()}" in caplog.text


def test_a_long_tmpdir_is_refused_before_anything_is_written(make_config, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 85)
    with pytest.raises(UsageError, match="is too long for the paths of sockets"):
        prepare(make_config())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("changes", [{"frame_height": 20_000}, {"frame_format": "x"}])
def test_a_run_whose_checkpoint_could_not_be_read_is_refused(make_config, changes):
    config = make_config()
    config = config._replace(observation=config.observation._replace(**changes))
    with pytest.raises(UsageError, match="such a run cannot be saved: the observation: frame_"):
        prepare(config)
