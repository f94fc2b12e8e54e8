"""A training run: what PolyBeast and MonoBeast share between their flags and their actors.

:class:`TrainingConfig` is what the user asks for. :func:`prepare` checks it and plans the run on
this machine. :func:`lock_run` keeps other processes from the run's directory. :class:`TrainingRun`
owns what a run consists of and watches over it until it ends.
"""

from torchbeast.records.run_lock import lock_run
from torchbeast.training.config import TrainingConfig
from torchbeast.training.run import TrainingRun
from torchbeast.training.setup import Setup, prepare

__all__ = ["Setup", "TrainingConfig", "TrainingRun", "lock_run", "prepare"]
