import pytest
import torch

from torchbeast.analysis.filters import LAYER_NAMES
from torchbeast.analysis.stages import Heads, StagedEncoder, read_heads
from torchbeast.core.types import UsageError
from torchbeast.models import AgentConfig, AtariNet, make_agent
from torchbeast.models.attention import AttentionNet

SHAPE = (4, 40, 40)


def make(agent_type, **config):
    torch.manual_seed(0)
    agent = make_agent(
        AgentConfig(agent_type=agent_type, observation_shape=SHAPE, tasks=("A", "B"), **config)
    ).eval()
    agent.scale_initial_weights()
    agent.frame_mean.copy_(100 * torch.rand_like(agent.frame_mean))
    agent.frame_scale.copy_(torch.tensor([0.01, 0.02]))
    return agent


@pytest.mark.parametrize("agent_type", ["atari", "resnet"])
@torch.inference_mode()
def test_a_chain_entered_behind_any_layer_is_the_encoder(agent_type):
    agent = make(agent_type)
    encoder = StagedEncoder(agent)
    frames = torch.randint(256, (3, *SHAPE), dtype=torch.uint8)
    expected = agent.encode_frames(frames, torch.full((3,), 1))
    state = encoder.start(frames, 1)
    torch.testing.assert_close(encoder.finish(state, 0), expected, atol=1e-5, rtol=1e-5)
    for done, stage in enumerate(encoder.stages, 1):
        state = stage.write(state, stage.convolution(stage.read(state)))
        torch.testing.assert_close(encoder.finish(state, done), expected, atol=1e-5, rtol=1e-5)
    assert encoder.layers == (
        LAYER_NAMES if agent_type == "resnet" else ["conv1", "conv2", "conv3"]
    )


@pytest.mark.parametrize("config", [{"use_popart": True, "use_lstm": True}, {}])
@torch.inference_mode()
def test_heads_are_the_agents_own(config):
    agent = make("atari", **config)
    count, task = 3, 1
    fields = {
        "frame": torch.randint(256, (1, count, *SHAPE), dtype=torch.uint8),
        "reward": torch.tensor([[0.5, -3.0, 0.0]]),
        "done": torch.tensor([[False, False, True]]),
        "task": torch.full((1, count), task),
        "last_action": torch.tensor([[1, 2, 0]]),
    }
    state = tuple(torch.randn_like(part) for part in agent.initial_state(count))
    output, _ = agent(fields, state)
    features = agent.encode_frames(fields["frame"][0], fields["task"])
    heads = read_heads(agent, features, fields, state, task)
    expected = output.policy_logits[0].double().log_softmax(dim=-1)
    torch.testing.assert_close(heads.log_policy, expected, atol=1e-5, rtol=1e-5)
    value = output.normalized_baseline[0, :, task if "use_popart" in config else 0]
    torch.testing.assert_close(heads.value, value.double(), atol=1e-5, rtol=1e-5)


def test_divergence_is_that_of_kullback_and_leibler():
    one, other = (
        Heads(torch.tensor([p], dtype=torch.float64).log(), torch.zeros(1))
        for p in ([0.5, 0.5], [0.9, 0.1])
    )
    assert one.divergence(other).item() == pytest.approx(0.5108256)
    assert other.divergence(one).item() == pytest.approx(0.3680642)


class Other(AtariNet):
    pass


@pytest.mark.parametrize("kind", [AttentionNet, Other])
def test_an_encoder_that_is_not_known_is_refused(kind):
    agent = kind(AgentConfig(observation_shape=SHAPE))
    with pytest.raises(UsageError, match="agents resnet and atari"):
        StagedEncoder(agent)
