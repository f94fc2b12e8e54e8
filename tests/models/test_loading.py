"""Checkpoints of 2019 and of each format give the outputs that their programs computed."""

import json

import pytest
import torch
from torch import nn

from tests.conftest import ROOT
from tests.models.inputs import SIX_TASKS, make_inputs
from torchbeast.core.types import UsageError
from torchbeast.models import from_checkpoint
from torchbeast.records import checkpoint


class Net2019(nn.Module):
    """The network of 2019, written after the names in its checkpoints and nothing else here."""

    def __init__(self, num_actions, num_tasks, use_lstm, use_popart, clips):
        super().__init__()
        self.clips = clips  # The reward that it is fed.
        self.feat_convs, self.resnet1, self.resnet2 = (nn.ModuleList() for _ in range(3))
        inputs = 4
        for channels in (16, 32, 32):
            self.feat_convs.append(
                nn.Sequential(nn.Conv2d(inputs, channels, 3, 1, 1), nn.MaxPool2d(3, 2, 1))
            )
            for blocks in (self.resnet1, self.resnet2):
                blocks.append(
                    nn.Sequential(
                        nn.ReLU(),
                        nn.Conv2d(channels, channels, 3, 1, 1),
                        nn.ReLU(),
                        nn.Conv2d(channels, channels, 3, 1, 1),
                    )
                )
            inputs = channels
        self.fc = nn.Linear(3872, 256)
        if use_lstm:
            self.core = nn.LSTM(257, 256, 1)
        size = 256 if use_lstm else 257
        self.policy = nn.Linear(size, num_actions)
        self.baseline = nn.Linear(size, num_tasks if use_popart else 1)
        if use_popart:
            self.baseline.register_buffer("mu", torch.rand(num_tasks) * 100)
            self.baseline.register_buffer("sigma", torch.rand(num_tasks) * 10 + 1)

    def forward(self, inputs):
        steps, batch = inputs.done.shape
        x = inputs.frame.flatten(0, 1).float() / 255.0
        for conv, first, second in zip(self.feat_convs, self.resnet1, self.resnet2, strict=True):
            x = conv(x)
            x = x + first(x)
            x = x + second(x)
        x = torch.relu(self.fc(torch.relu(x).reshape(steps * batch, -1)))
        reward = inputs.reward.clamp(-1, 1) if self.clips else inputs.reward
        x = torch.cat([x, reward.reshape(steps * batch, 1)], dim=1)
        if hasattr(self, "core"):
            state, outputs = (torch.zeros(1, batch, 256),) * 2, []
            for row, ended in zip(x.view(steps, batch, -1), inputs.done, strict=True):
                state = tuple((~ended).float().view(1, -1, 1) * s for s in state)
                output, state = self.core(row.unsqueeze(0), state)
                outputs.append(output[0])
            x = torch.cat(outputs)
        baseline = self.baseline(x)
        if hasattr(self.baseline, "mu"):
            baseline = baseline * self.baseline.sigma + self.baseline.mu
        return self.policy(x).view(steps, batch, -1), baseline.view(steps, batch, -1)


class ShallowNet2019(nn.Module):
    """MonoBeast's network of 2019, written after the names in its checkpoints."""

    def __init__(self, num_actions, use_lstm):
        super().__init__()
        self.num_actions = num_actions
        self.conv1 = nn.Conv2d(4, 32, 8, 4)
        self.conv2 = nn.Conv2d(32, 64, 4, 2)
        self.conv3 = nn.Conv2d(64, 64, 3, 1)
        self.fc = nn.Linear(3136, 512)
        size = 512 + 1 + num_actions
        if use_lstm:
            self.core = nn.LSTM(size, size, 2)
        self.policy = nn.Linear(size, num_actions)
        self.baseline = nn.Linear(size, 1)

    def forward(self, inputs):
        steps, batch = inputs.done.shape
        x = inputs.frame.flatten(0, 1).float() / 255.0
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.relu(conv(x))
        x = torch.relu(self.fc(x.flatten(1)))
        last_action = nn.functional.one_hot(inputs.last_action.flatten(), self.num_actions)
        x = torch.cat([x, inputs.reward.clamp(-1, 1).view(-1, 1), last_action], dim=1)
        if hasattr(self, "core"):
            state = (torch.zeros(2, batch, x.shape[1]),) * 2
            outputs = []
            for row, ended in zip(x.view(steps, batch, -1), inputs.done, strict=True):
                state = tuple(torch.where(ended.view(1, -1, 1), 0.0, s) for s in state)
                output, state = self.core(row.unsqueeze(0), state)
                outputs.append(output[0])
            x = torch.cat(outputs)
        return self.policy(x).view(steps, batch, -1), self.baseline(x).view(steps, batch, -1)


