import json
import logging
import sys
import threading

import pytest

from torchbeast.core.types import UsageError
from torchbeast.records.loggers import Loggers, RunInfo, dispatch, load_loggers

MODULE = "tests.recording_logger"


@pytest.fixture
def run(tmp_path):
    return RunInfo("Pong", tmp_path, {"batch_size": 8})


def recorded(run):
    return [json.loads(line) for line in (run.directory / "recorded.jsonl").open()]


def test_a_logger_of_the_users_own_gets_all_scalars(run):
    loggers = Loggers(load_loggers(f"{MODULE}:RecordingLogger"), run)
    for step in range(100):
        loggers.scalars({"losses/entropy": 1.5}, step)
    loggers.close()
    opened, *scalars, closed = recorded(run)
    assert opened == ["open", "Pong", None, None, {"batch_size": 8}]
    assert scalars == [["scalars", {"losses/entropy": 1.5}, step] for step in range(100)]
    assert closed == ["close"]


def test_a_resumed_run_gets_its_id_and_a_new_one_of_that_name_does_not(run):
    for last_step, resume_id in ((None, None), (40, "an-id"), (None, None)):
        resumed = run._replace(last_step=last_step)
        Loggers(load_loggers(f"{MODULE}:RecordingLogger"), resumed).close()
        assert recorded(run)[-2] == ["open", "Pong", last_step, resume_id, {"batch_size": 8}]


def test_a_logger_that_fails_is_named_once_and_left_out(run, caplog):
    names = f"{MODULE}:FailingLogger,{MODULE}:RecordingLogger"
    with caplog.at_level(logging.ERROR, "torchbeast"):
        loggers = Loggers(load_loggers(names), run)
        for step in range(5):
            loggers.scalars({"x": 1.0}, step)
        loggers.close()
    assert [r.getMessage() for r in caplog.records] == [
        f"Logger {MODULE}:FailingLogger failed and is left out: no network at 0"
    ]
    # Both wrote into this file: one call of the first, and all of the second.
    assert sum(call[0] == "scalars" for call in recorded(run)) == 1 + 5


def test_a_logger_that_is_left_out_hears_of_the_end(run, monkeypatch):
    monkeypatch.setattr(dispatch, "MAX_WAITING", 3)
    loggers = Loggers(load_loggers(f"{MODULE}:SlowLogger"), run)
    for step in range(10):
        loggers.scalars({"x": 1.0}, step)
    (run.directory / "go").touch()
    loggers.close()
    assert recorded(run)[-1] == ["close"]


def test_a_slow_logger_does_not_keep_the_others_waiting(run, caplog, monkeypatch):
    monkeypatch.setattr(dispatch, "MAX_WAITING", 3)
    slow, quick = run.directory / "slow", run.directory / "quick"
    slow.mkdir()
    quick.mkdir()
    first = Loggers(load_loggers(f"{MODULE}:SlowLogger"), run._replace(directory=slow))
    second = Loggers(load_loggers(f"{MODULE}:RecordingLogger"), run._replace(directory=quick))
    with caplog.at_level(logging.ERROR, "torchbeast"):
        for step in range(10):
            first.scalars({"x": 1.0}, step)
    second.scalars({"x": 1.0}, 0)
    second.close()
    assert len(recorded(run._replace(directory=quick))) == 3
    assert [r.getMessage() for r in caplog.records] == [
        f"Logger {MODULE}:SlowLogger failed and is left out: more than 3 sets of values wait for it"
    ]
    (slow / "go").touch()
    first.close()
    assert not any(thread.name.startswith("logger-") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("tensorboardx", "must be wandb, mlflow or module:Class, not 'tensorboardx'"),
        ("no_such_module:Logger", "No module named 'no_such_module'"),
        (f"{MODULE}:NoSuchLogger", "has no attribute 'NoSuchLogger'"),
        (f"{MODULE}:RecordingLogger,", "module:Class, not ''"),
    ],
)
def test_a_logger_that_cannot_be_found_is_refused(names, message):
    with pytest.raises(UsageError, match=message):
        load_loggers(names)


@pytest.mark.parametrize(("name", "package"), [("wandb", "wandb"), ("mlflow", "mlflow-skinny")])
def test_a_missing_package_is_named_with_its_command(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"torchbeast.records.loggers.{name}", raising=False)
    with pytest.raises(UsageError, match=f"--logger {name} needs a package: pip install {package}"):
        load_loggers(name)


def test_a_logger_that_does_not_open_is_refused(run):
    names = f"{MODULE}:RecordingLogger,{MODULE}:ClosedLogger"
    with pytest.raises(UsageError, match=f"--logger {MODULE}:ClosedLogger cannot start: wrong key"):
        Loggers(load_loggers(names), run)
    assert recorded(run)[-1] == ["close"]
