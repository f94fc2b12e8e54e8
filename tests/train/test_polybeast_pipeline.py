import contextlib
import itertools
from types import SimpleNamespace

import numpy as np
import torch

from libtorchbeast import Server
from tests.core.rollouts import CONFIG, make_rollout
from tests.libtorchbeast.pools import Pool
from tests.threads import start
from torchbeast.core.types import EnvOutput
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


class Lives:
    """Random frames. A life ends every two steps, every second one by a time limit."""

    def __init__(self):
        self._random = np.random.default_rng()
        self._steps = 0

    def _observe(self):
        return self._random.integers(256, size=CONFIG.observation_shape, dtype=np.uint8)

    def reset(self):
        return self._observe(), {}

    def step(self, action):
        self._steps += 1
        ends, is_cut = self._steps % 2 == 0, self._steps % 4 == 0
        return self._observe(), 1.0, ends and not is_cut, is_cut, {"game_over": is_cut}


class Acting(Pool):
    """A pool whose actions are an agent's."""

    def _infer(self):
        try:
            inference_loop(self.batcher, self.weights, CPU, lambda: 7)
        finally:  # Else the test would wait for rollouts after an error.
            with contextlib.suppress(RuntimeError):  # It is closed already.
                self.queue.close()


def test_the_learner_gets_what_acted_from_servers_and_pool(on_policy, tmp_path):
    agent, learned = make_agent(CONFIG._replace(use_lstm=True)), []
    address = f"unix:{tmp_path}/environments"
    server = Server(Lives, address, 1)
    serving, _ = start(server.run)
    pool = Acting([address], envs=[2], queue_size=2, state=agent.initial_state(1))
    pool.weights = PublishedWeights(agent.inference_copy, 1)
    pool.weights.publish(agent, 7)
    with pool:
        learner = SimpleNamespace(learn=lambda *rollout: learned.append(rollout))
        learner_loop(itertools.islice(pool.queue, 6), learner, CPU)
    server.stop()
    serving.join(timeout=60)
    assert not serving.is_alive()
    assert len(learned) == 6
    for env, actor, state, versions in learned:
        assert env.done.any()
        assert env.truncated.any()
        assert versions[1:].eq(7).all()
        on_policy(agent, EnvOutput(*env), actor, state)
