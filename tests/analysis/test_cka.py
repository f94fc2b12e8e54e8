import numpy as np
import pytest
import torch

from tests.analysis.permuted import permute_agent, random_permutations
from torchbeast.analysis.cka import (
    Responses,
    debiased_cka,
    gram,
    grams,
    play_frames,
    unbiased_hsic,
)
from torchbeast.analysis.filter_comp import Pair, RunAgent, Snapshot, make_untrained, save_untrained
from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.models import AgentConfig, make_agent
from torchbeast.play.agents import Trained, read_trained
from torchbeast.records import checkpoint


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


@pytest.mark.parametrize("count", [16, 64])
def test_unrelated_features_have_none_in_common_whatever_the_number_of_frames(count):
    rng = np.random.default_rng(0)
    values = [debiased_cka(*(gram(features(rng, count, 200)) for _ in range(2))) for _ in range(20)]
    assert np.mean(values) == pytest.approx(0, abs=0.03)


def game_id(name):
    return f"{name}NoFrameskip-v4"


def save(directory, name, fill=0.0, **config):
    """Saves a new agent; returns how analyses call it and its checkpoint."""
    agent = make_agent(AgentConfig(**config))
    agent.frame_mean.fill_(fill)
    path = directory / name / "model.tar"
    contents = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(path, contents)
    return RunAgent(name, "multi", {0: path}), Snapshot(name, 0, path, {})


@pytest.fixture(scope="module")
def agent():
    torch.manual_seed(0)
    return make_agent(AgentConfig()).eval()


@pytest.fixture(scope="module")
def frames(agent):
    return play_frames(Trained(agent, "", ""), "PongNoFrameskip-v4", 12)


def test_agents_are_shown_the_games_that_both_know_in_any_spelling(tmp_path, caplog):
    games = {
        "a": ("BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"),
        "b": ("ALE/Pong-v5", "ALE/Seaquest-v5"),
        "c": ("PongNoFrameskip-v4",),
        "d": ("BreakoutNoFrameskip-v4", "SeaquestNoFrameskip-v4"),
    }
    saved = [save(tmp_path, name, tasks=tasks, num_actions=18) for name, tasks in games.items()]
    agents, (a, b, c, d) = zip(*saved, strict=True)
    pairs = Pair("", a, b), Pair("", b, a), Pair("", c, d)
    one, other, unknown = map(Responses(agents, pairs, 8, None), pairs)
    assert list(one) == ["Pong"]
    for name in LAYER_NAMES:
        assert one["Pong"][name] == pytest.approx(other["Pong"][name])
    assert unknown == {"Pong": {}}  # An agent of several games has no mean picture for another.
    assert "d does not know PongNoFrameskip-v4: no cka" in caplog.text


def test_the_untrained_control_of_a_game_sees_the_frames_of_that_game_as_its_agent_does(tmp_path):
    saved = [
        save(tmp_path, name, fill, tasks=(game_id(name),))
        for name, fill in (("Pong", 40.0), ("Carnival", 90.0))
    ]
    agents, snapshots = map(list, zip(*saved, strict=True))
    untrained = save_untrained(agents[0], tmp_path, count=2)
    controls = [Snapshot(a.name, 0, a.checkpoints[0], {}) for a in untrained]
    pairs = [*(Pair("", s, s) for s in snapshots), Pair("untrained", *controls)]
    result = Responses([*agents, *untrained], pairs, 8, None)(pairs[-1])
    assert list(result) == ["Pong", "Carnival"]
    for (game, found), fill in zip(result.items(), (40.0, 90.0), strict=True):
        trained = read_trained(tmp_path / game / "model.tar", game)
        frames = play_frames(trained, game_id(game), 8)
        networks = [make_untrained(trained.agent, seed) for seed in range(2)]
        for network in networks:
            network.frame_mean.fill_(fill)
        one, other = (grams(network, frames, 0) for network in networks)
        expected = {name: debiased_cka(one[name], other[name]) for name in one}
        assert {name: d.sum for name, d in found.items()} == pytest.approx(expected, abs=1e-5)


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
    assert min(different) < 0.99
