import numpy as np
import pytest
import torch

from tests import checkpoints
from torchbeast.analysis.saliency import Explainer, SaliencyConfig, saliency
from torchbeast.core.types import EnvOutput, UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained

PONG, BREAKOUT, QBERT = (f"{g}NoFrameskip-v4" for g in ("Pong", "Breakout", "Qbert"))
COARSE = SaliencyConfig(density=20)


@pytest.fixture(scope="module")
def shared():
    """An agent of two games."""
    torch.manual_seed(0)
    tasks = (PONG, BREAKOUT)
    config = AgentConfig(agent_type="atari", tasks=tasks, num_actions=18, use_popart=True)
    return Trained(make_agent(config).eval(), "both", "100")


def test_three_lines_of_python_give_maps(tmp_path):
    torch.manual_seed(0)
    checkpoints.save_agent(
        tmp_path / "mine" / "model.tar", make_agent(AgentConfig(agent_type="atari"))
    )
    steps = list(saliency(tmp_path / "mine", first_frame=3, num_frames=2, config=COARSE))
    assert [step.step for step in steps] == [3, 4]
    for step in steps:
        assert step.picture.shape == (210, 160, 3)
        assert step.policy.shape == step.value.shape == step.score("action:FIRE").shape == (5, 5)
        assert step.policy.max() > 0
    assert not np.array_equal(steps[0].inputs.frame, steps[1].inputs.frame)


def test_the_value_is_that_of_the_games_own_head(shared):
    explainer = Explainer(shared, BREAKOUT, COARSE)
    (step,) = explainer.watch(num_frames=1)
    assert np.array_equal(step.value, step.score("task:Breakout"))
    assert not np.array_equal(step.value, step.score("task:Pong"))


def test_a_game_without_a_value_head_is_refused(shared):
    with pytest.raises(UsageError, match="both was not trained on Qbert: it has value heads"):
        Explainer(shared, QBERT, COARSE)


def test_a_recurrent_agents_memory_is_carried_and_recorded():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", use_lstm=True)).eval()
    trained = Trained(agent, "one", "100")
    first, second = Explainer(trained, PONG, COARSE).watch(num_frames=2)
    with torch.no_grad():
        _, state = agent(first.inputs, first.state)
    for expected, found in zip(state, second.state, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("lstm_reset", ["life", "game"])
def test_at_a_lost_life_the_memory_is_that_of_the_agent_that_plays(lstm_reset):
    torch.manual_seed(0)
    config = AgentConfig(agent_type="atari", use_lstm=True, lstm_reset=lstm_reset)
    agent = make_agent(config).eval()
    explainer = Explainer(Trained(agent, "one", "100"), PONG, COARSE)
    (step,) = explainer.watch(first_frame=5, num_frames=1)
    yes, no = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.bool)
    lost: EnvOutput = step.inputs._replace(done=yes, game_over=no)
    state = tuple(torch.randn_like(leaf) for leaf in step.state)
    with torch.no_grad():
        output, _ = agent(lost, state, sample=False)
    logits = explainer.perturbation(lost, state).logits
    torch.testing.assert_close(torch.from_numpy(logits), output.policy_logits[0, 0])
