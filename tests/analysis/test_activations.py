import numpy as np
import pytest
import torch

from tests.analysis.permuted import permute_agent, random_permutations
from torchbeast.analysis.activations import centred_gram, grams, linear_cka, play_frames
from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.evaluate.playing import Trained
from torchbeast.models import AgentConfig, make_agent


def cka(x, y):
    return linear_cka(*(centred_gram(torch.from_numpy(a)) for a in (x, y)))


def test_equals_the_formula_over_features():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 8))
    y = np.tanh(x[:, :5]) + rng.normal(size=(50, 5))
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    expected = np.linalg.norm(yc.T @ xc) ** 2 / (
        np.linalg.norm(xc.T @ xc) * np.linalg.norm(yc.T @ yc)
    )
    assert 0.1 < expected < 0.9
    assert cka(x, y) == pytest.approx(expected)


def test_is_blind_to_rotation_scale_and_shift_and_tells_other_features_apart():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8))
    rotation, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    assert cka(x, x) == pytest.approx(1)
    assert cka(x, 3 * x @ rotation + 5) == pytest.approx(1)
    assert cka(x, rng.normal(size=(200, 8))) < 0.2
    assert cka(x, np.ones((200, 8))) == 0


@pytest.fixture(scope="module")
def agent():
    torch.manual_seed(0)
    return make_agent(AgentConfig()).eval()


@pytest.fixture(scope="module")
def frames(agent):
    return play_frames(Trained(agent, "", ""), "PongNoFrameskip-v4", 12)


def test_frames_are_of_the_game_and_differ(frames):
    assert frames.shape == (12, 4, 84, 84)
    assert frames.dtype == torch.uint8
    assert len({frame.numpy().tobytes() for frame in frames}) == 12


def test_a_network_responds_like_itself_in_any_order_of_channels_and_unlike_another(agent, frames):
    responses = grams(agent, frames, 0)
    assert list(responses) == LAYER_NAMES
    permuted = make_agent(agent.config).eval()
    permuted.load_state_dict(agent.state_dict())
    permute_agent(permuted, random_permutations(1))
    torch.manual_seed(1)
    other = make_agent(agent.config).eval()
    same = {name: linear_cka(responses[name], g) for name, g in grams(permuted, frames, 0).items()}
    different = [linear_cka(responses[name], g) for name, g in grams(other, frames, 0).items()]
    assert same == pytest.approx(dict.fromkeys(responses, 1.0), abs=1e-4)
    assert min(different) < 0.99
