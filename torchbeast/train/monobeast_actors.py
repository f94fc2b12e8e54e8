"""MonoBeast's actors, and the threads that learn from their rollouts.

The learner's process hands an actor a free buffer, the actor fills it with a rollout and says so.
Each actor has a separate pipe, so that it may be killed at any moment without anybody
else waiting for it.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.forkserver
import queue
import threading
from typing import Any

import torch

from torchbeast.core.batch_gate import LearnerClosed
from torchbeast.core.learner import Learner
from torchbeast.envs.games import short_name
from torchbeast.runtime.alarm import describe_end
from torchbeast.runtime.allocation import task_of
from torchbeast.runtime.devices import DeviceStream
from torchbeast.runtime.workers import (
    Failures,
    end_workers,
    fork_context,
    interrupt_blocked,
    start_with_pipe,
)
from torchbeast.train.monobeast_process import (
    ActorConfig,
    RolloutBuffers,
    SharedWeights,
    act,
    join_buffers,
)

# A signal to all processes of a job ends actors, and within so many seconds stops the run.
SIGNAL_S = 1.0


class ActorProcesses:
    """Starts the actors, hands out buffers, replaces actors that die. A context manager.

    Each actor needs a thread in :meth:`run`; all else may be called by any thread.
    """

    def __init__(
        self, config: ActorConfig, buffers: RolloutBuffers, weights: SharedWeights
    ) -> None:
        self.buffers = buffers
        num_actors = config.num_actors
        # Forks of a fresh process that has torch imported, but never used: they start at once and
        # share its pages. A fork of this process would inherit its threads half.
        self._context = fork_context("torchbeast.train.monobeast_process")
        self._config = config
        self._weights = weights
        self._actors: list[Any] = [None] * num_actors
        self._pipes: list[Any] = [None] * num_actors
        # multiprocessing keeps one list of all children, and two threads that look at a child at
        # once may lose its exit code. (So may an evaluation that starts in that moment.)
        self._children_lock = threading.Lock()
        self._failures = Failures(num_actors, config.step_timeout_s)
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        for buffer in range(len(buffers)):
            self._free.put(buffer)
        self._full: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._taking = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> ActorProcesses:
        # Starts the fork server. On Linux it ends with the thread that started it, so that must not
        # be an actor's, which may end before the others.
        with interrupt_blocked():
            multiprocessing.forkserver.ensure_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        with self._children_lock:  # No actor is started any more.
            # One that waits for a buffer closes its environment now; others are not waited for.
            for pipe in self._pipes:
                if pipe is not None:
                    pipe.close()
            end_workers(self._actors)

    def run(self, index: int) -> None:
        """Keeps actor ``index`` at work until :meth:`stop`. Raises RunError if it cannot live."""
        generation = 0
        while self._start(index, generation):
            process = self._actors[index]
            failure = self._work(process, self._pipes[index])
            if failure is None:
                return
            self._pipes[index].close()
            end = describe_end(process.exitcode, self._config.step_timeout_s)
            games = self._config.agent.tasks
            game = short_name(games[task_of(index, len(games))])
            name = f"actor {index} ({game})"
            self._failures.note(index, name, "failed" if failure else end, failure)
            generation += 1

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

    def num_full(self) -> int:
        """Returns the number of rollouts that wait for the learner."""
        return self._full.qsize()

    def stop(self) -> None:
        """Ends every :meth:`run` and :meth:`get`."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._full.put(None)
            for _ in self._actors:
                self._free.put(None)

    def _start(self, index: int, generation: int) -> bool:
        """Starts an actor process, unless all is to end. Returns whether it did."""
        with self._children_lock:
            if self._stopped.is_set():
                return False
            arguments = (self._config, index, generation, self._weights, self.buffers)
            # An environment may start processes, which a daemon may not. It ends with this one all
            # the same.
            self._actors[index], self._pipes[index] = start_with_pipe(
                self._context, act, *arguments, name=f"actor-{index}", daemon=False
            )
        return True

    def _work(self, process: Any, pipe: Any) -> str | None:
        """Has an actor fill buffers until it fails or all is to end.

        Returns the traceback of a failed actor, empty if it sent none; None if all is to end.
        """
        while (buffer := self._free.get()) is not None:
            try:
                pipe.send(buffer)
                failure = self._receive(process, pipe)
            except (EOFError, OSError):
                failure = ""
            if failure is None:
                self._full.put(buffer)
                continue
            if self._stopped.wait(SIGNAL_S):
                return None
            with self._children_lock:
                process.kill()  # One that closed its pipe, or failed, may live on, and write.
                process.join()
            self._free.put(buffer)  # What it holds is not a whole rollout.
            return failure
        return None

    def _receive(self, process: Any, pipe: Any) -> str | None:
        """Waits for what an actor sends: None, or a traceback.

        Raises EOFError if it has ended, or all is to end. Its pipe alone does not tell: a process
        that its environment started may hold it open.
        """
        while not pipe.poll():
            ready = multiprocessing.connection.wait([pipe, process.sentinel], timeout=1.0)
            if self._stopped.is_set() or (ready == [process.sentinel] and not pipe.poll()):
                raise EOFError
        return pipe.recv()


def learner_loop(
    actors: ActorProcesses, learner: Learner, device: torch.device, rollouts_at_once: int
) -> None:
    """Runs a learner thread, which learns from ``rollouts_at_once`` rollouts at a time."""
    stream = DeviceStream(device)
    while (indices := actors.get(rollouts_at_once)) is not None:
        rollout = stream.upload(join_buffers([actors.buffers[i] for i in indices]))
        if device.type != "cpu":
            actors.give_back(indices)  # The rollouts are on the device.
        try:
            learner.learn(rollout.env, rollout.actor, rollout.initial_state, rollout.policy_version)
        except LearnerClosed:
            return
        if device.type == "cpu":
            actors.give_back(indices)
