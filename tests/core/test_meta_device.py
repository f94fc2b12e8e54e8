"""Learning and acting on a device other than the CPU mix no devices and wait for no value.

torch's meta device has shapes and types but no data. An operation on its tensors and the CPU's is
an error, and so is reading a value. Agents with memory are left out: the pieces that their rollouts
are cut into depend on data.
"""

import contextlib

import pytest
import torch

from tests.core.test_learner import CONFIG, make_rollout
from torchbeast.core.learner import Learner
from torchbeast.core.losses import LossConfig, rollout_losses
from torchbeast.core.optimizer import OptimizerConfig
from torchbeast.core.stats import collect_part, read_stats
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
    state = agent.initial_state(2)
    losses = rollout_losses(agent, env, actor, state, LossConfig())
    learner = Learner(agent, LossConfig(), OptimizerConfig(), 2, lambda _: None)
    gradients = learner._gradients(losses)
    stats = collect_part(losses, env, env.task, 3, len(CONFIG.tasks))
    norm = torch.nn.utils.get_total_norm(gradients)
    moved = agent.baseline.moved(losses.targets) if losses.targets else None
    learner._apply(gradients, norm, moved, 1e-3)
    tensors = [*gradients, *stats, norm, *agent.state_dict().values()]
    assert {tensor.device for tensor in tensors} == {META}
    with pytest.raises(NotImplementedError):  # The first time that a value is read.
        read_stats(stats, norm, LossConfig())


@pytest.mark.parametrize("config", AGENTS, ids=lambda c: " ".join(map(str, c.values())))
def test_acting_stays_on_its_device(monkeypatch, config):
    agent = make_meta_agent(monkeypatch, **config).inference_copy()
    env, _ = make_rollout(0, batch=3)
    row = to_meta(type(env)(*(leaf[:1] for leaf in env)))
    output, state = agent(row, agent.initial_state(3), sample=True)
    assert {tensor.device for tensor in (*output, *state)} == {META}
