import tempfile

import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.runtime.devices import Devices
from torchbeast.runtime.ranks import Ranks
from torchbeast.runtime.threads import available_cores
from torchbeast.train import make_plan

THREE_GAMES = "PongNoFrameskip-v4,BreakoutNoFrameskip-v4,SpaceInvadersNoFrameskip-v4"


def test_the_agent_fits_its_games(make_config):
    plan = make_plan(make_config(f"--env={THREE_GAMES}", "--frame_height=42", "--use_popart"))
    assert plan.agent.num_actions == 18
    assert plan.full_action_space
    assert plan.agent.observation_shape == (4, 42, 84)
    assert plan.agent.tasks == tuple(THREE_GAMES.split(","))
    assert plan.agent.use_popart


def test_every_game_has_equally_many_environments(make_config):
    plan = make_plan(make_config(f"--env={THREE_GAMES}", "--num_actors=12", "--num_servers=4"))
    assert (plan.shares, plan.servers) == ((4, 4, 4), (2, 4, 4, 2))
    plan = make_plan(make_config(f"--env={THREE_GAMES}", "--num_actors=4"), has_pool=False)
    assert (plan.num_actors, plan.servers) == (12, ())
    assert plan.threads.inference_threads == 0
    plan = make_plan(make_config(f"--env={THREE_GAMES}", "--num_actors=3075", "--cores=2"))
    assert plan.servers == (513, 513, 513, 512, 512, 512)
    assert len(make_plan(make_config("--num_servers=9")).servers) == 4


@pytest.mark.parametrize(
    ("agent_type", "cores", "batch_size", "expected"),
    [("atari", 64, 8, 8), ("atari", 4, 8, 2), ("resnet", 4, 8, 4), ("resnet", 4, 2, 2)],
)
def test_there_are_no_more_learner_threads_than_rollouts_in_a_batch(
    make_config, agent_type, cores, batch_size, expected
):
    plan = make_plan(
        make_config(f"--agent_type={agent_type}", f"--cores={cores}", f"--batch_size={batch_size}")
    )
    assert plan.threads.learner_threads == expected


def test_without_a_pool_actors_are_on_the_cpu(make_config, monkeypatch):
    gpu = Devices(torch.device("cuda", 0), torch.device("cuda", 1))
    monkeypatch.setattr("torchbeast.train.plan.choose_devices", lambda *_: gpu)
    plan = make_plan(make_config(), has_pool=False)
    assert str(plan.devices) == "learning on cuda:0, acting on cpu"
    assert make_plan(make_config()).devices == gpu


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num_actors=2"], "3 games need at least as many actors"),
        (["--num_actions=5"], "contradicts the games, which have 18"),
        (["--unroll_length=2000000"], "--unroll_length must be at most 1,048,576"),
        (["--num_actors=100000"], "--num_actors must be at most 65,536"),
        (["--xpid=latest"], "cannot be the name of a run"),
        (["--xpid=intermediate"], "cannot be the name of a run"),
        (["--xpid=-a"], "cannot be the name of a run"),
        (["--xpid=" + 300 * "x"], "at most 200 bytes"),
        (["--num_actors=4096", "--num_servers=3"], "has at most 1024 environments.* 6 servers"),
        (
            ["--agent_type=atari", "--frame_width=35"],
            "atari needs frames of 36 x 36 at least, not of 84 x 35",
        ),
    ],
)
def test_what_cannot_be_is_refused(make_config, arguments, message):
    with pytest.raises(UsageError, match=message):
        make_plan(make_config(f"--env={THREE_GAMES}", *arguments))


def test_ranks_of_a_machine_share_its_cores(make_config):
    config = make_config()
    machine = config.machine._replace(cores=None)
    config = config._replace(machine=machine)
    assert make_plan(config, Ranks(1, 2, 1, 2)).cores == max(1, available_cores() // 2)
    assert make_plan(config, Ranks(1, 2, 0, 1)).cores == available_cores()


def test_what_ranks_cannot_do_is_refused(make_config):
    config = make_config("--synchronous")
    with pytest.raises(UsageError, match="--synchronous is for one process"):
        make_plan(config, Ranks(0, 2, 0, 2))
    config = config._replace(output=config.output._replace(xpid=None))
    with pytest.raises(UsageError, match="name the run with --xpid"):
        make_plan(config, Ranks(0, 2, 0, 2))


def test_a_long_tmpdir_is_refused_before_anything_is_written(make_config, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 85)
    with pytest.raises(UsageError, match="is too long for the paths of sockets"):
        make_plan(make_config())
    assert not list(tmp_path.iterdir())


def test_a_run_whose_checkpoint_could_not_be_read_is_refused(make_config):
    config = make_config()
    config = config._replace(observation=config.observation._replace(frame_height=20_000))
    with pytest.raises(UsageError, match="such a run cannot be saved: the observation: frame_"):
        make_plan(config)
