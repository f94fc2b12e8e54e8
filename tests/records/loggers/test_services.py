"""Loggers of services, with what these write without a network.

The packages are optional: where one is missing, its test is skipped.
"""

import pytest

from torchbeast.records.loggers import Loggers, RunInfo, load_loggers


def log_and_resume(name, directory):
    run = RunInfo("Pong", directory, {"batch_size": 8, "env": None})
    first = Loggers(load_loggers(name), run)
    for step in range(1, 4):
        first.scalars({"losses/entropy": 1.5 / step, "charts/episodic_return/Pong": -21.0}, step)
    first.close()
    resumed = Loggers(load_loggers(name), run._replace(last_step=2))
    resumed.scalars({"losses/entropy": 0.25}, 3)
    resumed.close()


@pytest.mark.filterwarnings("default")
def test_mlflow_has_a_run_with_flags_and_curves(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log_and_resume("mlflow", tmp_path)
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("torchbeast")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params == {"batch_size": "8", "env": "None"}
    assert (run.info.run_name, run.info.status) == ("Pong", "FINISHED")
    history = client.get_metric_history(run.info.run_id, "losses/entropy")
    assert sorted((m.step, m.value) for m in history) == [
        (1, 1.5), (2, 0.75), (3, 0.25), (3, 0.5),
    ]  # fmt: skip


@pytest.mark.filterwarnings("default")
def test_wandb_writes_a_run_and_resumes_it(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_and_resume("wandb", tmp_path)
    runs = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(runs) == 2
    ids = {run.name.rpartition("-")[2] for run in runs}
    assert len(ids) == 1
    for run in runs:
        (written,) = run.glob("*.wandb")
        assert b"losses/entropy" in written.read_bytes()
