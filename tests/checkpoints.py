"""Checkpoints of agents."""

from torchbeast.models import AtariNet
from torchbeast.records import checkpoint


class Own(AtariNet):
    """A custom agent."""


def save_agent(path, agent, **contents):
    """Writes a checkpoint of an agent, with more contents; returns the agent."""
    weights = {"agent": agent.config._asdict(), "model_state_dict": agent.state_dict()}
    checkpoint.save(path, {**weights, **contents})
    return agent
