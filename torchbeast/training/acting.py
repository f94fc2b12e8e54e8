"""One actor of MonoBeast: a process that steps an environment and acts on its own."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torchbeast.core.precision import choose_dtype
from torchbeast.core.types import EnvOutput
from torchbeast.envs import EnvStream, derive_seed, make_env
from torchbeast.models import Agent, AgentConfig, make_agent
from torchbeast.runtime.allocation import actor_tasks
from torchbeast.runtime.watchdog import Watchdog
from torchbeast.runtime.workers import begin_worker
from torchbeast.training.setup import Setup
from torchbeast.training.shared import RolloutBuffers, SharedWeights


class ActorConfig(NamedTuple):
    """What an actor process needs to know; plain values."""

    tasks: tuple[int, ...]
    """The task of each actor."""
    agent: AgentConfig
    env_options: dict[str, Any]
    compute_dtype: torch.dtype
    seed: int
    step_timeout_s: float
    max_failures: int
    """Exceptions of one actor within ten minutes at which the run ends."""


def actor_config(setup: Setup, seed: int, agent: Agent) -> ActorConfig:
    """Makes the configuration of the actor processes from a planned run."""
    config = setup.config
    observation = config.observation._asdict()
    return ActorConfig(
        tasks=actor_tasks(setup.shares),
        agent=agent.config,
        env_options={**observation, "full_action_space": setup.full_action_space},
        # Actors act on the CPU, wherever the agent learns.
        compute_dtype=choose_dtype(config.machine.precision, torch.device("cpu")),
        seed=seed,
        step_timeout_s=config.step_timeout_s,
        max_failures=config.pool.max_environment_failures,
    )


def act(
    config: ActorConfig,
    index: int,
    generation: int,
    weights: SharedWeights,
    buffers: RolloutBuffers,
    watchdog: Watchdog,
    pipe: Any,
) -> None:
    """Runs an actor process, which fills the buffers it is given until the pipe closes.

    The traceback of an exception, or of sys.exit, goes through the pipe, and the process ends.
    """
    seed = derive_seed(config.seed, index, generation)
    begin_worker(seed=seed)
    try:
        _fill_buffers(config, index, seed, weights, buffers, watchdog, pipe)
    except (Exception, SystemExit):
        with contextlib.suppress(OSError):
            pipe.send(traceback.format_exc().rstrip())


def _fill_buffers(
    config: ActorConfig,
    index: int,
    seed: int,
    weights: SharedWeights,
    buffers: RolloutBuffers,
    watchdog: Watchdog,
    pipe: Any,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    task = config.tasks[index]
    with watchdog.inside(index):
        env = make_env(config.agent.tasks[task], seed=seed, **config.env_options)
    agent = make_agent(config.agent)
    agent.compute_dtype = config.compute_dtype
    agent = agent.inference_copy()
    with contextlib.closing(watchdog.watch(index, env)) as env, torch.inference_mode():
        stream = EnvStream(env, task)
        row, output, state = stream.initial(), None, agent.initial_state(1)
        for buffer in _receive_buffers(pipe):
            rollout = buffers[buffer]
            version = weights.copy_to(agent)
            # Row 0 is the last of the rollout before.
            for saved, value in zip(rollout.initial_state, state, strict=True):
                saved.copy_(value)
            for t in range(buffers.num_rows):
                if t > 0:
                    assert output is not None
                    row = stream.step(int(output.action))
                    rollout.write_agent_output(t, output)
                elif output is not None:
                    rollout.write_agent_output(0, output)
                rollout.write_env_step(t, row)
                rollout.policy_version[t] = version
                if t < buffers.num_rows - 1:
                    inputs = EnvOutput(*(field[t : t + 1] for field in rollout.env))
                    output, state = agent(inputs, state, sample=True)


def _receive_buffers(pipe: Any) -> Iterator[int]:
    """The buffers to fill, until the pipe is closed. Asking for the next one returns the last."""
    while True:
        try:
            buffer = pipe.recv()
        except (EOFError, OSError):
            return
        yield buffer
        try:
            pipe.send(None)
        except OSError:
            return
