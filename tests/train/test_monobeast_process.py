import itertools

import gymnasium
import numpy as np
import pytest
import torch

from torchbeast.core.types import ObservationConfig, RunError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.runtime.workers import fork_context, start_worker
from torchbeast.train.monobeast_process import (
    ActorConfig,
    RolloutBuffers,
    SharedWeights,
    _fill_buffers,
)


class ManyTensors(torch.nn.Module):
    """Has more tensors than a process can be sent file descriptors, of several types and sizes."""

    def __init__(self, value):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.full((3, 5), value) for _ in range(300))
        self.narrow = torch.nn.Parameter(torch.full((7,), value, dtype=torch.bfloat16))
        self.register_buffer("mu", torch.full((1,), value, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(int(value)))
        self.register_buffer("empty", torch.zeros(0))

    def equals(self, value):
        return all(bool((tensor == value).all()) for tensor in self.state_dict().values())


def count_mixes(weights, pipe):
    """Reads weights until the pipe says so; sends how many reads were mixed, and the last one."""
    agent, mixes = ManyTensors(0.0), 0
    pipe.send(None)
    while not pipe.poll():
        version = weights.copy_to(agent)
        mixes += not agent.equals(float(version))
    pipe.send((mixes, weights.copy_to(agent)))


def test_a_process_reads_the_newest_weights_and_never_a_mix():
    context = fork_context("torchbeast.train.monobeast_process")
    weights = SharedWeights(ManyTensors(0.0))
    ours, theirs = context.Pipe()
    reader = context.Process(target=count_mixes, args=(weights, theirs))
    start_worker(reader)
    theirs.close()
    ours.recv()
    for version in range(1, 101):  # Whole numbers that bfloat16 has.
        weights.publish(ManyTensors(float(version)), version)
    ours.send(None)
    assert ours.recv() == (0, 100)
    reader.join()


class PaysTheAction(gymnasium.Env):
    """Pays the number of the action; three steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self._steps += 1
        return self.observation_space.sample(), float(action), self._steps == 3, False, {}


gymnasium.register("PaysTheAction-v0", PaysTheAction)


def test_an_actor_writes_what_it_did_and_the_learner_computes_the_same(on_policy):
    config = AgentConfig(
        agent_type="resnet", num_actions=3, observation_shape=(1, 8, 8), use_lstm=True,
        tasks=(f"{__name__}:PaysTheAction-v0",),
    )  # fmt: skip
    agents = [make_agent(config) for _ in range(3)]
    weights, buffers = SharedWeights(agents[0]), RolloutBuffers(config, 5, 3)

    class Pipe:
        """Asks for three rollouts, each with new weights."""

        version = -1

        def recv(self):
            self.version += 1
            if self.version == 3:
                raise EOFError
            weights.publish(agents[self.version], self.version)
            return self.version

        def send(self, _):
            pass

    actor = ActorConfig(
        1, config, ObservationConfig(), False, torch.float32, seed=1, step_timeout_s=60
    )
    _fill_buffers(actor, 0, 1, weights, buffers, Pipe())
    for version, agent in enumerate(agents):
        env, output, versions, state = buffers[version]
        action = output.action[1:, :, 0]
        assert torch.equal(env.reward[1:], action.float())
        assert torch.equal(env.last_action[1:], action)
        assert versions.eq(version).all()
        on_policy(agent, env, output, state)
        assert state[0].any() == (version > 0)
    for before, after in itertools.pairwise(buffers[i] for i in range(3)):
        leaves = zip((*before.env, *before.actor), (*after.env, *after.actor), strict=True)
        for last, first in leaves:
            assert torch.equal(last[-1], first[0])


@pytest.mark.parametrize("make", [
    lambda config: RolloutBuffers(config, 5, 2), lambda config: SharedWeights(make_agent(config))
])  # fmt: skip
def test_shared_memory_that_cannot_be_had_is_one_line(monkeypatch, make):
    def refuse(_):
        raise RuntimeError("unable to open shared memory object: Read-only file system (30)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    with pytest.raises(RunError, match=r"do not fit into shared memory: unable .*; give it more"):
        make(AgentConfig(agent_type="atari", observation_shape=(1, 36, 36)))
