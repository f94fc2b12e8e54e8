from types import SimpleNamespace

import torch

from tests.core.rollouts import CONFIG, make_rollout
from torchbeast.models import make_agent
from torchbeast.train.polybeast_pipeline import inference_loop, learner_loop
from torchbeast.train.published_weights import PublishedWeights

CPU = torch.device("cpu")


class Batch:
    """A batch of a dynamic batcher."""

    def __init__(self, inputs):
        self.get_inputs = lambda: inputs

    def set_outputs(self, outputs):
        self.outputs = outputs


def test_inference_carries_the_memory_and_learning_begins_with_it(on_policy):
    agent = make_agent(CONFIG._replace(use_lstm=True))
    weights = PublishedWeights(agent.inference_copy, 1)
    weights.publish(agent, 7)
    env, _ = make_rollout(0, batch=2)
    initial = state = tuple(torch.randn_like(x) for x in agent.initial_state(2))
    outputs = []
    for t in range(len(env.done)):
        batch = Batch((tuple(leaf[t : t + 1] for leaf in env), state))
        inference_loop([batch], weights, CPU, lambda: 7)
        output, state = batch.outputs
        outputs.append(output)
    # The output for a row is written beside what it leads to, a row later.
    rows = [torch.cat(leaves).roll(1, 0) for leaves in zip(*outputs, strict=True)]

    learned = []
    learner = SimpleNamespace(learn=lambda *rollout: learned.append(rollout))
    learner_loop([((tuple(env), tuple(rows)), initial)], learner, CPU)
    ((env, actor, state, versions),) = learned
    assert versions.eq(7).all()
    on_policy(agent, env, actor, state)
