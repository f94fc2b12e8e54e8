"""Local recomputation against whole forward passes."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.analysis.saliency.known import Patch, observe, random_frame
from torchbeast.analysis.saliency import Perturbation
from torchbeast.analysis.saliency.local import Layer, Span, Window, find_encoder
from torchbeast.models import AgentConfig, ResNet, make_agent

LAYERS = [
    nn.Conv2d(3, 5, kernel_size=3, padding=1),
    nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
    nn.Conv2d(3, 5, kernel_size=8, stride=4),
    nn.Conv2d(3, 5, kernel_size=4, stride=2),
]
WINDOWS = [  # Rows and columns: corners, edges, the middle, one pixel, everything.
    ((0, 5), (0, 3)),
    ((17, 22), (20, 23)),
    ((8, 13), (0, 23)),
    ((9, 10), (11, 12)),
    ((21, 22), (22, 23)),
    ((0, 22), (0, 23)),
]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("module", LAYERS, ids=str)
@pytest.mark.parametrize(("rows", "columns"), WINDOWS)
def test_a_layers_outputs_change_in_the_window_as_in_a_whole_pass_and_nowhere_else(
    module, rows, columns, relu
):
    torch.manual_seed(0)
    window = Window(Span(*rows), Span(*columns))
    plane = torch.randn(1, 3, 22, 23)
    changed = plane.repeat(2, 1, 1, 1)
    inside = (slice(None), slice(None), slice(*rows), slice(*columns))
    changed[inside] = torch.randn_like(changed[inside])
    with torch.inference_mode():
        local = Layer(module, plane, relu=relu)(changed[inside], window)
        before, expected = (module(x.relu() if relu else x) for x in (plane, changed))
    result = before.repeat(2, 1, 1, 1)
    result[:, :, slice(*local.window.rows), slice(*local.window.columns)] = local.values
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def relative_difference(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


@pytest.mark.parametrize("agent_type", ["resnet", "atari"])
@pytest.mark.parametrize("radius", [1, 5, 20])
@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 105, 80)])
def test_local_recomputation_equals_whole_forward_passes(agent_type, radius, shape):
    torch.manual_seed(0)
    config = AgentConfig(agent_type=agent_type, observation_shape=shape, use_popart=True)
    agent = make_agent(config).eval()
    agent.set_frame_statistics(100 * torch.rand(1, *shape), torch.tensor([40.0]))
    inputs = observe(random_frame(shape), last_action=3)
    # With 13, masks are centred on the first pixels and near the last ones.
    local, whole = (
        Perturbation(agent, density=13, radius=radius, batch_size=4, local=local)(inputs, ())
        for local in (True, False)
    )
    for field in ("masked_logits", "masked_normalized_values"):
        changes = [
            getattr(x, field) - getattr(x, field.removeprefix("masked_")) for x in (local, whole)
        ]
        assert np.abs(changes[1]).max() > 1e-4
        # Of outputs, as the changes are differences of them.
        assert relative_difference(getattr(local, field), getattr(whole, field)) < 1e-5


def test_the_recurrent_state_and_the_games_mean_picture_are_those_of_a_whole_pass():
    torch.manual_seed(0)
    config = AgentConfig(tasks=("a", "b"), use_lstm=True, use_popart=True)
    agent = make_agent(config).eval()
    agent.set_frame_statistics(200 * torch.rand(2, 4, 84, 84), torch.tensor([20.0, 90.0]))
    inputs = observe(random_frame())
    inputs = inputs._replace(task=inputs.task + 1)
    state = tuple(torch.randn_like(s) for s in agent.initial_state(1))
    local, whole = (
        Perturbation(agent, density=30, local=local)(inputs, state) for local in (True, False)
    )
    for a, b in zip(local, whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_masks_over_places_without_contrast_change_nothing():
    torch.manual_seed(0)
    frame = np.full((4, 84, 84), 50)
    frame[:, 60:70, 60:70] = 200
    agent = make_agent(AgentConfig()).eval()
    outputs = Perturbation(agent, density=10, batch_size=1)(observe(frame), ())
    assert np.array_equal(outputs.masked_logits[0, 0], outputs.logits)
    assert not np.array_equal(outputs.masked_logits[6, 6], outputs.logits)


def test_an_encoder_of_ones_own_is_not_taken_for_one_that_is_known():
    class Changed(ResNet):
        def encode(self, frames):
            return super().encode(frames) * 2

    config = AgentConfig()
    assert find_encoder(Changed(config)) is None
    assert find_encoder(Patch(config, slice(0, 1), slice(0, 1))) is None
    assert find_encoder(make_agent(config)) is not None
