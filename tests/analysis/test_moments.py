import pytest
import torch

from torchbeast.analysis.moments import play_frames, play_moments
from torchbeast.evaluate.trained import Trained
from torchbeast.models import AgentConfig, make_agent

PONG = "PongNoFrameskip-v4"


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    return Trained(make_agent(AgentConfig(agent_type="atari", use_lstm=True)).eval(), "", "")


def test_frames_are_of_the_game_and_differ(trained):
    frames = play_frames(trained, PONG, 12)
    assert frames.shape == (12, 4, 84, 84)
    assert frames.dtype == torch.uint8
    assert len({frame.numpy().tobytes() for frame in frames}) == 12


def test_moments_are_split_with_the_memory_before_them(trained):
    moments = play_moments(trained, PONG, 12, steps_apart=1)
    assert len(moments) == 12
    parts = list(moments.split(5))
    assert [len(part) for part in parts] == [5, 5, 2]
    for name in ("frame", "last_action"):
        leaves = [getattr(part.inputs, name) for part in parts]
        assert torch.equal(torch.cat(leaves, dim=1), getattr(moments.inputs, name))
    for i, leaf in enumerate(moments.state):
        assert leaf.shape[1] == 12
        assert torch.equal(torch.cat([part.state[i] for part in parts], dim=1), leaf)
    # Moments of eight games side by side, then the same games a step later.
    with torch.inference_mode():
        inputs = type(moments.inputs)(*(leaf[:, :4] for leaf in moments.inputs))
        _, after = trained.agent(inputs, tuple(leaf[:, :4] for leaf in moments.state))
    for leaf, later in zip(after, moments.state, strict=True):
        torch.testing.assert_close(leaf, later[:, 8:])
