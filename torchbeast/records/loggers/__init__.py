"""Where the scalars of a run go: TensorBoard, and what ``--logger`` names."""

from __future__ import annotations

from torchbeast.records.loggers.dispatch import Loggers
from torchbeast.records.loggers.protocol import Logger, RunInfo, load_loggers

__all__ = ["Logger", "Loggers", "RunInfo", "load_loggers"]
