"""Agents: networks with an encoder, an optional memory, a policy and one or several value heads."""

from torchbeast.models.agent import Agent, AgentConfig
from torchbeast.models.atari_net import AtariNet
from torchbeast.models.loading import config_from_state, from_checkpoint, make_agent
from torchbeast.models.resnet import ResNet

__all__ = [
    "Agent",
    "AgentConfig",
    "AtariNet",
    "ResNet",
    "config_from_state",
    "from_checkpoint",
    "make_agent",
]
