"""MonoBeast's actors: processes that step one environment each and act on their own.

The learner's process hands an actor a free buffer, the actor fills it with a rollout and says so.
They talk over a pipe of their own, so that an actor may be killed at any moment without anybody
else waiting for it.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import queue
import threading
from typing import Any, NamedTuple

import torch

from torchbeast.core.types import EnvOutput
from torchbeast.models import AgentConfig
from torchbeast.runtime.workers import Lives
from torchbeast.training.shared import RolloutBuffers, SharedWeights


class ActorConfig(NamedTuple):
    """What an actor process needs to know; plain values."""

    tasks: tuple[int, ...]
    """The task of each actor."""
    agent: AgentConfig
    env_options: dict[str, Any]
    compute_dtype: torch.dtype
    seed: int


def act(
    config: ActorConfig,
    index: int,
    generation: int,
    weights: SharedWeights,
    buffers: RolloutBuffers,
    pipe: Any,
) -> None:
    """An actor process: fills the buffers it is given until the pipe closes."""
    from torchbeast.envs import EnvStream, derive_seed, make_env
    from torchbeast.models import make_agent
    from torchbeast.runtime.workers import begin_worker

    begin_worker()
    torch.set_num_threads(1)
    seed = derive_seed(config.seed, index, generation)
    torch.manual_seed(seed)
    task = config.tasks[index]
    env = EnvStream(make_env(config.agent.tasks[task], seed=seed, **config.env_options), task)
    agent = make_agent(config.agent)
    agent.compute_dtype = config.compute_dtype
    agent = agent.inference_copy()
    with torch.inference_mode():
        row, output, state = env.initial(), None, agent.initial_state(1)
        while True:
            try:
                rollout = buffers[pipe.recv()]
            except EOFError:
                return
            version = weights.copy_to(agent)
            # Row 0 is the last of the rollout before.
            for saved, value in zip(rollout.initial_state, state, strict=True):
                saved.copy_(value)
            for t in range(buffers.num_rows):
                if t > 0:
                    assert output is not None
                    row = env.step(int(output.action))
                    rollout.write_agent_output(t, output)
                elif output is not None:
                    rollout.write_agent_output(0, output)
                rollout.write_env_step(t, row)
                rollout.policy_version[t] = version
                if t < buffers.num_rows - 1:
                    inputs = EnvOutput(*(field[t : t + 1] for field in rollout.env))
                    output, state = agent(inputs, state, sample=True)
            pipe.send(None)


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
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torchbeast.training.actors", "torchbeast.envs"])
        self._config = config
        self._weights = weights
        self._actors: list[Any] = [None] * num_actors
        self._pipes: list[Any] = [None] * num_actors
        self._working: list[int | None] = [None] * num_actors  # The buffer each one fills.
        self._lives = Lives("monobeast", "actor", num_actors)
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
        for process in self._actors:
            if process is not None:
                process.kill()
        for process, pipe in zip(self._actors, self._pipes, strict=True):
            if process is not None:
                process.join()
                pipe.close()

    def run(self) -> None:
        """Keeps the actors at work until :meth:`stop`. Raises RunError if one cannot live."""
        while not self._stopped.is_set():
            self._hand_out()
            sources = {pipe: index for index, pipe in enumerate(self._pipes)}
            for ready in multiprocessing.connection.wait([*sources, self._wake_reader]):
                if ready is self._wake_reader:
                    self._wake_reader.recv_bytes()
                else:
                    self._listen(sources[ready])

    def get(self, count: int) -> list[int] | None:
        """The indices of ``count`` full buffers; waits for them. None after :meth:`stop`."""
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
        """Buffers from :meth:`get` that are needed no longer."""
        for index in indices:
            self._free.put(index)
        self._wake()

    def num_full(self) -> int:
        """Rollouts that wait for the learner."""
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
                self._lives.begin(index),
                self._weights,
                self.buffers,
                theirs,
            ),
            name=f"actor-{index}",
            daemon=True,
        )
        self._actors[index].start()
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
        self._lives.end(index, process.exitcode)
        self._start(index)
