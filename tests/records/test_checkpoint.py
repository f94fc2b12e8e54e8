import errno
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint, run_files

CONTENTS = {"model_state_dict": {"w": torch.arange(3)}, "steps": 7}


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "run" / "model.tar"
    checkpoint.save(path, CONTENTS)
    loaded = checkpoint.load(path)
    assert loaded["steps"] == 7
    assert torch.equal(loaded["model_state_dict"]["w"], torch.arange(3))
    assert [p.name for p in path.parent.iterdir()] == ["model.tar"]


def test_failed_save_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "model.tar"
    checkpoint.save(path, CONTENTS)

    def fail(_):
        raise OSError("disk is gone")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="disk is gone"):
        checkpoint.save(path, {**CONTENTS, "steps": 8})
    assert checkpoint.load(path)["steps"] == 7
    assert [p.name for p in tmp_path.iterdir()] == ["model.tar"]


@pytest.mark.parametrize("reason", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_the_checkpoint_before_is_copied(tmp_path, monkeypatch, reason):
    def refuse(*_):
        raise OSError(reason, "no hard links here")

    monkeypatch.setattr(checkpoint.os, "link", refuse)
    path = tmp_path / "model.tar"
    for steps in (7, 8):
        checkpoint.save(path, {**CONTENTS, "steps": steps}, keep_previous=True)
    assert checkpoint.load(path)["steps"] == 8
    assert checkpoint.load(run_files.previous_path(path))["steps"] == 7


def test_code_is_never_executed(tmp_path):
    path = tmp_path / "model.tar"
    mark = tmp_path / "executed"

    class Malicious:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    torch.save({"model_state_dict": Malicious()}, path)
    with pytest.raises(UsageError, match="not a checkpoint that can be trusted"):
        checkpoint.load(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(UsageError, match="not a checkpoint that can be trusted"):
        checkpoint.load(path)
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut off"])
def test_what_is_no_checkpoint_is_one_clear_line(tmp_path, content):
    path = tmp_path / "model.tar"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        checkpoint.load(path)
    assert "\n" not in str(error.value)


def test_missing_checkpoint_names_the_runs_there_are(tmp_path):
    checkpoint.save(tmp_path / "mine" / "model.tar", CONTENTS)
    names = "No checkpoint at .*other.*; runs in .*: mine; shipped agents in .*: .*PopArt, .*Pong,"
    with pytest.raises(UsageError, match=names):
        checkpoint.load(run_files.find_checkpoint(tmp_path, "other"))


def test_a_missing_intermediate_checkpoint_names_those_there_are(tmp_path):
    checkpoint.save(run_files.intermediate_path(tmp_path / "run", 500), CONTENTS)
    with pytest.raises(UsageError, match=r"No checkpoint at .*000000600.*; there are 500$"):
        checkpoint.load(run_files.find_checkpoint(tmp_path, "run", 600))


def test_a_missing_intermediate_checkpoint_of_a_shipped_agent_names_those_there_are(tmp_path):
    with pytest.raises(UsageError, match=r"No checkpoint at .*000000005.*; there are 500000, "):
        checkpoint.load(run_files.find_agent(tmp_path, "Pong:5"))


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path):
    with pytest.raises(UsageError, match=f"^{tmp_path} cannot be read: Is a directory$"):
        checkpoint.load(tmp_path)


def test_later_formats_are_refused(tmp_path):
    path = tmp_path / "model.tar"
    torch.save({"format": checkpoint.FORMAT_VERSION + 1, **CONTENTS}, path)
    with pytest.raises(UsageError, match="later version"):
        checkpoint.load(path)


def test_numbers_of_numpy_in_old_files_are_data(tmp_path):
    path = tmp_path / "model.tar"
    stats = {"mean_episode_return": np.float64(-20.5), "step": np.int64(7)}
    torch.save({**CONTENTS, "stats": stats}, path)
    assert checkpoint.load(path)["stats"] == stats
    assert checkpoint.steps_of({"stats": stats}) == 7
    assert checkpoint.steps_of({"steps": 8}) == 8
    assert checkpoint.steps_of({}) is None


def test_a_compressed_archive_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model.tar"
    checkpoint.save(path, {"model_state_dict": {"w": torch.zeros(10_000_000)}})
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "bomb.tar", "w") as bomb:
        for entry in whole.infolist():
            bomb.writestr(entry.filename, whole.read(entry), zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError, match="not a checkpoint that can be trusted"):
        checkpoint.load(tmp_path / "bomb.tar")


KILLED_WHILE_SAVING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from torchbeast.records import checkpoint
path = Path(sys.argv[1])
contents = {"model_state_dict": {"w": torch.arange(1_000_000)}}
checkpoint.save(path, {**contents, "steps": 0})
inside = 0
for _ in range(20):
    child = os.fork()
    if child == 0:
        for step in range(1, 100_000):
            checkpoint.save(path, {**contents, "steps": step})
    time.sleep(random.uniform(0.02, 0.2))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    inside += any(path.parent.glob("model.tar.*.tmp"))
    loaded = checkpoint.load(path)
    assert torch.equal(loaded["model_state_dict"]["w"], contents["model_state_dict"]["w"])
print(inside)
"""


def test_a_checkpoint_survives_kills_at_any_moment(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path / "model.tar")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 0, "no kill came in the middle of writing"


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_leaves_the_last_checkpoint(small_disk):
    path = small_disk / "model.tar"
    checkpoint.save(path, {**CONTENTS, "ballast": torch.zeros(1_000_000)})
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, {**CONTENTS, "steps": 8, "ballast": torch.zeros(1_500_000)})
    assert checkpoint.load(path)["steps"] == 7
    assert [p.name for p in small_disk.iterdir()] == ["model.tar"]


def test_shows_what_is_in_a_file(tmp_path, capsys):
    path = tmp_path / "model.tar"
    agent = {"agent_type": "atari", "tasks": ("Pong", "Breakout")}
    state = {
        "w": torch.zeros(2, 3),
        "baseline.mu": torch.tensor([1.0, 2.0]),
        "baseline.sigma": torch.tensor([3.0, 4.0]),
    }
    contents = {"model_state_dict": state, "agent": agent, "steps": 7, "task_steps": [3, 4]}
    checkpoint.save(path, contents)
    assert checkpoint.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "task 1: Breakout, 4 steps, mu 2, sigma 4" in out
    assert "10 numbers" in out
    assert checkpoint.main([str(tmp_path / "none.tar")]) == 2
    assert "No checkpoint" in capsys.readouterr().err
