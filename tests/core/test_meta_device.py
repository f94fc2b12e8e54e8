"""Learning and acting on a device other than the CPU mix no devices and wait for no value.

torch's meta device has shapes and types but no data. An operation on its tensors and the CPU's is
an error, and so is reading a value. Agents with memory are left out: the pieces that their rollouts
are cut into depend on data.
"""

import contextlib

import pytest
import torch

from tests.core.rollouts import CONFIG, make_rollout
from tests.learner_steps import STEP
from torchbeast.core import learner as core_learner
from torchbeast.core.learner import Learner
from torchbeast.core.types import LossConfig, OptimizerConfig
from torchbeast.models import make_agent

META = torch.device("meta")


def to_meta(record):
    return type(record)(*(leaf.to(META) for leaf in record))


def make_meta_agent(monkeypatch, **config):
    agent = make_agent(CONFIG._replace(**config)).to(META)
    # autocast does not know the device.
    monkeypatch.setattr(type(agent), "precision", lambda *_: contextlib.nullcontext())
    return agent


AGENTS = [
    {"agent_type": "atari", "use_popart": True},
    {"agent_type": "resnet", "use_popart": True, "beta_per": "batch"},
    {"agent_type": "resnet"},
]


@pytest.mark.parametrize("config", AGENTS, ids=lambda c: " ".join(map(str, c.values())))
def test_a_learner_step_stays_on_its_device(monkeypatch, config):
    agent = make_meta_agent(monkeypatch, **config)
    env, actor = map(to_meta, make_rollout(0, batch=2))
    learner = Learner(agent, LossConfig(), OptimizerConfig(), 2, lambda _: None)

    def learn():
        learner.learn(env, actor, agent.initial_state(2), env.task)

    with monkeypatch.context() as patch:
        patch.setattr(learner, "check_weights", lambda: None)
        patch.setattr(core_learner, "read_stats", lambda *_: STEP)
        learn()
    assert learner.learner_steps == 1
    averages = [state["square_avg"] for state in learner.optimizer.state.values()]
    tensors = [*agent.state_dict().values(), *averages]
    assert {tensor.device for tensor in tensors} == {META}
    with pytest.raises(NotImplementedError):  # The first time that a value is read.
        learn()


@pytest.mark.parametrize("config", AGENTS, ids=lambda c: " ".join(map(str, c.values())))
def test_acting_stays_on_its_device(monkeypatch, config):
    agent = make_meta_agent(monkeypatch, **config).inference_copy()
    env, _ = make_rollout(0, batch=3)
    row = to_meta(type(env)(*(leaf[:1] for leaf in env)))
    output, state = agent(row, agent.initial_state(3), sample=True)
    assert {tensor.device for tensor in (*output, *state)} == {META}
