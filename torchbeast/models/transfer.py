"""A new agent from the weights of a trained one, which may know other games and actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from torchbeast.core.types import UsageError
from torchbeast.models.agent import Agent, AgentConfig

# Buffers that belong to games.
INPUT_STATISTICS = ("frame_mean", "frame_scale")


class Transferred(NamedTuple):
    """The parts of a new agent: the names of its modules, without the input statistics."""

    copied: tuple[str, ...]
    """Parts with weights of the trained agent."""
    new: tuple[str, ...]
    """Parts with initial weights."""


def check_transfer(source: AgentConfig, target: AgentConfig) -> None:
    """Raises UsageError if an agent cannot begin with the weights of another."""
    if (source.agent_type, source.use_lstm) != (target.agent_type, target.use_lstm):
        memory = "with --use_lstm" if source.use_lstm else "without --use_lstm"
        raise UsageError(f"it is of another network: --agent_type {source.agent_type}, {memory}")
    if tuple(source.observation_shape) != tuple(target.observation_shape):
        raise UsageError(
            f"it looks at pictures {tuple(source.observation_shape)}, these games show "
            f"{tuple(target.observation_shape)}"
        )


def has_fixed_input(agent: Agent) -> bool:
    """Whether the input of an agent's network is x / 255, as in 2019."""
    scales = torch.full_like(agent.frame_scale, 1.0 / 255.0)
    return not agent.frame_mean.any() and torch.equal(agent.frame_scale, scales)


@torch.no_grad()
def transfer(
    source: Agent, target: Agent, games: Mapping[int, int], actions: Mapping[int, int]
) -> Transferred:
    """Copies the weights of ``source`` into ``target`` where they mean the same.

    - All parts but the heads are copied, each one whole, unless its size differs.
    - Frames of common games are centred and scaled as ``source`` does it.
    - The policy is copied action by action if there is a common game. An action that ``source``
      lacks begins with the mean of the copied ones: neither likely nor unlikely.
    - With PopArt in both agents the value heads of common games are copied with their statistics. A
      single value head is copied if ``source`` knows all games.

    Args:
        source: the trained agent.
        target: a new agent with its initial weights; :func:`check_transfer` allows the pair.
        games: the common games, index in ``target`` to index in ``source``.
        actions: the common actions, likewise.

    Returns:
        What was copied.
    """
    old = _with_actions_of(target, source, actions)
    new = target.state_dict()
    for name in INPUT_STATISTICS:
        for task, known in games.items():
            new[name][task] = old[name][known]
    copied: list[str] = []
    left: list[str] = []
    for part, module in target.named_children():
        names = [f"{part}.{name}" for name in module.state_dict()]
        if part == "policy":
            done = bool(games) and _copy_policy(new, old, actions)
        elif part == "baseline":
            done = _copy_values(target, source, old, games)
        else:
            done = all(n in old and old[n].shape == new[n].shape for n in names)
            if done:
                for name in names:
                    new[name].copy_(old[name])
        (copied if done else left).append(part)
    return Transferred(tuple(copied), tuple(left))


def _with_actions_of(target: Agent, source: Agent, actions: Mapping[int, int]) -> dict[str, Tensor]:
    """Weights of ``source`` that see the last action as ``target`` numbers it.

    The weights of an action that ``source`` lacks are 0.
    """
    state = dict(source.state_dict())
    num_new, num_old = target.config.num_actions, source.config.num_actions
    for name, first in source.last_action_columns().items():
        before, one_hot, behind = state[name].tensor_split([first, first + num_old], dim=1)
        columns = one_hot.new_zeros(len(one_hot), num_new)
        for action, known in actions.items():
            columns[:, action] = one_hot[:, known]
        state[name] = torch.cat([before, columns, behind], dim=1)
    return state


def _copy_policy(
    new: dict[str, Tensor], old: dict[str, Tensor], actions: Mapping[int, int]
) -> bool:
    """Copies the rows of common actions; returns whether that was possible."""
    if not actions or new["policy.weight"].shape[1] != old["policy.weight"].shape[1]:
        return False
    for name in ("policy.weight", "policy.bias"):
        rows, known = new[name], old[name]
        mean = known[list(actions.values())].mean(dim=0)
        for action in range(len(rows)):
            if action in actions:
                rows[action] = known[actions[action]]
            else:
                rows[action] += mean
    return True


def _copy_values(
    target: Agent, source: Agent, old: dict[str, Tensor], games: Mapping[int, int]
) -> bool:
    """Copies value heads of common games; returns whether there are any."""
    new = target.state_dict()
    configs = target.config, source.config
    if target.config.use_popart != source.config.use_popart:
        return False
    if not games or new["baseline.weight"].shape[1] != old["baseline.weight"].shape[1]:
        return False
    # Value heads are of one game each, or the only one is of all games.
    own, source_own = (c.use_popart or c.value_heads == "game" for c in configs)
    if own != source_own or (not own and len(games) < len(target.config.tasks)):
        return False
    tasks, known = (list(games), list(games.values())) if own else ([0], [0])
    for name in new:
        if name.startswith("baseline."):
            new[name][tasks] = old[name][known]
    return True
