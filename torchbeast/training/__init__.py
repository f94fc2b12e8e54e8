"""A training run: what PolyBeast and MonoBeast share between their flags and their actors.

:func:`prepare` checks the flags, :class:`TrainingRun` owns what a run consists of and watches over
it until it ends.
"""

from torchbeast.training.run import TrainingRun
from torchbeast.training.setup import Setup, prepare

__all__ = ["Setup", "TrainingRun", "prepare"]
