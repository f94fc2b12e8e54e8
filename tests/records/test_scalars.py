import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from torchbeast.core.types import UsageError
from torchbeast.records.scalars import ScalarWriter, check_logger

CONFIG = {"batch_size": 8, "env": "six"}


@pytest.fixture
def write(tmp_path):
    def run(steps, last_step=None, **options):
        writer = ScalarWriter(tmp_path, CONFIG, last_step, **options)
        for step in steps:
            writer.write({"losses/entropy": 1.0 / step}, step)
        writer.close()
        events = EventAccumulator(str(tmp_path))
        events.Reload()
        return events

    return run


@pytest.fixture
def wandb(monkeypatch):
    """A module that records calls."""
    module = types.ModuleType("wandb")
    module.calls = []
    module.Settings = lambda **options: options
    module.init = lambda **options: module.calls.append(("init", options))
    module.finish = lambda: module.calls.append("finish")
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_resumed_run_hides_what_came_after_its_checkpoint(write, tmp_path):
    write([10, 20, 30])
    (first,) = tmp_path.glob("**/*tfevents*")  # Read in the order of names, which have seconds.
    second = first.name.split(".")[3]
    first.rename(first.with_name(first.name.replace(second, str(int(second) - 1))))
    events = write([25, 30], last_step=20)
    assert [event.step for event in events.Scalars("losses/entropy")] == [10, 20, 25, 30]


def test_wandb_starts_before_tensorboard_and_ends_with_the_run(write, wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    wandb.init = lambda **options: wandb.calls.append((options, list(tmp_path.iterdir())))
    events = write([10], use_wandb=True)
    (options, files), end = wandb.calls
    assert not files  # TensorBoard's file is the one that wandb reads.
    assert options.pop("settings") == {"console": "off"}
    assert options == {
        "project": "mine",
        "name": tmp_path.name,
        "group": tmp_path.name,
        "config": CONFIG,
        "sync_tensorboard": True,
        "dir": str(tmp_path),
    }
    assert end == "finish"
    assert len(events.Scalars("losses/entropy")) == 1


def test_a_service_that_fails_is_named(write, wandb, caplog):
    def fail(**_):
        raise ConnectionError("no network\nand a second line")

    wandb.finish = fail
    write([10], use_wandb=True)
    assert [r.getMessage() for r in caplog.records] == [
        "Weights & Biases failed and is left out: no network"
    ]
    wandb.init = fail
    with pytest.raises(UsageError, match=r"--logger wandb cannot start: no network$"):
        write([10], use_wandb=True)


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    check_logger(None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="--logger wandb needs a package: pip install wandb"):
        check_logger("wandb")
