import errno
import io
import json
import logging
from functools import partial

import pytest

from tests.analysis.written_runs import write_table
from torchbeast.core.types import RunError, UsageError
from torchbeast.records import checkpoint, file_writer, run_files
from torchbeast.records.file_writer import FileWriter
from torchbeast.records.scores import SCORE_FIELDS

FIELDS = ["step", "loss"]


@pytest.fixture
def make(tmp_path):
    writers = []

    def run(last_step=None, fields=FIELDS):
        writers.append(FileWriter(str(tmp_path), "run", {"args": {}}, fields, last_step))
        return writers[-1]

    yield run
    for writer in writers:
        writer.close()


def rows(tmp_path):
    return (tmp_path / "run" / "logs.csv").read_text().splitlines()


def test_of_the_environment_only_the_job_is_recorded(make, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JWT", "secret")
    make()
    text = (tmp_path / "run" / "meta.json").read_text()
    assert json.loads(text)["slurm"] == {"SLURM_JOB_ID": "7"}
    assert "secret" not in text


def test_unfinished_files_of_a_killed_run_are_removed(make, tmp_path):
    for name in ("model.tar.1234.tmp", "intermediate/model.000000010.tar.1234.tmp"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).touch()
    make()
    assert not list((tmp_path / "run").rglob("*.tmp"))


@pytest.mark.parametrize(("last_step", "fields"), [(None, FIELDS), (10, ["step", "other"])])
def test_records_of_another_attempt_are_put_aside(make, tmp_path, last_step, fields):
    make().log({"step": 10, "loss": 0.5})
    make(last_step, fields)
    assert rows(tmp_path) == [",".join(fields)]
    (aside,) = (tmp_path / "run").glob("logs.*.csv")
    assert aside.read_text() == "step,loss\n10,0.5\n"


@pytest.mark.parametrize(("table", "fields"), [("logs.csv", FIELDS), ("scores.csv", SCORE_FIELDS)])
def test_a_table_of_a_resumed_run_ends_at_its_checkpoint(make, tmp_path, table, fields):
    path = tmp_path / "run" / table
    path.parent.mkdir()
    write_table(path, fields, *([step] + [0] * (len(fields) - 1) for step in (10, 20, 30)))
    writer = make(last_step=20)
    assert writer.evaluated_step == (20 if table == "scores.csv" else 0)
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["step", "10", "20"]


def test_copies_of_another_attempt_are_put_aside(make, tmp_path):
    run = tmp_path / "run"
    for step in (10, 20, 30):
        checkpoint.save(run_files.model_path(run, step), {})
    make(last_step=20)  # Those after 20 are learned again, perhaps otherwise.
    assert list(run_files.intermediate_paths(run)) == [10, 20]
    make(last_step=None)
    assert not run_files.intermediate_paths(run)
    assert len(list(run.glob("intermediate.*/*"))) == 3


def test_gradients_go_on_likewise_under_one_header(make, tmp_path):
    writer = make()
    for step in (10, 20, 30):
        writer.gradients({"a/norm": 1.5}, step)
    # A row is written before the update from its step: that from 20 is made again.
    make(last_step=20).gradients({"a/norm": 2.5}, step=20)
    text = (tmp_path / "run" / "gradients.csv").read_text()
    assert text == "step,a/norm\n10,1.5\n20,2.5\n"


def test_records_that_cannot_be_written_do_not_end_the_run(make, tmp_path, caplog):
    writer = make()
    for name in ("logs.csv", "gradients.csv"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to("/dev/full")
    with caplog.at_level(logging.ERROR, "torchbeast"):
        for step in (1, 2):
            writer.log({"step": step})
            writer.gradients({"a/norm": 1.0}, step)
    said = [r.getMessage() for r in caplog.records if "No space left" in r.getMessage()]
    assert len(said) == 2


class FullDisk(io.FileIO):
    """A file that takes four more bytes."""

    room = 4

    def write(self, data):
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        data, self.room = data[: self.room], 0
        return super().write(data)


def test_half_of_a_row_is_taken_back(make, tmp_path, monkeypatch):
    writer = make()
    writer.log({"step": 10, "loss": 0.5})
    with monkeypatch.context() as patch:
        patch.setattr(
            file_writer, "open", lambda path, *_, **__: FullDisk(path, "ab"), raising=False
        )
        writer.log({"step": 20, "loss": 0.25})
    assert rows(tmp_path) == ["step,loss", "10,0.5"]
    writer.log({"step": 30, "loss": 0.125})
    assert rows(tmp_path) == ["step,loss", "10,0.5", "30,0.125"]


@pytest.mark.parametrize(("kind", "shows_traceback"), [(RunError, False), (ValueError, True)])
def test_what_ends_a_run_is_in_its_log(make, tmp_path, caplog, kind, shows_traceback):
    try:
        raise kind("it diverged\x1b[2J")
    except (RunError, ValueError) as error:
        make().error(error)
    text = (tmp_path / "run" / "out.log").read_text()
    assert "ERROR torchbeast: it diverged" in text
    assert "\x1b" not in text
    assert ("Traceback" in text) is shows_traceback
    assert not caplog.text


def test_a_run_that_cannot_begin_is_not_the_latest(make, tmp_path, monkeypatch):
    make()
    monkeypatch.setattr(file_writer, "ScalarWriter", partial(_raise, UsageError("no network")))
    with pytest.raises(UsageError, match="no network"):
        FileWriter(str(tmp_path), "other", {"args": {}}, FIELDS, None)
    logging.getLogger().handlers.pop().close()  # The handler of its out.log.
    assert (tmp_path / "latest").resolve().name == "run"


def _raise(error, *_, **__):
    raise error
