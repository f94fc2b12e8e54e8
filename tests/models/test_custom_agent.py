"""The examples in docs/networks.md."""

import re
import sys

import pytest
import torch
from gymnasium.utils.env_checker import check_env

from tests import checkpoints
from tests.conftest import ROOT
from torchbeast.core.types import UsageError
from torchbeast.envs import make_env, plan_envs
from torchbeast.models import AgentConfig, from_checkpoint, make_agent
from torchbeast.models.loading import try_agent
from torchbeast.records import checkpoint

DOCUMENT = ROOT / "docs" / "networks.md"
TYPE = "tiny_example:Tiny"


@pytest.fixture
def example(tmp_path, monkeypatch):
    agent, game = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    (tmp_path / "tiny_example.py").write_text(agent)
    (tmp_path / "my_games.py").write_text(game)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("use_lstm", [False, True])
def test_the_documented_agent_does_all_that_others_do(example, tmp_path, use_lstm):
    config = AgentConfig(agent_type=TYPE, use_lstm=use_lstm, use_popart=True, tasks=("a", "b"))
    agent = make_agent(config).eval()
    agent.compute_dtype = torch.bfloat16
    inputs = {
        "frame": torch.randint(256, (3, 2, 4, 84, 84), dtype=torch.uint8),
        "reward": torch.zeros(3, 2),
        "done": torch.zeros(3, 2, dtype=torch.bool),
        "task": torch.tensor([[0, 1]] * 3, dtype=torch.int32),
    }
    output, _ = agent.inference_copy()(inputs, agent.initial_state(2))
    assert output.policy_logits.shape == (3, 2, 6)
    assert output.baseline.shape == (3, 2, 2)
    path = tmp_path / "model.tar"
    checkpoints.save_agent(path, agent)
    assert from_checkpoint(path, TYPE).config == config


AGENTS = """
import torch
from torch import nn
from torchbeast.models import Agent

class Small(Agent):
    def __init__(self, config):
        super().__init__(config)
        self.layers = self.make_layers()
        self.build_heads(4, 0, 1)

    def make_layers(self):
        return nn.Sequential(nn.Conv2d(4, 4, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def encode(self, frames):
        return self.layers(frames)

class Normalised(Small):
    def make_layers(self):
        return nn.Sequential(nn.BatchNorm2d(4), *super().make_layers())

class WrongSize(Small):
    def encode(self, frames):
        return self.layers(frames)[:, :3]

class Fails(Small):
    def encode(self, frames):
        raise KeyError("frames")

class NeedsMore(Small):
    def __init__(self, config, more):
        super().__init__(config)

class Refuses(Small):
    def make_layers(self):
        raise ValueError("mine")

class Mixes(Small):
    def make_layers(self):
        self.mixer = nn.Linear(5, 5)
        return super().make_layers()

    def represent(self, *inputs):
        representation, state = super().represent(*inputs)
        return self.mixer(representation), state
"""


@pytest.fixture
def own_agents(tmp_path, monkeypatch):
    """Makes configurations of agents in a module of a user's own."""
    (tmp_path / "own_agents.py").write_text(AGENTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_agents", raising=False)
    return lambda name: AgentConfig(agent_type=f"own_agents:{name}", tasks=("a", "b"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Normalised", "changes its buffer layers.0.running_var in the forward pass"),
        ("WrongSize", "fails: RuntimeError: mat1 and mat2"),
        ("Fails", "fails at own_agents.py:28: KeyError: 'frames'"),
        (
            "Mixes",
            "fails in torch.bfloat16 (modules behind the encoder must be in float32_modules) at "
            "own_agents.py:45: RuntimeError: mat1 and mat2 must have the same dtype",
        ),
        ("NeedsMore", "fails: TypeError: NeedsMore.__init__() missing 1 required"),
        ("Missing", "Cannot find --agent_type own_agents:Missing"),
    ],
)
def test_a_custom_agent_that_does_not_work_is_refused_in_one_line(own_agents, name, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        try_agent(own_agents(name), torch.bfloat16)


def test_a_custom_agent_that_cannot_be_made_is_not_the_fault_of_its_checkpoint(
    own_agents, tmp_path
):
    config = own_agents("Refuses")
    checkpoint.save(tmp_path / "model.tar", {"agent": config._asdict(), "model_state_dict": {}})
    with pytest.raises(UsageError, match=r"fails at own_agents.py:36: ValueError: mine"):
        from_checkpoint(tmp_path, config.agent_type)


def test_a_custom_agent_whose_class_has_changed_is_not_called_damaged(own_agents, tmp_path):
    config = own_agents("Small")
    state = make_agent(config).state_dict()
    del state["layers.0.bias"]
    checkpoint.save(tmp_path / "model.tar", {"agent": config._asdict(), "model_state_dict": state})
    message = r'does not fit own_agents:Small, which has changed since \(Missing .*"layers.0.bias"'
    with pytest.raises(UsageError, match=message):
        from_checkpoint(tmp_path, config.agent_type)


def test_the_documented_environment_pays_who_catches_the_ball(example):
    assert plan_envs(("my_games:Catch-v0",)) == (3, (1, 40, 40), False)
    with make_env("my_games:Catch-v0", seed=1) as env:
        check_env(env.unwrapped)
        returns = []
        for still in (False, True):
            for _ in range(20):
                (frame, _), total, ended = env.reset(), 0.0, False
                ball = frame[0, 0].argmax() // 4
                while not ended:
                    paddle = frame[0, 39].argmax() // 4
                    action = 1 if still else 1 + (ball > paddle) - (ball < paddle)
                    frame, reward, ended, *_ = env.step(int(action))
                    total += reward
                returns.append(total)
    assert returns[:20] == [1.0] * 20
    assert sum(returns[20:]) < 10


def test_a_checkpoint_alone_does_not_decide_which_code_runs(tmp_path):
    path = tmp_path / "model.tar"
    config = AgentConfig(agent_type="this:Agent")._asdict()
    checkpoint.save(path, {"agent": config, "model_state_dict": {}})
    for other in (None, "resnet", "other:Agent"):
        with pytest.raises(UsageError, match="allow it with --agent_type this:Agent"):
            from_checkpoint(path, other)
    assert "this" not in sys.modules  # Python's own.
