"""What a logger is, and how ``--logger`` finds one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torchbeast.core.types import UsageError
from torchbeast.runtime.text import first_line

# The loggers that --logger knows by name: module and class.
NAMED = {
    "wandb": ("torchbeast.records.loggers.wandb", "WandbLogger"),
    "mlflow": ("torchbeast.records.loggers.mlflow", "MlflowLogger"),
}
# The package on PyPI that has the module.
PACKAGES = {"wandb": "wandb", "mlflow": "mlflow-skinny"}


class RunInfo(NamedTuple):
    """What a logger is told about a run."""

    name: str
    """The run's ``--xpid``."""

    directory: Path
    """The run's directory."""

    config: Mapping[str, Any]
    """All flags, and what follows from them: seed, games, number of actions. Plain values."""

    last_step: int | None = None
    """Agent steps of the checkpoint that is resumed; None for a new run."""

    resume_id: str | None = None
    """What ``open`` returned when the run was started; None for a new run."""


class Logger(Protocol):
    """Receives the scalars of a run.

    A class without constructor arguments; ``--logger module:Class`` makes one object of it. All
    methods but ``open`` are called by the logger's own thread: a slow one delays neither
    training nor other loggers. After the first exception the logger is not called again.
    """

    def open(self, run: RunInfo) -> str | None:
        """Starts a run or resumes it, before training.

        Args:
            run: the run.

        Returns:
            An id, if one is needed to resume: the next ``open`` of this run gets it as
            ``run.resume_id``.
        """

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Takes in values by name, such as ``losses/entropy``, at agent step ``step``."""

    def close(self) -> None:
        """Writes what is left."""


def load_loggers(names: str | None) -> dict[str, Logger]:
    """Makes the loggers that ``--logger`` names. None of them is opened.

    Args:
        names: wandb, mlflow or ``module:Class``, several separated by commas; None for none.

    Returns:
        The loggers by name.

    Raises:
        UsageError: a module or class cannot be found, or an optional package is missing.
    """
    return {name: _load(name) for name in (names.split(",") if names else [])}


def _load(name: str) -> Logger:
    module, _, attribute = name.partition(":")
    if name in NAMED:
        module, attribute = NAMED[name]
    elif not (module and attribute):
        raise UsageError(f"--logger must be wandb, mlflow or module:Class, not '{name}'")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except ModuleNotFoundError as error:
        if name in NAMED and (error.name or "").partition(".")[0] == name:
            raise UsageError(
                f"--logger {name} needs a package: pip install {PACKAGES[name]}"
            ) from error
        raise UsageError(f"--logger {name}: {error}") from error
    except Exception as error:
        raise UsageError(f"--logger {name}: {first_line(error)}") from error
