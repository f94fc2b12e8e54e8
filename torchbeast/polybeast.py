"""PolyBeast: ``python -m torchbeast.polybeast``. Flags, then wiring.

Environment servers step games; the actor pool streams their observations to inference threads and
whole rollouts to learner threads.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchbeast import evaluate
from torchbeast.core import flags as flags_lib
from torchbeast.core.allocation import allocate
from torchbeast.core.parsing import Parser
from torchbeast.core.threads import StopSignals
from torchbeast.core.types import AgentOutput, EnvOutput, UsageError

if TYPE_CHECKING:
    import torch

    from torchbeast.core.learner import Learner
    from torchbeast.core.weights import PublishedWeights
    from torchbeast.training import Setup, TrainingRun


def make_parser() -> argparse.ArgumentParser:
    parser = Parser("polybeast", "Trains and tests agents on one or many Atari games.")
    flags_lib.add_training_flags(parser)
    flags_lib.add_pool_flags(parser)
    group = flags_lib.add_server_flags(parser)
    group.add_argument(
        "--start_servers",
        action="store_true",
        default=True,
        help="Start servers and end them with the run (default).",
    )
    group.add_argument(
        "--no_start_servers",
        dest="start_servers",
        action="store_false",
        help="Connect to servers that run already (see torchbeast.polybeast_env).",
    )
    flags_lib.add_test_flags(parser)
    return parser


def train(flags: argparse.Namespace, signals: StopSignals) -> int:
    """Trains until --total_steps or a signal. Returns the exit code."""
    from torchbeast.core import servers as servers_lib
    from torchbeast.core.weights import PublishedWeights
    from torchbeast.training import TrainingRun, prepare

    check_compiled()
    setup = prepare(flags)
    if (flags.max_learner_queue_size or flags.batch_size) < flags.batch_size:
        raise UsageError("--max_learner_queue_size must be at least --batch_size")
    if setup.plan.servers < len(setup.games):
        raise UsageError(
            f"{len(setup.games)} games need at least as many servers, not {setup.plan.servers}"
        )
    if flags.pipes_basename is not None:
        servers_lib.check_basename(flags.pipes_basename, setup.plan.servers)
    elif not flags.start_servers:
        raise UsageError("--no_start_servers needs --pipes_basename: where the servers are")
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            TrainingRun(
                flags,
                setup,
                signals,
                lambda agent: PublishedWeights(
                    lambda: agent.inference_copy().to(setup.devices.inference),
                    setup.plan.inference_threads,
                ),
                queue_size=flags.max_learner_queue_size or flags.batch_size,
            )
        )
        basename = stack.enter_context(servers_lib.socket_directory(flags.pipes_basename))
        servers = None
        if flags.start_servers:
            servers = stack.enter_context(
                servers_lib.EnvServers(
                    basename,
                    setup.plan.servers,
                    flags.pipes_basename is None,
                    server_arguments(flags, setup, run.server_seed),
                )
            )
        queue, batcher, pool = make_pool(flags, setup, basename, run)
        first_version = run.learner.learner_steps

        def wanted() -> int:
            if not flags.synchronous:
                return 0
            return first_version + pool.count() // (flags.batch_size * flags.unroll_length)

        for i in range(setup.plan.inference_threads):
            run.threads.start(
                f"inference-{i}",
                inference_loop,
                batcher,
                run.weights,
                setup.devices.inference,
                len(setup.games),
                wanted,
            )
        for i in range(setup.plan.learner_threads):
            run.threads.start(
                f"learner-{i}", learner_loop, queue, run.learner, setup.devices.learner
            )
        run.threads.start("actors", pool.run)

        def stop() -> None:
            queue.close()
            batcher.close()

        return run.watch(
            check=servers.check if servers is not None else lambda: None,
            queues=lambda: {"learner": queue.size(), "inference": batcher.size()},
            stop=stop,
        )


def check_compiled() -> None:
    """Raises UsageError where the extension modules are missing."""
    try:
        import libtorchbeast  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "PolyBeast's C++ part was not compiled (make build, or pip install .); "
            "python -m torchbeast.monobeast needs none"
        ) from error


def server_arguments(flags: argparse.Namespace, setup: Setup, seed: int) -> list[str]:
    return [
        f"--env={','.join(setup.games)}",
        *(f"--{name}={value}" for name, value in setup.observation._asdict().items()),
        f"--seed={seed}",
        *([f"--tls_dir={flags.tls_dir}"] if flags.tls_dir else []),
    ]


def make_pool(
    flags: argparse.Namespace, setup: Setup, basename: str, run: TrainingRun
) -> tuple[Any, Any, Any]:
    """Learner queue, inference batcher and actor pool."""
    import torch

    from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher
    from torchbeast.core.servers import load_tls

    cuda = setup.devices.learner.type == "cuda"
    queue = BatchingQueue(
        batch_dim=1,
        minimum_batch_size=run.rollouts_at_once,
        maximum_batch_size=run.rollouts_at_once,
        maximum_queue_size=flags.max_learner_queue_size or flags.batch_size,
        allocator=(lambda n: torch.empty(n, dtype=torch.uint8, pin_memory=True)) if cuda else None,
    )
    # A quarter of the actors, if they come soon: small batches cost the network nearly as much.
    batcher = DynamicBatcher(
        batch_dim=1,
        minimum_batch_size=max(1, flags.num_actors // 4),
        maximum_batch_size=512,
        timeout_ms=5,
    )
    loads = allocate(setup.num_actors, len(setup.games), setup.plan.servers)
    pool = ActorPool(
        unroll_length=flags.unroll_length,
        learner_queue=queue,
        inference_batcher=batcher,
        env_server_addresses=[flags_lib.server_address(basename, i) for i in range(len(loads))],
        initial_agent_state=tuple(s.cpu() for s in run.learner.agent.initial_state(1)),
        environments_per_stream=[load.num_environments for load in loads],
        tls=load_tls(flags.tls_dir),
    )
    return queue, batcher, pool


def inference_loop(
    batcher: Any,
    weights: PublishedWeights,
    device: torch.device,
    num_games: int,
    wanted: Callable[[], int],
) -> None:
    """An inference thread: answers batches until the batcher is closed.

    ``wanted``: the version of the weights that must be there before a batch is answered. Raises
    UsageError if a server plays a game that the agent does not have.
    """
    import torch

    from torchbeast.core.devices import Lane

    lane = Lane(device)
    with lane.active(), torch.inference_mode():
        for batch in batcher:
            while not weights.wait_for(wanted(), timeout=0.1):
                if batcher.is_closed():
                    return
            fields, state = batch.get_inputs()
            env_output = EnvOutput(*fields)
            task = int(env_output.task.max())
            if task >= num_games:
                raise UsageError(
                    f"A server plays game {task} of its list, this agent learns {num_games}, from "
                    "0 on: give both sides the same --env"
                )
            # Travels with the rollout behind the fields of AgentOutput.
            versions = torch.empty(env_output.reward.shape, dtype=torch.int64)
            env_output, state = lane.upload((env_output, state))
            with weights.reading() as (agent, version):
                outputs = lane.download(agent(env_output, state))
            agent_output, state = outputs
            batch.set_outputs(((*agent_output, versions.fill_(version)), state))


def learner_loop(queue: Any, learner: Learner, device: torch.device) -> None:
    """A learner thread: learns from rollouts until there is nothing more to learn."""
    from torchbeast.core.devices import Lane
    from torchbeast.core.learner import LearnerClosed

    lane = Lane(device)
    for item in queue:
        (env_output, (*agent_output, versions)), state = lane.upload(item)
        try:
            learner.learn(EnvOutput(*env_output), AgentOutput(*agent_output), state, versions)
        except LearnerClosed:
            return


def main(argv: list[str] | None = None) -> int:
    return evaluate.run_mode("polybeast", make_parser().parse_args(argv), train)


if __name__ == "__main__":
    sys.exit(main())
