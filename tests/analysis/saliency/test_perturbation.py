"""Outputs under masks against a plain loop after the paper, and where they are drawn."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from tests.analysis.saliency.known import observe, random_frame
from torchbeast.analysis.saliency import Perturbation, SaliencyConfig, Score
from torchbeast.models import AgentConfig, make_agent


def policy_map(outputs):
    return Score("policy", "policy", "logits²/2")(outputs, 0)


def value_map(outputs, head=0):
    return Score("value", "value", "sigma²/2", head)(outputs, 0)


def maps(outputs):
    return policy_map(outputs), value_map(outputs)


def test_equals_a_plain_loop_after_the_paper():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari", use_lstm=True)).eval()
    frame = random_frame()
    state = tuple(torch.randn_like(s) for s in agent.initial_state(1))
    perturbation = Perturbation(agent, SaliencyConfig(density=20, radius=5, batch_size=7))
    outputs, energy = perturbation(observe(frame), state), perturbation.blur_energy(observe(frame))
    policy, value = maps(outputs)
    assert policy.shape == value.shape == (5, 5)

    inputs = observe(frame)._asdict()
    blurred = np.stack([gaussian_filter(plane.astype(float), 3) for plane in frame])
    with torch.no_grad():
        before, _ = agent(inputs, state)
        for i in range(5):
            for j in range(5):
                rows, columns = np.mgrid[:84, :84]
                square = (rows - 20 * i) ** 2 + (columns - 20 * j) ** 2
                mask = np.exp(-square / (2 * 5**2))
                perturbed = frame * (1 - mask) + blurred * mask
                assert energy[i, j] == pytest.approx(np.linalg.norm(perturbed - frame), rel=1e-2)
                inputs["frame"] = torch.tensor(perturbed, dtype=torch.float32).view(1, 1, 4, 84, 84)
                after, _ = agent(inputs, state)
                change = after.policy_logits - before.policy_logits
                assert policy[i, j] == pytest.approx(
                    float(0.5 * change.square().sum()), rel=1e-2, abs=1e-9
                )
                change = after.baseline - before.baseline
                assert value[i, j] == pytest.approx(
                    float(0.5 * change.square().sum()), rel=1e-2, abs=1e-9
                )


def test_a_picture_without_influence_gives_a_black_map():
    agent = make_agent(AgentConfig(agent_type="atari")).eval()
    outputs = Perturbation(agent, SaliencyConfig(density=30))(observe(np.full((4, 84, 84), 7)), ())
    for scores in maps(outputs):
        assert np.array_equal(scores, np.zeros((3, 3)))


def test_maps_in_bfloat16_are_nearly_those_in_float32():
    torch.manual_seed(0)
    agent = make_agent(AgentConfig(agent_type="atari")).eval()
    exact, rounded = (
        policy_map(
            Perturbation(agent, SaliencyConfig(20, dtype=dtype))(observe(random_frame()), ())
        )
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert 0 < np.abs(rounded - exact).max() < 0.2 * exact.max()
    assert agent.compute_dtype is torch.float32


def test_each_value_head_has_its_own_map():
    torch.manual_seed(0)
    config = AgentConfig(agent_type="atari", use_popart=True, tasks=("a", "b"))
    agent = make_agent(config).eval()
    agent.baseline.weight.data[1] = 0
    outputs = Perturbation(agent, SaliencyConfig(density=20))(observe(random_frame()), ())
    assert value_map(outputs, 0).max() > 0
    assert value_map(outputs, 1).max() == 0
