import pytest
import torch

from tests import checkpoints
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files
from torchbeast.train import prepare
from torchbeast.train.initialisation import initialise, match_actions, plan_initialisation
from torchbeast.train.start import make_learner, resume_or_start

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
AIR_RAID = "AirRaidNoFrameskip-v4"


@pytest.fixture
def save_agent(tmp_path):
    """Saves an agent as a run in ``tmp_path``."""

    def save(name="trained", step=None, measured=False, emulator_gray=False, **changes):
        torch.manual_seed(1)
        config = AgentConfig(agent_type="atari", **changes)
        agent = make_agent(config)
        if measured:
            agent.frame_mean.fill_(7.0)
            agent.frame_scale.fill_(0.25)
            agent.baseline.set_statistics([(5.0, 2.0)] * len(config.tasks))
        path = run_files.model_path(tmp_path, name, step)
        return checkpoints.save_agent(path, agent, steps=7, emulator_gray=emulator_gray)

    return save


def begin_run(config):
    plan = prepare(config)
    state = resume_or_start(plan)
    return make_learner(plan, state, lambda _: None, lambda: None).agent


def test_weights_of_a_run_are_taken_and_told(make_config, save_agent, caplog):
    caplog.set_level("INFO")
    source = save_agent(num_actions=6)
    agent = begin_run(make_config(f"--env={PONG},{BREAKOUT}", "--init_from=trained"))
    assert torch.equal(agent.conv1.weight, source.conv1.weight)
    assert agent.config.num_actions == 18
    # NOOP and FIRE are 0 and 1 in both; RIGHT is 2 of Pong's own and 3 of all.
    assert torch.equal(agent.policy.bias[[0, 1, 3]], source.policy.bias[[0, 1, 2]])
    text = caplog.text
    assert "conv1, conv2, conv3, fc, policy" in text
    assert "Known actions: 6 of 18" in text
    assert "Known games: Pong" in text
    assert "New games: Breakout" in text
    assert "Initialised anew: baseline" in text


def test_new_games_are_measured_and_known_ones_stay_as_they_were(make_config, save_agent, caplog):
    source = save_agent(measured=True, use_popart=True, num_actions=18, tasks=(PONG, "Other"))
    games = f"--env={BREAKOUT},{PONG}"
    agent = begin_run(make_config(games, "--use_popart", "--init_from=trained"))
    breakout, pong = agent.frame_mean
    assert (pong == 7).all()
    assert len(breakout.unique()) > 100
    assert agent.frame_scale[1] == 0.25
    assert agent.frame_scale[0] < 1
    assert agent.baseline.mu[1] == 5.0
    assert 0 < agent.baseline.mu[0] < 1
    assert torch.equal(agent.baseline.weight[1], source.baseline.weight[0])


@pytest.mark.parametrize("emulator_gray", [True, False])
def test_a_game_that_was_learned_from_wrong_pictures_is_new(
    make_config, save_agent, caplog, emulator_gray
):
    caplog.set_level("INFO")
    save_agent(num_actions=18, tasks=(PONG, AIR_RAID), emulator_gray=emulator_gray)
    begin_run(make_config(f"--env={PONG},{AIR_RAID}", "--init_from=trained"))
    assert ("AirRaid counts as new: the agent" in caplog.text) is emulator_gray
    assert ("New games: AirRaid" in caplog.text) is emulator_gray


def test_an_agent_that_sees_frames_as_in_2019_sees_new_games_so(make_config, save_agent):
    save_agent(num_actions=4, tasks=(BREAKOUT,))
    plan = prepare(make_config(f"--env={PONG}", "--init_from=trained"))
    plan = plan._replace(
        config=plan.config._replace(network=plan.config.network._replace(fixed_input_scale=False))
    )
    initialisation = plan_initialisation(plan, seed=0)
    assert initialisation.statistics == {}
    agent = make_agent(plan.agent)
    initialise(agent, plan, initialisation)
    assert not agent.frame_mean.any()


def test_a_trained_agent_decides_about_its_input_and_that_is_told(make_config, save_agent, caplog):
    source = save_agent(measured=True, use_popart=True, num_actions=4, tasks=("Mock",))
    agent = begin_run(make_config("--fixed_input_scale", "--init_from=trained"))
    assert torch.equal(agent.frame_scale, source.frame_scale)
    assert "--fixed_input_scale changes nothing" in caplog.text


@pytest.mark.parametrize("clips", [True, False])
def test_the_reward_input_stays_what_it_was(make_config, save_agent, clips):
    save_agent(num_actions=4, tasks=("Mock",), clip_reward_input=clips)
    plan = prepare(make_config("--init_from=trained"))
    state = resume_or_start(plan)
    assert state.agent_config(plan).clip_reward_input is clips
    learner = make_learner(plan, state, lambda _: None, lambda: None)
    path = run_files.model_path(plan.config.output.savedir, "run")
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
        (["--init_from=trained", "--use_lstm"], "cannot be used: it is of another network"),
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
        resume_or_start(prepare(make_config(*arguments)))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["trained"]


def test_actions_are_common_by_name_or_in_a_common_game():
    pong = AgentConfig(num_actions=6, tasks=(PONG,))
    breakout = AgentConfig(num_actions=4, tasks=(BREAKOUT,))
    custom = AgentConfig(num_actions=4, tasks=("a:B-v0",))
    # NOOP, FIRE, RIGHT, LEFT of both.
    assert match_actions(breakout, pong, common_game=False) == {0: 0, 1: 1, 2: 2, 3: 3}
    full = match_actions(breakout._replace(num_actions=18), pong, common_game=False)
    assert full == {0: 0, 1: 1, 3: 2, 4: 3, 11: 4, 12: 5}
    assert match_actions(custom, breakout, common_game=False) == {}
    assert match_actions(custom, custom, common_game=True) == {i: i for i in range(4)}
    assert match_actions(custom, custom._replace(tasks=("a:C-v0",)), common_game=False) == {}
