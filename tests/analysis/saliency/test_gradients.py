import numpy as np
import pytest
import torch

from tests.analysis.saliency.known import PLACES, Patches, make_step
from torchbeast.analysis.saliency import parse_scores
from torchbeast.analysis.saliency.gradients import integrated_gradients
from torchbeast.analysis.saliency.perturbation import blur
from torchbeast.models import AgentConfig, make_agent


@pytest.fixture(scope="module")
def agent():
    return Patches(PLACES).eval()


def compute(agent, step, text):
    (score,) = parse_scores([text], step.subject)
    return integrated_gradients(agent, step, score)


def test_the_pixels_shares_of_a_value_add_up_to_its_change_without_the_picture(agent):
    step = make_step(agent, agent.bright_frame())
    shares = compute(agent, step, "value")
    # The value is the mean of the last patch, in [0, 1]. All its pixels become darker.
    row, column = PLACES[2]
    inside = np.zeros((84, 84), bool)
    inside[row : row + 6, column : column + 6] = True
    blurred = blur(step.inputs.frame[0, 0].float())[:, torch.from_numpy(inside)].mean() / 255
    assert shares.sum() == pytest.approx(0.5 * (1 - blurred.item()) ** 2, rel=1e-3)
    assert shares[inside].all()
    assert not shares[~inside].any()


@pytest.mark.parametrize(
    ("text", "use_lstm"),
    [("policy", False), ("value", True), ("action", False)],
)
def test_networks_have_shares_of_every_score(text, use_lstm):
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="resnet", use_lstm=use_lstm, num_actions=3)).eval()
    frame = np.random.default_rng(0).integers(256, size=(4, 84, 84))
    with torch.inference_mode():  # As a game is watched. The maps are not used.
        step = make_step(agent, frame, state=agent.initial_state(1), density=84)
    shares = compute(agent, step, text)
    assert shares.shape == (84, 84)
    assert np.isfinite(shares).all()
    assert shares.any()
