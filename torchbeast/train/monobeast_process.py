"""One actor of MonoBeast, and the memory that actors and learner share."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing.reduction
import os
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from torchbeast.core.types import (
    ENV_OUTPUT_TYPES,
    AgentOutput,
    EnvOutput,
    EnvStep,
    ObservationConfig,
    RunError,
)
from torchbeast.envs import EnvStream, derive_seed, make_watched
from torchbeast.models import Agent, AgentConfig, make_agent
from torchbeast.runtime.allocation import task_of
from torchbeast.runtime.devices import map_tensors
from torchbeast.runtime.precision import choose_dtype
from torchbeast.runtime.text import first_line
from torchbeast.runtime.workers import begin_worker
from torchbeast.train.plan import RunPlan


class Rollout(NamedTuple):
    """One rollout, leaves ``[T + 1, 1, ...]``."""

    env: EnvOutput
    actor: AgentOutput
    policy_version: torch.Tensor  # int64 [T + 1, 1]
    initial_state: tuple[torch.Tensor, ...]  # [L, 1, H], before the first row.

    def write_env_step(self, t: int, step: EnvStep) -> None:
        """Writes ``step`` into row ``t`` of ``env``."""
        self.env.frame[t, 0] = torch.from_numpy(step.frame)
        for field, value in zip(self.env[1:], step[1:], strict=True):
            field[t, 0] = value

    def write_agent_output(self, t: int, output: AgentOutput) -> None:
        """Writes ``output``, leaves ``[1, 1, ...]``, into row ``t`` of ``actor``."""
        for field, value in zip(self.actor, output, strict=True):
            field[t, 0] = value[0, 0]


def share(tensor: torch.Tensor) -> torch.Tensor:
    """Moves a tensor to shared memory. Raises RunError if there is no room for it."""
    try:
        return tensor.share_memory_()
    except RuntimeError as error:  # In a container, for example.
        raise RunError(
            f"rollouts and weights do not fit into shared memory: {first_line(error)}; give it "
            "more (docker run --shm-size), or lower --num_actors or --num_buffers"
        ) from error


class RolloutBuffers:
    """``count`` rollouts in shared memory. Each field is one tensor that holds all rollouts."""

    def __init__(self, config: AgentConfig, unroll_length: int, count: int) -> None:
        self.num_rows = unroll_length + 1
        self._count = count
        shared = self._shared
        self._all = Rollout(
            EnvOutput(
                frame=shared(*config.observation_shape, dtype=torch.uint8),
                **{
                    name: shared(dtype=getattr(torch, kind))
                    for name, kind in ENV_OUTPUT_TYPES.items()
                },
            ),
            AgentOutput(
                shared(1, dtype=torch.int64),
                shared(config.num_actions),
                shared(config.num_heads),
                shared(config.num_heads),
            ),
            shared(dtype=torch.int64),
            tuple(
                share(state.expand(count, *state.shape).clone())
                for state in make_agent(config).initial_state(1)
            ),
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Rollout:
        """Returns a view of rollout ``index``."""
        rollout: Rollout = map_tensors(lambda field: field[index], self._all)
        return rollout

    def _shared(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return share(torch.zeros(self._count, self.num_rows, 1, *shape, dtype=dtype))


def join_buffers(parts: Sequence[Rollout]) -> Rollout:
    """Joins rollouts to leaves ``[T + 1, B, ...]``. A single one is returned without a copy."""
    if len(parts) == 1:
        return parts[0]
    joined: Rollout = map_tensors(lambda *tensors: torch.cat(tensors, dim=1), *parts)
    return joined


class SharedWeights:
    """The newest weights, for all processes. A reader gets the weights of one version, never a mix.

    All are 0 until :meth:`publish` is called.

    A lock on a file guards them. The kernel frees this lock when the process that holds it is
    killed; a lock in shared memory would stay locked. Only one thread per process may use it.
    """

    # Each tensor begins at a multiple of this many bytes, so that it can have any type.
    _ALIGNMENT = 64

    def __init__(self, agent: Any) -> None:
        self._layout: dict[str, tuple[int, int, torch.dtype, torch.Size]] = {}
        end = 0
        for name, value in agent.state_dict().items():
            start = -(-end // self._ALIGNMENT) * self._ALIGNMENT
            end = start + value.numel() * value.element_size()
            self._layout[name] = (start, end, value.dtype, value.shape)
        # One block: each shared tensor takes a file descriptor, and a process can be sent 256.
        self._bytes = share(torch.zeros(end, dtype=torch.uint8))
        self._version = share(torch.zeros((), dtype=torch.int64))
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._state = self._views()

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_file": multiprocessing.reduction.DupFd(self._file.fileno())}
        del state["_state"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._file = os.fdopen(state["_file"].detach(), "w+b")
        self._state = self._views()

    def _views(self) -> dict[str, torch.Tensor]:
        return {
            name: self._bytes[start:end].view(dtype).view(shape)
            for name, (start, end, dtype, shape) in self._layout.items()
        }

    @torch.no_grad()
    def publish(self, agent: Any, version: int) -> None:
        """Copies the weights of ``agent`` to shared memory, as those of ``version``."""
        with self._locked(fcntl.LOCK_EX):
            for name, value in agent.state_dict().items():
                self._state[name].copy_(value)
            self._version.fill_(version)

    @torch.no_grad()
    def copy_to(self, agent: Any) -> int:
        """Copies the newest weights into ``agent``; returns their version."""
        targets = agent.state_dict()
        with self._locked(fcntl.LOCK_SH):
            for name, value in self._state.items():
                targets[name].copy_(value)
            return int(self._version)

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        # This kind of lock belongs to the process. All processes inherit the file handle.
        fcntl.lockf(self._file, kind)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


class ActorConfig(NamedTuple):
    """What an actor process needs to know; plain values."""

    num_actors: int
    agent: AgentConfig
    observation: ObservationConfig
    full_action_space: bool
    compute_dtype: torch.dtype
    seed: int
    step_timeout_s: float


def actor_config(plan: RunPlan, seed: int, agent: Agent) -> ActorConfig:
    """Makes the configuration of the actor processes from a planned run."""
    config = plan.config
    return ActorConfig(
        num_actors=plan.num_actors,
        agent=agent.config,
        observation=config.observation,
        full_action_space=plan.full_action_space,
        # Actors act on the CPU, wherever the agent learns.
        compute_dtype=choose_dtype(config.machine.precision, torch.device("cpu")),
        seed=seed,
        step_timeout_s=config.step_timeout_s,
    )


def act(
    config: ActorConfig,
    index: int,
    generation: int,
    weights: SharedWeights,
    buffers: RolloutBuffers,
    pipe: Any,
) -> None:
    """Runs an actor process, which fills the buffers it is given until the pipe closes.

    The traceback of an exception, or of sys.exit, goes through the pipe, and the process ends.
    """
    seed = derive_seed(config.seed, index, generation)
    begin_worker(seed=seed)
    try:
        _fill_buffers(config, index, seed, weights, buffers, pipe)
    except BaseException:  # Also SystemExit, and what libraries derive from BaseException.
        with contextlib.suppress(OSError):
            pipe.send(traceback.format_exc().rstrip())


def _fill_buffers(
    config: ActorConfig,
    index: int,
    seed: int,
    weights: SharedWeights,
    buffers: RolloutBuffers,
    pipe: Any,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    task = task_of(index, len(config.agent.tasks))
    env: Any = make_watched(
        config.agent.tasks[task],
        config.observation,
        full_action_space=config.full_action_space,
        seed=seed,
        timeout_s=config.step_timeout_s,
    )
    agent = make_agent(config.agent).inference_copy(config.compute_dtype)
    with contextlib.closing(env), torch.inference_mode():
        stream = EnvStream(env, task)
        row, output, state = stream.initial(), None, agent.initial_state(1)
        for buffer in _receive_buffers(pipe):
            rollout = buffers[buffer]
            version = weights.copy_to(agent)
            # Row 0 is the last of the rollout before. Nobody reads its policy_version.
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
    """Yields the buffers to fill, and gives each back to the learner; ends with the pipe."""
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
