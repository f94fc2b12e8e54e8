"""Checks of maps that are known to be right, and of maps that are known to be wrong."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from tests.analysis.saliency.known import PLACES, Patches, make_step, random_frame
from torchbeast.analysis.saliency import Perturbation, SaliencyConfig, parse_scores
from torchbeast.analysis.saliency.checks import (
    MAP,
    check_faithfulness,
    check_gradients,
    check_randomisation,
    partial_rank_correlation,
    rank_correlation,
    shuffle_from_top,
)
from torchbeast.models import AgentConfig, make_agent


@pytest.fixture(scope="module")
def agent():
    return Patches(PLACES).eval()


def parse(step, *texts):
    return parse_scores(texts, step.subject)


def faithfulness(agent, step, score, scores=None):
    scores = step.score(score.name) if scores is None else scores
    return check_faithfulness(agent, [step], score, {MAP: [scores]}, step.grid)


@pytest.mark.parametrize("action", [0, 1, 2])
def test_the_map_of_an_action_that_reads_one_patch_is_perfect(agent, action):
    step = make_step(agent, agent.bright_frame(action), action)
    (score,) = parse(step, f"action:A{action}")
    found = faithfulness(agent, step, score)
    assert found.gain() == pytest.approx(1, abs=0.02)
    assert found.curves[MAP].deletion[0] == 0
    assert found.curves[MAP].insertion[-1] == 0


def test_a_map_of_another_place_is_no_better_than_chance(agent):
    step = make_step(agent, agent.bright_frame())
    (score,) = parse(step, "action:A0")
    wrong = step.score("action:A2")
    assert faithfulness(agent, step, score, wrong).gain() < 0.05
    assert faithfulness(agent, step, score).gain() > 0.5


def test_shuffling_the_head_destroys_the_map_of_an_action(agent):
    step = make_step(agent, agent.bright_frame(1), 1)
    scores = parse(step, "action:A1")
    found = check_randomisation(agent, [step], scores, SaliencyConfig(radius=3))
    assert list(found) == ["action:A1"]
    for correlations in found["action:A1"]:
        assert list(correlations) == ["heads"]
        assert correlations["heads"] < 0.5


def test_integrated_gradients_agree_with_a_right_map_and_not_with_a_wrong_one(agent):
    step = make_step(agent, agent.bright_frame())
    (score,) = parse(step, "value")
    perturbation = Perturbation(agent, SaliencyConfig(density=3, radius=3))
    right, wrong = (step.score(name) for name in ("value", "action:A0"))
    found = check_gradients(agent, [step], score, [right], perturbation)
    assert found.correlation > 0.9
    # The other patches react to the blur, too, but the value does not read them.
    assert found.partial > 0.7
    assert check_gradients(agent, [step], score, [wrong], perturbation).correlation < 0.3


def test_each_copy_has_one_more_shuffled_layer_and_the_agent_none():
    torch.manual_seed(0)
    shape = (2, 40, 40)
    agent = make_agent(AgentConfig(agent_type="atari", observation_shape=shape)).eval()
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    step = make_step(agent, random_frame(shape))
    expected = []
    for name, shuffled in shuffle_from_top(agent, step):
        expected += ["policy", "baseline"] if name == "heads" else [name]
        state = shuffled.state_dict()
        changed = {
            key.rsplit(".", 1)[0]
            for key, value in state.items()
            if not torch.equal(value, before[key])
        }
        assert changed == set(expected)
        for key, value in state.items():
            torch.testing.assert_close(value.flatten().sort()[0], before[key].flatten().sort()[0])
    assert expected == ["policy", "baseline", "fc", "conv3", "conv2", "conv1"]
    assert all(torch.equal(value, before[key]) for key, value in agent.state_dict().items())


def test_the_layers_of_a_resnet_are_shuffled_from_the_top_in_any_precision():
    agent = make_agent(AgentConfig()).eval()
    agent.compute_dtype = torch.bfloat16
    step = make_step(agent, random_frame(agent.config.observation_shape))
    names = [name for name, _ in shuffle_from_top(agent, step)]
    assert names[:3] == ["heads", "fc", "resnet2.2.3"]
    assert names[-3:] == ["resnet1.0.3", "resnet1.0.1", "feat_convs.0.0"]


def test_the_partial_correlation_is_that_of_the_inverse_of_all_correlations():
    rng = np.random.default_rng(0)
    control = rng.normal(size=(9, 9))
    a, b = (control + 0.5 * rng.normal(size=(9, 9)) for _ in range(2))
    precision = np.linalg.inv(spearmanr(np.stack([a, b, control], axis=-1).reshape(-1, 3))[0])
    expected = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    assert partial_rank_correlation(a, b, control) == pytest.approx(expected)
    assert abs(expected) < 0.3 < 0.7 < rank_correlation(a, b)
    assert partial_rank_correlation(a, control, control) == 0
