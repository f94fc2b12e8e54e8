import pytest
import torch

from tests import checkpoints
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files
from torchbeast.train import make_plan
from torchbeast.train.initialisation import initialise, plan_initialisation
from torchbeast.train.start import make_learner, resume_or_start

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
AIR_RAID = "AirRaidNoFrameskip-v4"


@pytest.fixture
def save_agent(tmp_path):
    """Saves an agent as a run in ``tmp_path``."""

    def save(name="trained", step=None, measured=False, **config):
        torch.manual_seed(1)
        agent = make_agent(AgentConfig(**{"agent_type": "atari", **config}))
        if measured:
            agent.frame_mean.fill_(7.0)
            agent.frame_scale.fill_(0.25)
            if agent.config.use_popart:
                agent.baseline.set_statistics([(5.0, 2.0)] * len(agent.config.tasks))
        path = run_files.model_path(tmp_path / name, step)
        return checkpoints.save_agent(path, agent, steps=7)

    return save


def begin_run(config):
    plan = make_plan(config)
    state = resume_or_start(plan)
    return make_learner(plan, state, lambda _: None, lambda: None).agent


def test_a_run_with_the_name_of_a_shipped_agent_begins_again_from_that_agent(make_config, tmp_path):
    (tmp_path / "Pong").mkdir()  # The run was killed before its first checkpoint.
    (tmp_path / "Pong" / "meta.json").write_text("{}")
    plan = make_plan(
        make_config("--xpid=Pong", "--init_from=Pong", "--env=Pong", "--agent_type=resnet")
    )
    source = plan_initialisation(plan, seed=1).source
    assert source.path == run_files.SHIPPED / "Pong" / "model.tar"


def test_initial_weights_are_scaled_unless_those_of_torch_are_asked_for(make_config):
    scaled = begin_run(make_config())
    left = begin_run(make_config("--torch_initial_weights", "--xpid=torch"))
    torch.testing.assert_close(scaled.policy.weight, left.policy.weight / 10)
    assert not torch.equal(scaled.conv1.weight, left.conv1.weight)


def test_an_agent_of_the_same_games_is_taken_whole(make_config, save_agent, caplog):
    caplog.set_level("INFO")
    source = save_agent(measured=True, use_popart=True, num_actions=18, tasks=(PONG, BREAKOUT))
    config = make_config(f"--env={PONG},{BREAKOUT}", "--use_popart", "--init_from=trained")
    agent = begin_run(config)
    for name, value in source.state_dict().items():
        assert torch.equal(agent.state_dict()[name], value), name
    assert "trained/model.tar: the whole agent" in caplog.text


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([f"--env={PONG},{BREAKOUT}"], {"tasks": (PONG, "Other")}),
        ([f"--env={PONG}"], {"use_popart": False, "num_actions": 6, "tasks": (PONG,)}),
    ],
)
def test_of_an_agent_of_other_games_or_heads_the_encoder_is_taken(
    make_config, save_agent, caplog, options, changes
):
    caplog.set_level("INFO")
    source = save_agent(**{"measured": True, "use_popart": True, "num_actions": 18, **changes})
    agent = begin_run(make_config(*options, "--use_popart", "--init_from=trained"))
    for name in ("conv1.weight", "conv2.bias", "fc.weight"):
        assert torch.equal(agent.get_parameter(name), source.get_parameter(name)), name
    assert not torch.equal(agent.policy.weight, source.policy.weight)
    assert not torch.equal(agent.baseline.weight[0], source.baseline.weight[0])
    # All games are measured anew.
    assert all(len(mean.unique()) > 100 for mean in agent.frame_mean)
    assert (agent.baseline.mu.abs() < 5).all()
    assert "anew: frame_mean, frame_scale, policy, baseline" in caplog.text


