"""A training run: what PolyBeast and MonoBeast share between their flags and their actors.

:class:`TrainingConfig` is what the user asks for. :func:`open_run` checks it, plans the run on this
machine, connects the ranks that learn together, and keeps other processes from the run's directory.
:class:`TrainingRun` owns what a run consists of and watches over it until it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchbeast.core.distributed import join_ranks, read_ranks
from torchbeast.records.run_lock import lock_run, reserve_name
from torchbeast.training.config import TrainingConfig
from torchbeast.training.run import TrainingRun
from torchbeast.training.setup import Setup, prepare

__all__ = ["Setup", "TrainingConfig", "TrainingRun", "lock_run", "open_run", "prepare"]


@contextlib.contextmanager
def open_run(config: TrainingConfig, *, has_pool: bool = True) -> Iterator[Setup]:
    """Prepares a run of this process, which may be one of several ranks. A context manager.

    Args:
        config: what the user asks for.
        has_pool: see :func:`prepare`.

    Yields:
        The plan of the run.

    Raises:
        UsageError: the configuration is wrong, or another process writes the run.
        RunError: the other ranks cannot be reached.
    """
    setup = prepare(config, read_ranks(), has_pool=has_pool)
    with contextlib.ExitStack() as stack:
        if setup.ranks.is_first:
            if config.output.xpid is None:
                xpid = reserve_name(config.output.savedir, setup.xpid)
                setup = setup._replace(xpid=xpid)
            stack.enter_context(lock_run(config.output.savedir, setup.xpid))
        stack.enter_context(join_ranks(setup.ranks, setup.devices.learner))
        yield setup
