import contextlib
import itertools
from types import SimpleNamespace

import numpy as np
import torch

from libtorchbeast import Server
from tests.core.rollouts import CONFIG
from tests.libtorchbeast.pools import Pool
from tests.threads import start
from torchbeast.core.types import EnvOutput
from torchbeast.models import make_agent
from torchbeast.train.polybeast_pipeline import inference_loop, learner_loop
from torchbeast.train.published_weights import PublishedWeights

CPU = torch.device("cpu")


class Lives:
    """Random frames. A life ends every three steps, every second one by a time limit.

    Rollouts begin in the middle of lives, so with a memory that is not empty.
    """

    def __init__(self):
        self._random = np.random.default_rng()
        self._steps = 0

    def _observe(self):
        return self._random.integers(256, size=CONFIG.observation_shape, dtype=np.uint8)

    def reset(self):
        return self._observe(), {}

    def step(self, action):
        self._steps += 1
        ends, is_cut = self._steps % 3 == 0, self._steps % 6 == 0
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
    assert any(env[2].any() and env[6].any() for env, *_ in learned)  # Ended, and truncated.
    for env, actor, state, versions in learned:
        assert versions[1:].eq(7).all()
        on_policy(agent, EnvOutput(*env), actor, state)