@pytest.mark.parametrize(
    ("agent_type", "anew"),
    [("atari", ["core"]), ("resnet", []), ("aaa", ["answer.0.weight"])],
)
def test_weights_that_depend_on_the_number_of_actions_start_anew(
    make_config, save_agent, caplog, agent_type, anew
):
    caplog.set_level("INFO")
    memory = {"agent_type": agent_type, "use_lstm": agent_type != "aaa"}
    source = save_agent(num_actions=4, tasks=(BREAKOUT,), **memory).state_dict()
    options = ["--use_lstm"] if memory["use_lstm"] else []
    agent = begin_run(
        make_config(f"--env={PONG}", f"--agent_type={agent_type}", "--init_from=trained", *options)
    )
    equal = {name for name, value in agent.state_dict().items() if value.equal(source[name])}
    expected = ("policy.", "baseline.", *anew)
    assert source.keys() - equal == {name for name in source if name.startswith(expected)}
    assert ", ".join(["anew: frame_mean, frame_scale", *anew, "policy"]) in caplog.text


def test_statistics_start_with_those_of_random_play_unless_told_otherwise(make_config):
    options = (f"--env={PONG},{BREAKOUT}", "--use_popart")
    measured = begin_run(make_config(*options)).baseline
    unit = begin_run(make_config(*options, "--unit_statistics", "--xpid=unit")).baseline
    assert (measured.mu[0] < 0) & (measured.mu[1] > 0)
    assert (measured.sigma != 1).all()
    assert unit.mu.tolist() == [0, 0]
    assert unit.sigma.tolist() == [1, 1]
    assert torch.equal(measured.weight, unit.weight)


def test_an_agent_that_sees_frames_as_in_2019_sees_new_games_so(make_config, save_agent):
    save_agent(num_actions=4, tasks=(BREAKOUT,))
    plan = make_plan(make_config(f"--env={PONG}", "--init_from=trained"))
    plan = plan._replace(
        config=plan.config._replace(network=plan.config.network._replace(fixed_input_scale=False))
    )
    initialisation = plan_initialisation(plan, seed=0)
    assert initialisation.statistics == []
    agent = make_agent(plan.agent)
    initialise(agent, plan, initialisation)
    assert not agent.frame_mean.any()


def test_a_trained_agent_decides_about_its_input_and_that_is_told(make_config, save_agent, caplog):
    source = save_agent(measured=True, num_actions=4, tasks=("Mock",))
    agent = begin_run(make_config("--fixed_input_scale", "--init_from=trained"))
    assert torch.equal(agent.frame_scale, source.frame_scale)
    assert "--fixed_input_scale changes nothing" in caplog.text


@pytest.mark.parametrize("clips", [True, False])
def test_the_reward_input_stays_what_it_was(make_config, save_agent, clips):
    save_agent(num_actions=4, tasks=("Mock",), clip_reward_input=clips)
    plan = make_plan(make_config("--init_from=trained"))
    state = resume_or_start(plan)
    assert state.agent_config(plan).clip_reward_input is clips
    learner = make_learner(plan, state, lambda _: None, lambda: None)
    path = run_files.model_path(plan.directory)
    checkpoint.save(path, {**learner.state_dict(), "progress": {}})
    resumed = resume_or_start(plan)
    assert resumed.steps == 0
    assert resumed.agent_config(plan).clip_reward_input is clips


def test_the_trained_agent_may_be_an_intermediate_copy(make_config, save_agent):
    save_agent(num_actions=4, tasks=("Mock",))
    kept = save_agent(step=500, num_actions=4, tasks=("Mock",), use_lstm=True)
    agent = begin_run(make_config("--use_lstm", "--init_from=trained:500"))
    assert torch.equal(agent.policy.weight, kept.policy.weight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--init_from=trained:9"], "No checkpoint at .*model.000000009.tar"),
        (["--init_from=trained", "--use_lstm"], "this run has --agent_type atari with --use_lstm"),
        (
            ["--init_from=trained", "--env=Pong", "--frame_height=42"],
            r"looks at pictures \(4, 84, 84\), these games show \(4, 42, 84\)",
        ),
    ],
)
def test_an_agent_that_does_not_fit_is_refused_in_one_line(
    make_config, save_agent, tmp_path, arguments, message
):
    save_agent(num_actions=4, tasks=("Mock",))
    with pytest.raises(UsageError, match=message) as error:
        resume_or_start(make_plan(make_config(*arguments)))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["trained"]
