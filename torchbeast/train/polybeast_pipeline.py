"""PolyBeast's queue, batcher and actor pool, and the threads at their other ends.

The compiled module is imported where it is used: without it, this package serves MonoBeast.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from typing import Any

import torch

from torchbeast.core.batch_gate import LearnerClosed
from torchbeast.core.learner import Learner
from torchbeast.core.types import AgentOutput, EnvOutput, RunError
from torchbeast.envs import describe_environment
from torchbeast.runtime.devices import DeviceStream
from torchbeast.runtime.workers import MAX_FAILURES
from torchbeast.servers.sources import ServerSource
from torchbeast.train.plan import RunPlan
from torchbeast.train.published_weights import PublishedWeights
from torchbeast.train.run import TrainingRun

log = logging.getLogger("torchbeast")

# How long servers may be away.
CONNECT_TIMEOUT_S = 600.0
# Observations per forward pass of the acting network, at most.
MAX_INFERENCE_BATCH = 512
# A thread handles 20,000 to 100,000 steps a second. So many environments reach that if their
# servers have about ten cores.
ENVIRONMENTS_PER_THREAD = 32


def make_batcher(num_actors: int) -> Any:
    """Makes the batcher that joins the observations of ``num_actors`` environments."""
    from libtorchbeast import DynamicBatcher

    # A quarter of the actors, if they come soon: small batches cost the network nearly as much.
    return DynamicBatcher(
        batch_dim=1,
        minimum_batch_size=max(1, min(num_actors // 4, MAX_INFERENCE_BATCH)),
        maximum_batch_size=MAX_INFERENCE_BATCH,
        timeout_ms=5,
    )


def choose_pool_threads(num_actors: int, cores: int) -> int:
    """Returns how many threads exchange observations and actions with the servers.

    >>> [choose_pool_threads(num_actors, cores=4) for num_actors in (1, 32, 33, 1000)]
    [1, 1, 2, 4]
    """
    return min(math.ceil(num_actors / ENVIRONMENTS_PER_THREAD), cores)


class Pipeline:
    """Everything between the environment servers and the learner.

    The actor pool steps the environments. Its observations go to the inference threads in batches,
    its rollouts through a queue to the learner threads.
    """

    def __init__(self, plan: RunPlan, run: TrainingRun, servers: ServerSource) -> None:
        """Plans the connections; :meth:`start` makes them.

        Args:
            run: its learner learns, its weights act, and its threads do the work.
        """
        self._servers = servers
        self._plan = plan
        self._run = run
        self._first_version = run.learner.learner_steps
        self._queue = self._make_queue()
        self._batcher = make_batcher(plan.num_actors)
        self._pool = self._make_pool()

    def start(self) -> None:
        """Starts the threads. They end after :meth:`close`."""
        devices, threads = self._plan.devices, self._run.threads
        for i in range(self._plan.threads.inference_threads):
            threads.start(
                f"inference-{i}",
                inference_loop,
                self._batcher,
                self._run.weights,
                devices.inference,
                self._required_version,
            )
        for i in range(self._plan.threads.learner_threads):
            threads.start(
                f"learner-{i}", learner_loop, self._queue, self._run.learner, devices.learner
            )
        threads.start("actors", self._run_pool)

    def check(self) -> None:
        """Connects servers that came. Raises RunError if servers cannot be replaced."""
        for index, address in self._servers.changes():
            self._pool.set_address(index, address)

    def sizes(self) -> dict[str, int]:
        """Returns how many rollouts wait for the learner, and how many observations for
        inference.
        """
        return {"learner": self._queue.size(), "inference": self._batcher.size()}

    def close(self) -> None:
        """Closes the queues, which ends the actor pool and every thread."""
        self._queue.close()
        self._batcher.close()

    def _run_pool(self) -> None:
        try:
            self._pool.run()
        except RuntimeError as error:
            reason, _, details = self._servers.explain(str(error)).partition("\n")
            if details:  # The traceback of an environment.
                log.error("%s\n%s", reason, details)
            raise RunError(reason.rstrip(":")) from error

    def _required_version(self) -> int:
        """The weights that must act next; any will do unless the run is synchronous."""
        if not self._plan.config.pool.synchronous:
            return 0
        learning = self._plan.config.learning
        steps_per_update = learning.batch_size * learning.unroll_length
        return self._first_version + self._pool.count() // steps_per_update

    def _make_queue(self) -> Any:
        from libtorchbeast import BatchingQueue

        return BatchingQueue(
            batch_dim=1,
            minimum_batch_size=self._run.rollouts_at_once,
            maximum_batch_size=self._run.rollouts_at_once,
            maximum_queue_size=self._plan.config.learner_queue_size,
            allocator=_allocate_pinned if self._plan.devices.learner.type == "cuda" else None,
        )

    def _make_pool(self) -> Any:
        from libtorchbeast import ActorPool

        config, servers = self._plan.config, self._plan.servers
        num_threads = choose_pool_threads(self._plan.num_actors, self._plan.cores)
        if num_threads > 1:
            # Else one of several threads waits for the connections of all, and hands over what it
            # receives.
            os.environ.setdefault("GRPC_POLL_STRATEGY", "poll")
        state = self._run.learner.agent.initial_state(1)
        return ActorPool(
            unroll_length=config.learning.unroll_length,
            learner_queue=self._queue,
            inference_batcher=self._batcher,
            env_server_addresses=list(self._servers.addresses),
            initial_agent_state=tuple(tensor.cpu() for tensor in state),
            environments_per_stream=servers,
            tls=self._servers.tls,
            tls_server_name=self._servers.tls_server_name,
            num_threads=num_threads,
            environments=[
                describe_environment(game, config.observation, self._plan.full_action_space)
                for game in config.games
            ],
            connect_timeout_s=CONNECT_TIMEOUT_S,
            max_environment_failures=MAX_FAILURES,
            # Servers replace an environment that hangs. This is for those that cannot.
            step_timeout_s=config.step_timeout_s * max(servers) + 60,
        )


def _allocate_pinned(num_bytes: int) -> torch.Tensor:
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)


def inference_loop(
    batcher: Any,
    weights: PublishedWeights,
    device: torch.device,
    required_version: Callable[[], int],
) -> None:
    """Runs an inference thread, which answers batches until the batcher is closed.

    ``required_version``: the version of the weights that must be there before a batch is answered.
    """
    # The environments wait for its answers: the learner's long kernels must not go first.
    stream = DeviceStream(device, urgent=True)
    with stream.active(), torch.inference_mode():
        for batch in batcher:
            while not weights.wait_for(required_version(), timeout=0.1):
                if batcher.is_closed():
                    return
            fields, state = batch.get_inputs()
            env_output = EnvOutput(*fields)
            # Travels with the rollout behind the fields of AgentOutput.
            versions = torch.empty(env_output.reward.shape, dtype=torch.int64)
            env_output, state = stream.upload((env_output, state))
            with weights.reading() as (agent, version):
                agent_output, state = stream.download(agent(env_output, state, sample=True))
            batch.set_outputs(((*agent_output, versions.fill_(version)), state))


def learner_loop(queue: Any, learner: Learner, device: torch.device) -> None:
    """Runs a learner thread, which learns from rollouts until there is nothing more to learn."""
    stream = DeviceStream(device)
    for item in queue:
        (env_output, (*agent_output, versions)), state = stream.upload(item)
        try:
            learner.learn(EnvOutput(*env_output), AgentOutput(*agent_output), state, versions)
        except LearnerClosed:
            return
