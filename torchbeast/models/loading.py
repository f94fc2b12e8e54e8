"""Making agents, new ones and from checkpoints of this program or of 2019."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from torchbeast.core.types import ENV_OUTPUT_TYPES, EnvOutput, UsageError
from torchbeast.envs.games import GROUPS
from torchbeast.models.agent import Agent, AgentConfig
from torchbeast.models.atari_net import AtariNet
from torchbeast.models.attention import AttentionNet
from torchbeast.models.resnet import ResNet
from torchbeast.records import checkpoint
from torchbeast.records.run_files import checkpoint_at, run_of
from torchbeast.records.validation import read
from torchbeast.runtime.text import explain_import, first_line, typed_line

AGENTS: dict[str, type[Agent]] = {"resnet": ResNet, "atari": AtariNet, "aaa": AttentionNet}


# Numbers in the mean pictures of an agent's games: some 3,500 Atari games.
MAX_BUFFER_NUMBERS = 100_000_000


def make_agent(config: AgentConfig) -> Agent:
    """Makes a new agent.

    Raises:
        UsageError: the configuration is wrong, its type cannot be found, or a custom one fails.
    """
    try:
        config = read(AgentConfig, config._asdict())
    except ValueError as error:
        raise UsageError(f"AgentConfig: {error}") from error
    agent_type = find_agent_type(config.agent_type)
    with _custom_code(config.agent_type, agent_type):
        return agent_type(config)


def find_agent_type(agent_type: str) -> type[Agent]:
    """Finds one of this program's agents, or the class that ``package.module:Class`` names."""
    if agent_type in AGENTS:
        return AGENTS[agent_type]
    module, _, name = agent_type.partition(":")
    if not name:
        choices = f"choose {', '.join(AGENTS)} or package.module:Class"
        raise UsageError(f"There is no agent type {agent_type}: {choices}")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # A module may raise anything.
        raise UsageError(
            f"Cannot find --agent_type {agent_type}: {explain_import(error)}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise UsageError(f"--agent_type {agent_type} is no torchbeast.models.Agent")
    if inspect.isabstract(found):
        raise UsageError(f"--agent_type {agent_type} does not define encode()")
    return found


def try_agent(config: AgentConfig, dtype: torch.dtype) -> None:
    """Makes a custom agent and runs it once, in training mode, on a rollout of two blank rows, and
    a copy of it that acts in ``dtype``.

    Raises:
        UsageError: it cannot be made, its forward pass fails, or it changes a buffer.
    """
    if config.agent_type in AGENTS:
        return
    agent = make_agent(config)
    with _custom_code(config.agent_type, type(agent)):
        before = {name: buffer.clone() for name, buffer in agent.named_buffers()}
        frame = torch.zeros(2, 1, *config.observation_shape, dtype=torch.uint8)
        numbers = {
            name: torch.zeros(2, 1, dtype=getattr(torch, kind))
            for name, kind in ENV_OUTPUT_TYPES.items()
        }
        inputs = EnvOutput(frame=frame, **numbers)
        agent(inputs, agent.initial_state(1), sample=False)
    if dtype is not torch.float32:
        place = f" in {dtype} (modules behind the encoder must be in float32_modules)"
        with _custom_code(config.agent_type, type(agent), place):
            agent.inference_copy(dtype)(inputs, agent.initial_state(1), sample=False)
    for name, buffer in agent.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise UsageError(
                f"--agent_type {config.agent_type} changes its buffer {name} in the forward pass, "
                "as batch normalisation does: each learner thread and rank would have another one"
            )


@contextlib.contextmanager
def _custom_code(name: str, agent_type: type[Agent], where: str = "") -> Iterator[None]:
    """Raises UsageError, which names the line, where a custom agent fails."""
    try:
        yield
    except Exception as error:
        if name in AGENTS:
            raise
        source = inspect.getfile(agent_type)
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == source]
        place = f" at {Path(source).name}:{own[-1].lineno}" if own else ""
        raise UsageError(f"--agent_type {name} fails{where}{place}: {typed_line(error)}") from error


def from_checkpoint(path: str | Path, agent_type: str | None = None) -> Agent:
    """Loads the agent in a ``model.tar``, or in a directory with one, in evaluation mode.

    Args:
        path: a run's directory or a checkpoint of this program or of 2019.
        agent_type: ``package.module:Class``, the only custom class that may be imported. A
            checkpoint is data: what it names does not decide which code runs.

    Returns:
        The agent, in evaluation mode on the CPU: it takes the most probable action.

    Raises:
        UsageError: there is no checkpoint, or it does not hold an agent.
    """
    path = checkpoint_at(Path(path))
    return from_contents(checkpoint.load(path), path, agent_type)


