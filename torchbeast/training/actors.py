"""MonoBeast's actors: processes that step one environment each and act on their own.

The learner's process hands an actor a free buffer, the actor fills it with a rollout and says so.
Each has a separate pipe, so that an actor may be killed at any moment without anybody
else waiting for it.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torchbeast.core.types import EnvOutput
from torchbeast.models import AgentConfig
from torchbeast.runtime.watchdog import Watchdog
from torchbeast.runtime.workers import Restarts, fork_context, start_worker
from torchbeast.training.shared import RolloutBuffers, SharedWeights

# How long environments get to close.
CLOSING_S = 1.0


class ActorConfig(NamedTuple):
    """What an actor process needs to know; plain values."""

    tasks: tuple[int, ...]
    """The task of each actor."""
    agent: AgentConfig
    env_options: dict[str, Any]
    compute_dtype: torch.dtype
    seed: int
    step_timeout_s: float


def act(
    config: ActorConfig,
    index: int,
    generation: int,
    weights: SharedWeights,
    buffers: RolloutBuffers,
    watchdog: Watchdog,
    pipe: Any,
) -> None:
    """Runs an actor process, which fills the buffers it is given until the pipe closes."""
    from torchbeast.envs import EnvStream, derive_seed, make_env
    from torchbeast.models import make_agent
    from torchbeast.runtime.workers import begin_worker

    begin_worker()
    torch.set_num_threads(1)
    seed = derive_seed(config.seed, index, generation)
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


class ActorProcesses:
    """Starts the actors, hands out buffers, replaces actors that die. A context manager.

    :meth:`run` belongs to one thread; :meth:`get` and :meth:`give_back` to any.
    """

    def __init__(
        self, config: ActorConfig, buffers: RolloutBuffers, weights: SharedWeights
    ) -> None:
        self.buffers = buffers
        num_actors = len(config.tasks)
        # Forks of a fresh process that has torch imported, but never used: they start at once and
        # share its pages. A fork of this process would inherit its threads half.
        self._context = fork_context("torchbeast.training.actors", "torchbeast.envs")
        self._config = config
        self._weights = weights
        self._actors: list[Any] = [None] * num_actors
        self._pipes: list[Any] = [None] * num_actors
        self._working: list[int | None] = [None] * num_actors  # The buffer each one fills.
        self._restarts = Restarts("monobeast", "actor", num_actors)
        self._watchdog = Watchdog(self._context, num_actors, config.step_timeout_s)
        self._waiting: list[int] = []  # Actors without a buffer, longest first.
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for buffer in range(len(buffers)):
            self._free.put(buffer)
        self._full: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._taking = threading.Lock()
        self._stopped = threading.Event()
        # Wakes run() when a buffer came back or all is to end.
        self._wake_reader, self._wake_writer = self._context.Pipe(duplex=False)
        self._wake_lock = threading.Lock()

    def __enter__(self) -> ActorProcesses:
        for index in range(len(self._actors)):
            self._start(index)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        # An actor that waits for a buffer closes its environment now; others are not waited for.
        for pipe in self._pipes:
            if pipe is not None:
                pipe.close()
        started = [process for process in self._actors if process is not None]
        deadline = time.monotonic() + CLOSING_S
        for process in started:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
        for process in started:
            process.join()

    def run(self) -> None:
        """Keeps the actors at work until :meth:`stop`. Raises RunError if one cannot live."""
        while not self._stopped.is_set():
            self._hand_out()
            sources = {pipe: index for index, pipe in enumerate(self._pipes)}
            for index in filter(self._watchdog.is_hung, sources.values()):
                self._watchdog.end(self._actors[index])  # Its pipe says so in a moment.
            everybody = [*sources, self._wake_reader]
            for ready in multiprocessing.connection.wait(everybody, timeout=1.0):
                if ready is self._wake_reader:
                    self._wake_reader.recv_bytes()
                else:
                    self._listen(sources[ready])

    def get(self, count: int) -> list[int] | None:
        """Waits for ``count`` full buffers and returns their indices. None after :meth:`stop`."""
        indices: list[int] = []
        with self._taking:  # Two threads must not hold half a batch each.
            while len(indices) < count:
                index = self._full.get()
                if index is None:
                    self._full.put(None)  # For the next one who asks.
                    return None
                indices.append(index)
        return indices

    def give_back(self, indices: list[int]) -> None:
        """Returns buffers from :meth:`get`, which are needed no longer, to the actors."""
        for index in indices:
            self._free.put(index)
        self._wake()

    def num_full(self) -> int:
        """Returns the number of rollouts that wait for the learner."""
        return self._full.qsize()

    def stop(self) -> None:
        """Ends :meth:`run` and every :meth:`get`."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._wake()
            self._full.put(None)

    def _wake(self) -> None:
        with self._wake_lock:
            self._wake_writer.send_bytes(b"x")

    def _start(self, index: int) -> None:
        ours, theirs = self._context.Pipe()
        self._actors[index] = self._context.Process(
            target=act,
            args=(
                self._config,
                index,
                self._restarts.note_start(index),
                self._weights,
                self.buffers,
                self._watchdog,
                theirs,
            ),
            name=f"actor-{index}",
            daemon=True,
        )
        start_worker(self._actors[index])
        theirs.close()  # So that the pipe ends with the actor.
        self._pipes[index] = ours
        self._waiting.append(index)

    def _hand_out(self) -> None:
        while self._waiting and not self._free.empty():
            index, buffer = self._waiting.pop(0), self._free.get()
            try:
                self._pipes[index].send(buffer)
                self._working[index] = buffer
            except OSError:  # It died; its pipe says so in a moment.
                self._free.put(buffer)

    def _listen(self, index: int) -> None:
        try:
            self._pipes[index].recv()
        except (EOFError, OSError):
            self._replace(index)
            return
        buffer = self._working[index]
        assert buffer is not None
        self._working[index] = None
        self._waiting.append(index)
        self._full.put(buffer)

    def _replace(self, index: int) -> None:
        """Puts a new process in the place of one that died."""
        process = self._actors[index]
        process.join()
        self._pipes[index].close()
        buffer = self._working[index]
        if buffer is not None:
            self._free.put(buffer)  # What it held is not a whole rollout.
            self._working[index] = None
        if index in self._waiting:
            self._waiting.remove(index)
        if self._stopped.is_set():
            return
        self._restarts.note_end(index, *self._watchdog.explain(index, process.exitcode))
        self._start(index)
