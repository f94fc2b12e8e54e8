import pytest
import torch

from torchbeast.core.types import RunError
from torchbeast.models import AgentConfig, make_agent
from torchbeast.runtime.workers import fork_context, start_worker
from torchbeast.train.monobeast_process import RolloutBuffers, SharedWeights

pytestmark = pytest.mark.usefixtures("_fork_server")


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


def send_what_is_read(weights, pipe):
    agent = ManyTensors(0.0)
    for _ in range(2):
        pipe.recv()
        version = weights.copy_to(agent)
        pipe.send((version, agent.equals(3.0), agent.equals(5.0)))


def test_a_process_reads_the_newest_of_many_tensors():
    context = fork_context("torchbeast.train.monobeast_process")
    weights = SharedWeights(ManyTensors(0.0))
    weights.publish(ManyTensors(3.0), 0)
    ours, theirs = context.Pipe()
    reader = context.Process(target=send_what_is_read, args=(weights, theirs))
    start_worker(reader)
    theirs.close()
    ours.send(None)
    assert ours.recv() == (0, True, False)
    weights.publish(ManyTensors(5.0), 8)
    ours.send(None)
    assert ours.recv() == (8, False, True)
    reader.join()


@pytest.mark.parametrize("make", [
    lambda config: RolloutBuffers(config, 5, 2), lambda config: SharedWeights(make_agent(config))
])  # fmt: skip
def test_shared_memory_that_cannot_be_had_is_one_line(monkeypatch, make):
    def refuse(_):
        raise RuntimeError("unable to open shared memory object: Read-only file system (30)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    with pytest.raises(RunError, match=r"do not fit into shared memory: unable .*; give it more"):
        make(AgentConfig(agent_type="atari", observation_shape=(1, 36, 36)))