def from_contents(contents: dict[str, Any], path: Path, agent_type: str | None = None) -> Agent:
    """As :func:`from_checkpoint`, for a file that was loaded already."""
    state = contents["model_state_dict"]
    if "vision.vision_cnn.0.weight" in state:
        raise UsageError(
            f"{path} is an attention agent of 2019, whose network is another one than aaa: linear "
            "convolutions, a third layer of queries, the last action as one number"
        )
    if "feat_convs.0.0.weight" in state and "policy.weight" not in state:
        raise UsageError(
            f"{path} holds filters alone, for --mode filter_comp and _filter_comp of "
            f"analysis.analyze_resnet: play {run_of(path)}"
        )
    try:
        if "agent" in contents:
            config = AgentConfig(**contents["agent"])
            if config.agent_type not in AGENTS and config.agent_type != agent_type:
                raise UsageError(
                    f"{path} is of an agent of your own: allow it with "
                    f"--agent_type {config.agent_type}"
                )
        else:
            found = config_from_state(state, checkpoint.read_meta(path))
            config = read(AgentConfig, found._asdict())
            state = convert_state(state, config)
        if config.agent_type in AGENTS:
            _check_sizes(state, config)
        agent = make_agent(config)
        # Buffers that did not exist in 2019 keep their defaults, which are what 2019 did.
        buffers = {"frame_mean": agent.frame_mean, "frame_scale": agent.frame_scale}
        load_weights(agent, buffers | state, path)
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        raise UsageError(f"{path} holds no agent of this program: {first_line(error)}") from error
    return agent.eval()


def load_weights(agent: Agent, state: dict[str, Any], path: Path) -> None:
    """Gives an agent the weights that a checkpoint has.

    Raises:
        UsageError: a custom agent's class has changed since.
        ValueError: they do not fit. The text names a weight.
    """
    try:
        agent.load_state_dict(state)
    except RuntimeError as error:  # Its first line names nothing but the class.
        first, *details = str(error).splitlines()
        reason = details[0].strip() if details else first
        if agent.config.agent_type not in AGENTS:
            raise UsageError(
                f"{path} does not fit {agent.config.agent_type}, which has changed since ({reason})"
                ": restore the class, or train a new agent"
            ) from error
        raise ValueError(reason) from error


def _check_sizes(state: dict[str, torch.Tensor], config: AgentConfig) -> None:
    """Raises ValueError unless an agent's memory is that of its weights in the file.

    A small file can name a large network.
    """
    with torch.device("meta"):
        agent = make_agent(config)
    for name, parameter in agent.named_parameters():
        saved = state.get(name)
        if saved is None:
            raise ValueError(f"{name} is missing")
        if saved.shape != parameter.shape:
            raise ValueError(f"{name} is {list(saved.shape)} instead of {list(parameter.shape)}")
    # Earlier formats have buffers of other shapes.
    if sum(buffer.numel() for buffer in agent.buffers()) > MAX_BUFFER_NUMBERS:
        raise ValueError(
            f"{len(config.tasks)} games of {list(config.observation_shape)} are too many"
        )


def config_from_state(state: dict[str, torch.Tensor], meta: dict[str, Any]) -> AgentConfig:
    """Finds the configuration that a state dict of 2019 belongs to, with the help of its
    ``meta.json``.

    The parameters decide; the meta data name the games.
    """
    args = meta.get("args", {})
    agent_type = "resnet" if "feat_convs.0.0.weight" in state else "atari"
    first = "feat_convs.0.0.weight" if agent_type == "resnet" else "conv1.weight"
    num_heads = state["baseline.bias"].shape[0]
    # Networks of the 2019 extension have statistics without PopArt, too, and then one head.
    use_popart = "baseline.mu" in state and (num_heads > 1 or bool(args.get("use_popart")))
    env = str(args.get("env", "unknown"))
    tasks = GROUPS.get(env, tuple(env.split(",")))
    if len(tasks) != num_heads and use_popart:
        tasks = tuple(f"task {i}" for i in range(num_heads))
    return AgentConfig(
        agent_type=agent_type,
        observation_shape=(state[first].shape[1], 84, 84),
        num_actions=state["policy.bias"].shape[0],
        tasks=tasks,
        use_lstm="core.weight_ih_l0" in state,
        use_popart=use_popart,
        # In 2019 the ResNet of the extension, which always has statistics, saw the rewards that it
        # learned from. The other networks clipped their input in any case.
        clip_reward_input="baseline.mu" not in state or args.get("reward_clipping") != "none",
    )


def convert_state(state: dict[str, torch.Tensor], config: AgentConfig) -> dict[str, torch.Tensor]:
    """Converts a state dict of 2019: its inputs come in the order of this program's agents.

    In 2019 the shallow network appended the reward and then the last action to its features; here
    the last action comes first. Statistics of an agent without PopArt become part of its head.
    """
    converted = dict(state)
    if "baseline.mu" in state and not config.use_popart:
        mu, sigma = converted.pop("baseline.mu"), converted.pop("baseline.sigma")
        converted["baseline.weight"] = state["baseline.weight"] * sigma.unsqueeze(-1)
        converted["baseline.bias"] = state["baseline.bias"] * sigma + mu
    names = ["core.weight_ih_l0"] if config.use_lstm else ["policy.weight", "baseline.weight"]
    for name in names if config.agent_type == "atari" else ():
        features, reward, last_action = converted[name].split(
            [state[name].shape[1] - 1 - config.num_actions, 1, config.num_actions], dim=1
        )
        converted[name] = torch.cat([features, last_action, reward], dim=1)
    return converted
