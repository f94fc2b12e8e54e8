"""MonoBeast: ``python -m torchbeast.monobeast``. Flags, then wiring.

The same learner as PolyBeast's on one machine, without compiled code: every actor is a process that
steps one environment, acts on its own, and writes rollouts into shared memory.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from torchbeast.cli import flags as flags_lib
from torchbeast.cli.parsing import Parser, positive
from torchbeast.core.types import UsageError
from torchbeast.modes import run_mode
from torchbeast.runtime.signals import StopSignals

if TYPE_CHECKING:
    from torchbeast.train import RunPlan


def make_parser() -> Parser:
    """Builds the parser of ``python -m torchbeast.monobeast``."""
    parser = Parser(
        "monobeast", "Trains and tests agents without compiled code.", flags_lib.SHOWN_FLAGS
    )
    group = flags_lib.add_training_flags(parser)
    group.add_argument(
        "--num_actors",
        type=positive,
        default=4,
        help="Actor processes per game. (default: %(default)s)",
    )
    group.add_argument(
        "--num_buffers",
        type=positive,
        help="Rollouts in shared memory. (default: the number of actors plus --batch_size)",
    )
    flags_lib.add_test_flags(parser)
    return parser


def train(flags: argparse.Namespace, signals: StopSignals) -> None:
    """Trains until --total_steps or a signal."""
    from torchbeast.train import TrainingConfig, TrainingRun, make_plan, open_run
    from torchbeast.train.monobeast_actors import ActorProcesses, learner_loop
    from torchbeast.train.monobeast_process import RolloutBuffers, SharedWeights, actor_config

    config = TrainingConfig.from_flags(vars(flags))
    plan = make_plan(config, has_pool=False)
    num_buffers = count_buffers(plan)
    with open_run(plan) as plan, TrainingRun(plan, signals, SharedWeights) as run:
        agent = run.learner.agent
        buffers = RolloutBuffers(agent.config, config.learning.unroll_length, num_buffers)
        settings = actor_config(plan, run.own_seed, agent)
        with ActorProcesses(settings, buffers, run.weights) as actors:
            for i in range(plan.num_actors):
                run.threads.start(f"actor-{i}", actors.run, i)
            for i in range(plan.threads.learner_threads):
                run.threads.start(
                    f"learner-{i}",
                    learner_loop,
                    actors,
                    run.learner,
                    plan.devices.learner,
                    run.rollouts_at_once,
                )
            run.supervise(
                check=lambda: None,
                queues=lambda: {"learner": actors.num_full(), "inference": 0},
                stop=actors.stop,
            )
        run.finish()


def count_buffers(plan: RunPlan) -> int:
    """Returns how many rollouts the shared memory has room for. Raises UsageError."""
    batch_size = plan.config.learning.batch_size
    num_buffers = plan.config.machine.num_buffers or plan.num_actors + batch_size
    if num_buffers <= batch_size:
        raise UsageError(f"--num_buffers must be more than --batch_size: {batch_size}")
    return num_buffers


def main(argv: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    return run_mode("monobeast", make_parser(), argv, train)


if __name__ == "__main__":
    sys.exit(main())
