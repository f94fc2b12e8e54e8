"""Networks that have learned nothing: what they have in common is no effect of learning."""

from __future__ import annotations

from pathlib import Path

import torch

from torchbeast.analysis.agents import UNTRAINED, RunAgent
from torchbeast.models import Agent, make_agent
from torchbeast.models.loading import from_contents
from torchbeast.records import checkpoint, run_files


def make_untrained(like: Agent, seed: int) -> Agent:
    """Makes a new network with an agent's configuration and mean pictures."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    agent = make_agent(like.config).eval()
    agent.scale_initial_weights()
    torch.set_rng_state(state)
    agent.frame_mean.copy_(like.frame_mean)
    agent.frame_scale.copy_(like.frame_scale)
    return agent


def save_untrained(like: RunAgent, directory: Path, count: int = 3) -> list[RunAgent]:
    """Saves untrained networks, to be compared like trained agents.

    Args:
        like: an agent whose configuration and mean pictures they have.
        directory: where their checkpoints go.
        count: how many.

    Raises:
        UsageError: the agent cannot be read.
    """
    newest = like.checkpoints[max(like.checkpoints)]
    contents = checkpoint.load(newest)
    contents.pop("optimizer_state_dict", None)
    trained = from_contents(contents, newest)
    contents |= {"agent": trained.config._asdict(), "steps": 0}
    agents = []
    for seed in range(count):
        name = f"untrained{seed}"
        path = run_files.model_path(directory, name)
        state = make_untrained(trained, seed).state_dict()
        checkpoint.save(path, {**contents, "model_state_dict": state})
        agents.append(RunAgent(name, UNTRAINED, {0: path}, like.games))
    return agents
