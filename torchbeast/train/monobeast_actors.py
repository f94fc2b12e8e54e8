"""MonoBeast's actors, and the threads that learn from their rollouts.

The learner's process hands an actor a free buffer, the actor fills it with a rollout and says so.
Each actor has a separate pipe, so that it may be killed at any moment without anybody
else waiting for it.
"""

from __future__ import annotations

import multiprocessing.connection
import queue
import threading
import time
from typing import Any

import torch

from torchbeast.core.batch_gate import LearnerClosed
from torchbeast.core.learner import Learner
from torchbeast.envs.games import short_name
from torchbeast.runtime.alarm import describe_end
from torchbeast.runtime.devices import DeviceStream
from torchbeast.runtime.workers import Failures, fork_context, start_worker
from torchbeast.train.monobeast_process import (
    ActorConfig,
    RolloutBuffers,
    SharedWeights,
    act,
    join_buffers,
)

# How long environments get to close.
CLOSING_S = 1.0


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
        self._context = fork_context("torchbeast.train.monobeast_process")
        self._config = config
        self._weights = weights
        self._actors: list[Any] = [None] * num_actors
        self._pipes: list[Any] = [None] * num_actors
        self._working: list[int | None] = [None] * num_actors  # The buffer each one fills.
        self._starts = [0] * num_actors
        self._failures = Failures(num_actors, config.step_timeout_s)
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
        try:
            for index in range(len(self._actors)):
                self._start(index)
        except BaseException:
            self.__exit__()
            raise
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
            deaths = {actor.sentinel: (i, actor) for i, actor in enumerate(self._actors)}
            everybody = [*sources, *deaths, self._wake_reader]
            for ready in multiprocessing.connection.wait(everybody, timeout=1.0):
                if ready is self._wake_reader:
                    self._wake_reader.recv_bytes()
                elif ready in deaths:
                    self._note_death(*deaths[ready])
                elif self._pipes[sources[ready]] is ready:  # Not that of an actor just replaced.
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
        process = self._context.Process(
            target=act,
            args=(
                self._config,
                index,
                self._starts[index],
                self._weights,
                self.buffers,
                theirs,
            ),
            name=f"actor-{index}",
            # An environment may start processes, which a daemon may not. It ends with this one all
            # the same.
            daemon=False,
        )
        start_worker(process)
        self._starts[index] += 1
        self._actors[index] = process
        theirs.close()  # So that the pipe ends with the actor.
        self._pipes[index] = ours
        self._waiting.append(index)

    def _hand_out(self) -> None:
        while self._waiting and not self._free.empty():
            index, buffer = self._waiting.pop(0), self._free.get()
            try:
                self._pipes[index].send(buffer)
                self._working[index] = buffer
            except OSError:  # It died, which is noticed in a moment.
                self._free.put(buffer)

    def _note_death(self, index: int, process: Any) -> None:
        """Replaces a process that has ended, after what it sent.

        Its pipe alone does not tell: a process that its environment started may hold it open.
        """
        while self._actors[index] is process and not self._stopped.is_set():
            if self._pipes[index].poll():
                self._listen(index)
            else:
                self._replace(index)

    def _listen(self, index: int) -> None:
        try:
            failure = self._pipes[index].recv()
        except (EOFError, OSError):
            self._replace(index)
            return
        if failure is not None:
            self._replace(index, failure)
            return
        buffer = self._working[index]
        assert buffer is not None
        self._working[index] = None
        self._waiting.append(index)
        self._full.put(buffer)

    def _replace(self, index: int, failure: str | None = None) -> None:
        """Puts a new process in the place of one that died, or that sent a traceback."""
        process = self._actors[index]
        if failure is not None:
            process.kill()  # An environment's threads could keep it alive.
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
        game = short_name(self._config.agent.tasks[self._config.tasks[index]])
        end = describe_end(process.exitcode, self._config.step_timeout_s)
        reason = end if failure is None else "failed"
        self._failures.note(index, f"actor {index} ({game})", reason, failure or "")
        self._start(index)


def learner_loop(
    actors: ActorProcesses, learner: Learner, device: torch.device, rollouts_at_once: int
) -> None:
    """Runs a learner thread, which learns from ``rollouts_at_once`` rollouts at a time."""
    stream = DeviceStream(device)
    while True:
        indices = actors.get(rollouts_at_once)
        if indices is None:
            return
        rollout = stream.upload(join_buffers([actors.buffers[i] for i in indices]))
        if device.type != "cpu":
            actors.give_back(indices)  # The rollouts are on the device.
        try:
            learner.learn(rollout.env, rollout.actor, rollout.initial_state, rollout.policy_version)
        except LearnerClosed:
            return
        if device.type == "cpu":
            actors.give_back(indices)
