import subprocess
import sys

import numpy as np
import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint, run_files

CONTENTS = {"model_state_dict": {"w": torch.arange(3)}, "steps": 7}


def test_failed_save_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run" / "model.tar"
    checkpoint.save(path, CONTENTS)

    def fail(_):
        raise OSError("disk is gone")

    monkeypatch.setattr(run_files.os, "fsync", fail)
    with pytest.raises(OSError, match="disk is gone"):
        checkpoint.save(path, {**CONTENTS, "steps": 8})
    loaded = checkpoint.load(path)
    assert loaded["steps"] == 7
    assert torch.equal(loaded["model_state_dict"]["w"], torch.arange(3))
    assert [p.name for p in path.parent.iterdir()] == ["model.tar"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "No checkpoint at .*other.*; runs in .*: run; shipped agents in .*: .*Pong,"),
        ("run:600", r"No checkpoint at .*000000600.*; there are 500$"),
        ("rum", r"No checkpoint at .* \(did you mean run\?\); runs in "),
        ("Pong:5", r"No checkpoint at .*000000005.*; the copies of a shipped agent hold filters"),
    ],
)
def test_a_missing_checkpoint_is_named_with_those_there_are(tmp_path, name, message):
    for path in ("run/model.tar", "run/intermediate/model.000000500.tar"):
        checkpoint.save(tmp_path / path, CONTENTS)
    with pytest.raises(UsageError, match=message):
        checkpoint.load(run_files.find_agent(tmp_path, name))


def test_where_the_shipped_agents_are_is_said_outside_a_clone(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHIPPED", tmp_path / "nothing")
    with pytest.raises(UsageError, match="has the shipped agents: name CLONE/models/NAME"):
        checkpoint.load(tmp_path / "Pong" / "model.tar")


def test_numbers_of_numpy_in_old_files_are_data(tmp_path):
    path = tmp_path / "model.tar"
    stats = {"mean_episode_return": np.float64(-20.5), "step": np.int64(7)}
    torch.save({**CONTENTS, "stats": stats}, path)
    assert checkpoint.load(path)["stats"] == stats


def test_weights_that_are_not_finite_are_refused(tmp_path):
    path = tmp_path / "model.tar"
    torch.save(
        {**CONTENTS, "model_state_dict": {"fc.weight": torch.tensor([0.0, torch.nan])}}, path
    )
    with pytest.raises(UsageError, match=r"model.tar is damaged \(fc.weight is not finite\)"):
        checkpoint.load(path)


# Kills come at random times after a temporary file was seen, until five or more left one behind.
KILLED_WHILE_SAVING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from torchbeast.records import checkpoint
path = Path(sys.argv[1])
contents = {"model_state_dict": {"w": torch.arange(100_000)}}
checkpoint.save(path, {**contents, "steps": 0})
kills = interrupted = 0
while kills < 20 or interrupted < 5:
    child = os.fork()
    if child == 0:
        for step in range(1, 100_000):
            checkpoint.save(path, {**contents, "steps": step})
    while not any(path.parent.glob("model.tar.*.tmp")):
        pass
    time.sleep(random.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kills += 1
    for left in path.parent.glob("model.tar.*.tmp"):
        left.unlink()
        interrupted += 1
    loaded = checkpoint.load(path)
    assert torch.equal(loaded["model_state_dict"]["w"], contents["model_state_dict"]["w"])
"""


def test_a_checkpoint_survives_kills_at_any_moment(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path / "model.tar")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
