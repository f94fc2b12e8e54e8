import multiprocessing

import pytest

from torchbeast.core.types import UsageError
from torchbeast.records.run_lock import lock_run


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
    for _ in range(2):  # A refused process leaves the directory, still empty, to its owner.
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


def test_a_directory_without_files_is_removed(tmp_path):
    with lock_run(str(tmp_path / "runs"), "a"):
        assert (tmp_path / "runs" / "a").is_dir()
    with lock_run(str(tmp_path / "runs"), "b"):
        (tmp_path / "runs" / "b" / "out.log").touch()
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["b"]


def test_a_place_that_cannot_be_written_is_misuse(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is no directory"), lock_run(str(tmp_path / "file"), "a"):
        pass
