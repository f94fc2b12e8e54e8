import fcntl
import multiprocessing
import resource

import pytest

from torchbeast.core.types import UsageError
from torchbeast.records.run_lock import lock_run, reserve_name


def hold(savedir, pipe):
    with lock_run(savedir, "run"):
        pipe.send("locked")
        pipe.recv()


def test_one_process_at_a_time_writes_a_run(tmp_path):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=hold, args=(str(tmp_path), theirs))
    other.start()
    assert ours.recv() == "locked"
    for _ in range(2):  # A refused process leaves the directory to its owner.
        with (
            pytest.raises(UsageError, match=r"Another process writes .*run: .*another --xpid"),
            lock_run(str(tmp_path), "run"),
        ):
            pass
    with lock_run(str(tmp_path), "other run"):
        pass
    other.kill()
    other.join()
    with lock_run(str(tmp_path), "run"):
        pass


def test_a_lock_that_its_owner_removes_meanwhile_is_refused(tmp_path, monkeypatch):
    flock = fcntl.flock

    def lock_late(descriptor, operation):
        (tmp_path / "run" / ".lock").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with (
        pytest.raises(UsageError, match="Another process writes"),
        lock_run(str(tmp_path), "run"),
    ):
        pass


def test_a_directory_without_files_is_removed(tmp_path):
    with lock_run(str(tmp_path / "runs"), "a"):
        assert (tmp_path / "runs" / "a").is_dir()
    with lock_run(str(tmp_path / "runs"), "b"):
        (tmp_path / "runs" / "b" / "out.log").touch()
    assert [p.name for p in (tmp_path / "runs").rglob("*")] == ["b", "out.log"]


def test_runs_that_start_in_the_same_second_have_different_names(tmp_path):
    names = [reserve_name(str(tmp_path / "runs"), "torchbeast-1") for _ in range(3)]
    assert names == ["torchbeast-1", "torchbeast-1-2", "torchbeast-1-3"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names
    (tmp_path / "logs").symlink_to(tmp_path / "not mounted")
    with pytest.raises(UsageError, match="Cannot write to --savedir"):
        reserve_name(str(tmp_path / "logs" / "torchbeast"), "a")


def test_a_full_disk_is_told_at_once_and_leaves_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # No file may grow.
    try:
        with (
            pytest.raises(UsageError, match="Cannot write to --savedir"),
            lock_run(str(tmp_path), "run"),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
