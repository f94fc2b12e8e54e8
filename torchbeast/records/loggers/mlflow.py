"""MLflow, with ``--logger mlflow``. Its environment variables apply (MLFLOW_TRACKING_URI)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from torchbeast.records.loggers.protocol import RunInfo

EXPERIMENT = "torchbeast"
# MLflow refuses longer values and longer lists.
MAX_PARAM_LENGTH = 500
MAX_PARAMS = 100


class MlflowLogger:
    """Logs to a run of MLflow, in the experiment ``torchbeast`` unless MLFLOW_EXPERIMENT_NAME."""

    def open(self, run: RunInfo) -> str:
        """Starts a run there or resumes it; returns its id."""
        self._client = MlflowClient()
        if run.resume_id is not None:
            self._id = run.resume_id
            self._client.update_run(self._id, status="RUNNING")
            return self._id
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = (
            self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        )
        self._id = str(self._client.create_run(experiment_id, run_name=run.name).info.run_id)
        params = [Param(name, str(value)[:MAX_PARAM_LENGTH]) for name, value in run.config.items()]
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + MAX_PARAMS])
        return self._id

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Logs the values over agent steps."""
        now = int(1000 * time.time())
        metrics = [Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        """Ends the run there."""
        self._client.set_terminated(self._id)