def assert_same_as_2019(directory, old, tasks=("PongNoFrameskip-v4",), **args):
    """Checks that a checkpoint of 2019 gives the agent that it was; returns its configuration."""
    torch.save({"model_state_dict": old.state_dict(), "flags": {}}, directory / "model.tar")
    (directory / "meta.json").write_text(json.dumps({"args": {"env": ",".join(tasks), **args}}))
    agent = from_checkpoint(directory)
    assert agent.config.tasks == tasks
    inputs = make_inputs(agent.config)
    inputs = inputs._replace(reward=inputs.reward * 10)
    output, _ = agent(inputs._asdict(), agent.initial_state(3))
    logits, baseline = old(inputs)
    torch.testing.assert_close(output.policy_logits, logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.baseline, baseline, atol=1e-5, rtol=1e-5)
    return agent.config


@pytest.mark.parametrize(("use_lstm", "reward_clipping"), [(False, "none"), (True, "abs_one")])
def test_shallow_checkpoints_of_2019_give_the_same_outputs(tmp_path, use_lstm, reward_clipping):
    torch.manual_seed(0)
    old = ShallowNet2019(6, use_lstm)  # Clips its input whatever the learner does.
    assert_same_as_2019(tmp_path, old, reward_clipping=reward_clipping)


@pytest.mark.parametrize(
    ("use_lstm", "use_popart", "reward_clipping"),
    [
        (False, False, "none"),
        (True, False, "abs_one"),
        (False, True, "abs_one"),
        (True, True, "none"),
    ],
)
def test_checkpoints_of_2019_give_the_same_outputs(tmp_path, use_lstm, use_popart, reward_clipping):
    torch.manual_seed(0)
    # Without PopArt this is TorchBeast's network, which clips its input whatever the learner does.
    clips = not use_popart or reward_clipping == "abs_one"
    old = Net2019(6, 6, use_lstm, use_popart, clips)
    games = {"tasks": SIX_TASKS} if use_popart else {}
    assert_same_as_2019(tmp_path, old, **games, reward_clipping=reward_clipping)


@pytest.mark.parametrize("reward_clipping", ["abs_one", "none"])
def test_statistics_of_an_agent_of_2019_without_popart_are_part_of_its_head(
    tmp_path, reward_clipping
):
    torch.manual_seed(0)
    old = Net2019(6, 1, use_lstm=False, use_popart=False, clips=reward_clipping == "abs_one")
    old.baseline.register_buffer("mu", torch.tensor([30.0]))
    old.baseline.register_buffer("sigma", torch.tensor([4.0]))
    args = {"use_popart": False, "reward_clipping": reward_clipping}
    config = assert_same_as_2019(tmp_path, old, SIX_TASKS, **args)
    assert not config.use_popart


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["vision.vision_cnn.0.weight", "policy_head.bias"], "is an attention agent of 2019"),
        (["a"], "holds no agent of this program"),
    ],
)
def test_other_networks_are_refused_in_one_line(tmp_path, names, message):
    state = dict.fromkeys(names, torch.zeros(2))
    torch.save({"model_state_dict": state}, tmp_path / "model.tar")
    with pytest.raises(UsageError, match=message) as error:
        from_checkpoint(tmp_path)
    assert "\n" not in str(error.value)


def test_checkpoints_of_every_earlier_format_give_the_same_outputs():
    # One file of each version, written by it; ``expected_*`` is what its program computed.
    paths = sorted((ROOT / "tests" / "data").glob("format_*.tar"))
    assert len(paths) == checkpoint.FORMAT_VERSION
    for path in paths:
        contents = checkpoint.load(path)
        agent = from_checkpoint(path)
        frame = (torch.arange(3 * 2 * 36 * 36) % 251).to(torch.uint8).view(3, 2, 1, 36, 36)
        inputs = {
            "frame": frame,
            "reward": torch.zeros(3, 2),
            "done": torch.zeros(3, 2, dtype=torch.bool),
            "task": torch.zeros(3, 2, dtype=torch.int32),
            "last_action": torch.zeros(3, 2, dtype=torch.int64),
        }
        output, _ = agent(inputs)
        torch.testing.assert_close(output.policy_logits, contents["expected_logits"])
        torch.testing.assert_close(output.baseline, contents["expected_baseline"])
