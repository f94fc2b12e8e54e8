import numpy as np
import pytest
import torch

from tests.analysis.permuted import permute_agent, random_permutations
from torchbeast.analysis.activations import Responses, centred_gram, grams, linear_cka
from torchbeast.analysis.agents import RunAgent, Snapshot
from torchbeast.analysis.comparison import Pair
from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.analysis.moments import play_frames
from torchbeast.evaluate.trained import Trained
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint


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


def test_a_game_is_the_same_in_any_spelling(agent, tmp_path):
    """Both agents get the same frames, of the game that both know."""
    snapshots = []
    agents = []
    for name, tasks in (
        ("a", ("BreakoutNoFrameskip-v4", "PongNoFrameskip-v4")),
        ("b", ("ALE/Pong-v5", "ALE/Seaquest-v5")),
    ):
        config = agent.config._replace(tasks=tasks, num_actions=18)
        contents = {"agent": config._asdict(), "model_state_dict": make_agent(config).state_dict()}
        path = tmp_path / name / "model.tar"
        checkpoint.save(path, contents)
        agents.append(RunAgent(name, "multi", {1: path}))
        snapshots.append(Snapshot(name, 1, path, {}))
    responses = Responses(agents, 8)
    assert responses._choose_game("a", "b") == "PongNoFrameskip-v4"
    assert responses._choose_game("b", "a") == "ALE/Pong-v5"
    a, b = snapshots
    one, other = responses(Pair("", a, b)), responses(Pair("", b, a))
    assert one == other
    assert list(responses._frames) == ["Pong"]


def test_an_agent_of_several_games_is_not_shown_a_game_that_it_does_not_know(
    agent, tmp_path, caplog
):
    """It has no mean picture for it."""
    games = {
        "one": ("PongNoFrameskip-v4",),
        "two": ("BreakoutNoFrameskip-v4", "SeaquestNoFrameskip-v4"),
        "other": ("BoxingNoFrameskip-v4",),
    }
    snapshots = {}
    agents = []
    for name, tasks in games.items():
        config = agent.config._replace(tasks=tasks)
        contents = {"agent": config._asdict(), "model_state_dict": make_agent(config).state_dict()}
        path = tmp_path / name / "model.tar"
        checkpoint.save(path, contents)
        agents.append(RunAgent(name, "multi", {1: path}))
        snapshots[name] = Snapshot(name, 1, path, {})
    responses = Responses(agents, 8)
    for _ in range(2):
        assert responses(Pair("", snapshots["one"], snapshots["two"])) == {}
    assert caplog.text.count("two does not know PongNoFrameskip-v4: no cka") == 1
    assert len(responses(Pair("", snapshots["one"], snapshots["other"]))) == len(LAYER_NAMES)


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
