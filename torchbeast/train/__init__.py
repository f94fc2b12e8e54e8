"""A training run: what PolyBeast and MonoBeast share between their flags and their actors.

:class:`TrainingConfig` is what the user asks for. :func:`make_plan` checks it and plans the run on
this machine. :func:`open_run` connects the ranks that learn together, and keeps other processes
from the run's directory. :class:`TrainingRun` owns what a run consists of and watches over it until
it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchbeast.records.run_lock import lock_run, reserve_name
from torchbeast.runtime.ranks import join_ranks
from torchbeast.train.config import TrainingConfig
from torchbeast.train.plan import RunPlan, make_plan
from torchbeast.train.run import TrainingRun

__all__ = ["RunPlan", "TrainingConfig", "TrainingRun", "make_plan", "open_run"]


@contextlib.contextmanager
def open_run(plan: RunPlan) -> Iterator[RunPlan]:
    """Reserves a run's directory for this process, and connects its ranks. A context manager.

    Yields:
        The plan, with the name of the run.

    Raises:
        UsageError: another process writes the run, or its directory cannot be written to.
        RunError: the other ranks cannot be reached.
    """
    output = plan.config.output
    with contextlib.ExitStack() as stack:
        # First, so that the others see it at once if the first rank is refused the directory.
        stack.enter_context(join_ranks(plan.ranks, plan.devices.learner))
        if plan.ranks.is_first:
            if output.xpid is None:
                plan = plan._replace(xpid=reserve_name(output.savedir, plan.xpid))
            stack.enter_context(lock_run(output.savedir, plan.xpid))
        yield plan
