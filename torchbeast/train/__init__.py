"""A training run: what PolyBeast and MonoBeast share between their flags and their actors.

:class:`TrainingConfig` is what the user asks for. :func:`open_run` checks it, plans the run on this
machine, connects the ranks that learn together, and keeps other processes from the run's directory.
:class:`TrainingRun` owns what a run consists of and watches over it until it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torchbeast.records.run_lock import check_writable, lock_run, reserve_name
from torchbeast.runtime.ranks import join_ranks, read_ranks
from torchbeast.train.config import TrainingConfig
from torchbeast.train.plan import RunPlan, make_plan
from torchbeast.train.run import TrainingRun

__all__ = ["RunPlan", "TrainingConfig", "TrainingRun", "make_plan", "open_run"]


@contextlib.contextmanager
def open_run(
    config: TrainingConfig, check: Callable[[RunPlan], object], *, has_pool: bool = True
) -> Iterator[RunPlan]:
    """Prepares a run of this process, which may be one of several ranks. A context manager.

    Args:
        config: what the user asks for.
        check: what else is checked before anything starts; raises UsageError.
        has_pool: see :func:`make_plan`.

    Yields:
        The plan of the run.

    Raises:
        UsageError: the configuration is wrong, or another process writes the run.
        RunError: the other ranks cannot be reached.
    """
    plan = make_plan(config, read_ranks(), has_pool=has_pool)
    check(plan)
    with contextlib.ExitStack() as stack:
        if plan.ranks.is_first:
            check_writable(config.output.savedir, plan.xpid)
            if config.output.xpid is None:
                xpid = reserve_name(config.output.savedir, plan.xpid)
                plan = plan._replace(xpid=xpid)
            stack.enter_context(lock_run(config.output.savedir, plan.xpid))
        stack.enter_context(join_ranks(plan.ranks, plan.devices.learner))
        yield plan
