"""What tests of the compiled kernels share."""

import pytest
import torch

from torchbeast.models import AgentConfig, ResNet, kernels

HAS_KERNELS = kernels.compiled() is not None
needs_kernels = pytest.mark.skipif(
    not HAS_KERNELS, reason="no compiled modules, or a processor without AVX512-BF16"
)


def count_calls(monkeypatch, name):
    """A list that grows with each call of a kernel."""
    calls = []
    kernel = getattr(kernels.compiled(), name)
    monkeypatch.setattr(kernels.compiled(), name, lambda *args: calls.append(kernel(*args)))
    return calls


def make_resnet():
    """A ResNet that computes in bfloat16, and two steps of one environment."""
    torch.manual_seed(0)
    agent = ResNet(AgentConfig(agent_type="resnet", num_actions=4)).eval()
    agent.compute_dtype = torch.bfloat16
    frame = torch.randint(256, (2, 1, 4, 84, 84), dtype=torch.uint8)
    done = torch.zeros(2, 1, dtype=torch.bool)
    return agent, {"frame": frame, "reward": torch.zeros(2, 1), "done": done}


def evaluate_agent(agent, inputs):
    """Logits, and the gradients of all parameters."""
    output, _ = agent(inputs)
    total = output.policy_logits.square().sum() + output.baseline.sum()
    return output.policy_logits, torch.autograd.grad(total, list(agent.parameters()))
