import numpy as np
import pytest
import torch

from tests import checkpoints
from tests.analysis.permuted import permute_agent, random_permutations
from torchbeast.analysis import cka
from torchbeast.analysis.cka import Responses, debiased_cka, gram, grams, play_frames, unbiased_hsic
from torchbeast.analysis.filter_agents import AgentCheckpoint, RunAgent
from torchbeast.analysis.filter_comp import Pair
from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained


def features(rng, count, width):
    return torch.from_numpy(rng.normal(size=(count, width)))


def test_equals_the_sum_over_all_quadruples_of_frames():
    rng = np.random.default_rng(0)
    a, b = (gram(features(rng, 7, 3)) for _ in range(2))
    terms = [
        a[i, j] * (b[i, j] + b[q, r] - 2 * b[i, q])
        for i in range(7)
        for j in range(7)
        for q in range(7)
        for r in range(7)
        if len({i, j, q, r}) == 4
    ]
    assert unbiased_hsic(a, b) == pytest.approx(np.mean(terms))


def test_a_rotated_scaled_and_shifted_copy_is_the_same():
    rng = np.random.default_rng(0)
    x = features(rng, 40, 8)
    rotation = torch.from_numpy(np.linalg.qr(rng.normal(size=(8, 8)))[0])
    assert debiased_cka(gram(x), gram(3 * x @ rotation + 5)) == pytest.approx(1)
    assert debiased_cka(gram(x), gram(torch.ones(40, 8))) == 0


def test_unrelated_features_have_none_in_common():
    rng = np.random.default_rng(0)
    values = [debiased_cka(*(gram(features(rng, 16, 200)) for _ in range(2))) for _ in range(20)]
    assert np.mean(values) == pytest.approx(0, abs=0.03)


def save(directory, name, **config):
    """Saves a new agent; returns how analyses call it and its checkpoint."""
    path = directory / name / "model.tar"
    checkpoints.save_agent(path, make_agent(AgentConfig(**config)))
    return RunAgent(name, "multi", {0: path}), AgentCheckpoint(name, 0, path, {})


@pytest.fixture(scope="module", autouse=True)
def _few_games():
    """Opens two games at a time, not eight: making a game takes longer than its few frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cka, "PARALLEL_GAMES", 2)
        yield


@pytest.fixture(scope="module")
def agent():
    torch.manual_seed(0)
    return make_agent(AgentConfig()).eval()


@pytest.fixture(scope="module")
def frames(agent):
    return play_frames(Trained(agent, "", ""), "PongNoFrameskip-v4", 12)


def test_agents_are_shown_the_first_ones_game_in_any_spelling(tmp_path, caplog):
    games = {
        "a": ("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"),
        "b": ("ALE/Pong-v5", "ALE/Seaquest-v5"),
        "c": ("PongNoFrameskip-v4",),
    }
    saved = [save(tmp_path, name, tasks=tasks, num_actions=18) for name, tasks in games.items()]
    agents, (a, b, c) = zip(*saved, strict=True)
    responses = Responses(agents, 8, None)
    one, other = (responses.compare(Pair("", *pair)) for pair in ((a, b), (c, a)))
    assert responses.game == "PongNoFrameskip-v4"
    assert list(one) == LAYER_NAMES
    assert list(other) == LAYER_NAMES


def test_an_agents_custom_game_is_not_imported(tmp_path):
    agent, _ = save(tmp_path, "a", tasks=("evil:Evil-v0",))
    with pytest.raises(UsageError, match="allow its import with --cka_game evil:Evil-v0"):
        Responses([agent], 4, None)


def test_agents_that_do_not_know_the_game_see_it_as_the_player_does(tmp_path):
    frame_mean = torch.full((1, 4, 84, 84), 90.0)
    games = {"a": ("Pong",), "b": ("Breakout",), "c": ("Breakout", "Seaquest")}
    saved = []
    for name, tasks in games.items():
        torch.manual_seed(0)
        agent = make_agent(AgentConfig(tasks=tuple(f"{game}NoFrameskip-v4" for game in tasks)))
        agent.frame_mean[:] = frame_mean if name == "a" else 200.0
        agent.frame_scale[:] = 1 / 40 if name == "a" else 1 / 10
        path = tmp_path / name / "model.tar"
        checkpoints.save_agent(path, agent)
        saved.append((RunAgent(name, "single", {0: path}), AgentCheckpoint(name, 0, path, {})))
    agents, (a, *others) = zip(*saved, strict=True)
    responses = Responses(agents, 8, None)
    for other in others:  # All have the same weights.
        same = {name: d.sum for name, d in responses.compare(Pair("", a, other)).items()}
        assert same == pytest.approx(dict.fromkeys(LAYER_NAMES, 1.0), abs=1e-4)


def test_a_network_responds_like_itself_in_any_order_of_channels_and_unlike_another(agent, frames):
    responses = grams(agent, frames, 0)
    assert list(responses) == LAYER_NAMES
    permuted = make_agent(agent.config).eval()
    permuted.load_state_dict(agent.state_dict())
    permute_agent(permuted, random_permutations(1))
    torch.manual_seed(1)
    other = make_agent(agent.config).eval()
    same = {
        name: debiased_cka(responses[name], g) for name, g in grams(permuted, frames, 0).items()
    }
    different = [debiased_cka(responses[name], g) for name, g in grams(other, frames, 0).items()]
    assert same == pytest.approx(dict.fromkeys(responses, 1.0), abs=1e-4)
    assert np.mean(different) < 0.99
