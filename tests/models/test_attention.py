import itertools

import pytest
import torch

from tests.models.inputs import make_inputs
from torchbeast.models import AgentConfig, make_agent
from torchbeast.models.attention import ConvLSTM

CONFIG = AgentConfig(agent_type="aaa", observation_shape=(3, 48, 40), num_actions=4)


def test_queries_of_a_new_agent_look_at_places_of_their_own():
    torch.manual_seed(0)
    agent = make_agent(CONFIG._replace(observation_shape=(4, 84, 84)))
    agent.scale_initial_weights()
    inputs = make_inputs(agent.config)
    with torch.inference_mode():
        agent(inputs, agent.initial_state(3))
    maps = agent.attention.flatten(0, 1).flatten(2)  # [N, Q, places]
    for a, b in itertools.combinations(range(4), 2):
        shared = torch.minimum(maps[:, a], maps[:, b]).sum(dim=-1)
        assert shared.max() < 0.75  # 1 would be the same places.
    # No query attends to one place only: softmax would have no gradient there.
    assert maps.max() < 0.5


def test_conv_lstm_on_one_pixel_is_the_formula():
    torch.manual_seed(0)
    module = ConvLSTM(1, 1, 1, 1)
    torch.nn.init.normal_(module.peepholes)
    wx, b = module.of_input.weight[:, 0, 1, 1], module.of_input.bias
    wh, (pi, pf, po) = module.of_hidden.weight[:, 0, 1, 1], module.peepholes.flatten()
    x, h, c = torch.tensor(0.7), torch.tensor(-0.4), torch.tensor(0.9)
    i, f, g, o = wx * x + b + wh * h
    new_c = torch.sigmoid(f + pf * c) * c + torch.sigmoid(i + pi * c) * torch.tanh(g)
    new_h = torch.sigmoid(o + po * new_c) * torch.tanh(new_c)
    one = (1, 1, 1, 1)
    output, (hidden, cell) = module(
        x.view(1, *one), torch.zeros(1, 1, dtype=torch.bool), (h.view(one), c.view(one))
    )
    assert output.item() == hidden.item() == pytest.approx(new_h.item())
    assert cell.item() == pytest.approx(new_c.item())


def test_every_parameter_learns():
    torch.manual_seed(0)
    agent = make_agent(CONFIG._replace(use_popart=True, tasks=("a", "b")))
    task = torch.tensor([[0, 1, 0]] * 8, dtype=torch.int32)
    inputs = make_inputs(agent.config, steps=8)._replace(task=task)
    output, _ = agent(inputs, agent.initial_state(3))
    (output.policy_logits.square().sum() + output.normalized_baseline.sum()).backward()
    for name, parameter in agent.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_bfloat16_is_for_convolutions_only():
    torch.manual_seed(0)
    agent = make_agent(CONFIG)
    agent.scale_initial_weights()
    exact, _ = agent(make_inputs(CONFIG), agent.initial_state(3))
    agent.compute_dtype = torch.bfloat16
    copy = agent.inference_copy()
    convolutions = (copy.vision[0], copy.memory.of_input, copy.memory.of_hidden)
    assert {layer.weight.dtype for layer in convolutions} == {torch.bfloat16}
    assert copy.memory.peepholes.dtype == copy.cell.weight_ih.dtype == torch.float32
    for fast in (agent, copy):
        output, state = fast(make_inputs(CONFIG), fast.initial_state(3))
        assert {x.dtype for x in (output.policy_logits, *state)} == {torch.float32}
        assert not torch.equal(output.policy_logits, exact.policy_logits)
        torch.testing.assert_close(output.policy_logits, exact.policy_logits, atol=0.01, rtol=0.01)
