"""ResNets whose channels are in another order, for the tests of what does not depend on it."""

import numpy as np
import torch

from torchbeast.analysis import filters
from torchbeast.models import AgentConfig, make_agent


def weights(seed):
    torch.manual_seed(seed)
    return filters.read_weights(make_agent(AgentConfig()).state_dict())


def random_permutations(seed):
    rng = np.random.default_rng(seed)
    sizes = {layer.output: len(weights(0)[layer.name]) for layer in filters.LAYERS}
    return {name: rng.permutation(size) for name, size in {**sizes, "fc": 256}.items()}


def permute_agent(agent, permutations):
    """Reorders the agent's channels in place, and whatever reads them."""
    permuted = filters.permute(filters.read_weights(agent.state_dict()), permutations)
    state = agent.state_dict()
    for layer in filters.LAYERS:
        state[layer.parameter] = torch.from_numpy(permuted[layer.name])
        bias = layer.parameter.replace("weight", "bias")
        state[bias] = state[bias][torch.from_numpy(permutations[layer.output])]
    order = torch.from_numpy(permutations["fc"])
    state["fc.weight"] = torch.from_numpy(permuted["fc"].reshape(256, -1))
    state["fc.bias"] = state["fc.bias"][order]
    for head in ("policy.weight", "baseline.weight"):
        state[head][:, :256] = state[head][:, order]
    agent.load_state_dict(state)
