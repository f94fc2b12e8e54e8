"""Damaged and malicious files: each is refused in one line, or read, and takes little memory."""

import io
import math
import pickle
import random
import subprocess
import sys
import zipfile

import pytest
import torch

from tests.conftest import ROOT
from torchbeast import monobeast, polybeast, saliency
from torchbeast.analysis import analyze_resnet
from torchbeast.analysis.filter_comp import Row
from torchbeast.analysis.filter_comp import load as load_comparison
from torchbeast.analysis.runs import RunRecords, read_reference
from torchbeast.core.types import UsageError
from torchbeast.models.loading import from_contents
from torchbeast.records import checkpoint
from torchbeast.records.csv_tables import resume_table
from torchbeast.records.scores import SCORE_FIELDS

GOOD = ROOT / "models" / "Pong" / "model.tar"


def refused_or_read(read, *arguments):
    """Whether ``read`` refuses, in one line. Any other error is a failure."""
    try:
        read(*arguments)
    except UsageError as error:
        message = str(error)
    else:
        return False
    assert message.count("\n") == 0
    assert message
    return True


class RunsCode:
    def __reduce__(self):
        return print, ("this was run",)


def zipped(contents, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def saved(contents):
    buffer = io.BytesIO()
    torch.save(contents, buffer)
    return buffer.getvalue()


HOSTILE_AGENT = {
    "huge network": {"num_actions": 10**12},
    "large pictures": {"observation_shape": (4, 10**5, 10**5)},
    "no tasks": {"tasks": ()},
    "terminal's commands": {"tasks": ("\x1b[2JPong",)},
    "agent type of a module": {"agent_type": "os:system"},
    "unknown field": {"other": 1},
}
HOSTILE = {
    "preprocessing": {"preprocessing": "evil"},
    "height as text": {"frame_height": "84"},
    "huge height": {"frame_height": 10**9},
    "steps NaN": {"steps": math.nan},
    "steps of 71 bits": {"steps": 2**70},
    "large returns": {"progress": {"returns": [[1e200, -1e200] * 30]}},
}


def damaged_checkpoints():
    """Yields names and bytes."""
    good = GOOD.read_bytes()
    chance = random.Random(0)
    yield "empty", b""
    yield "text", b"This is no checkpoint."
    yield "pickle that runs code", pickle.dumps(RunsCode())
    yield "checkpoint that runs code", saved({"model_state_dict": {"w": RunsCode()}})
    yield "archive of something else", zipped({"a.txt": b"a"})
    deep = b"\x80\x02" + b"(" * 100_000
    yield "deep pickle", zipped({"archive/data.pkl": deep, "archive/version": "3"})
    yield "list", saved([1, 2])
    yield "no weights", saved({"steps": 1})
    yield "weights that are text", saved({"model_state_dict": {"policy.weight": "w"}})
    yield "of a later version", saved({"model_state_dict": {}, "format": 99})
    contents = torch.load(GOOD, weights_only=True)
    for name, change in HOSTILE.items():
        yield name, saved({**contents, **change})
    for name, change in HOSTILE_AGENT.items():
        yield name, saved({**contents, "agent": {**contents["agent"], **change}})
    state = contents["model_state_dict"]
    wide = {k: torch.zeros((), dtype=v.dtype).expand(v.shape) for k, v in state.items()}
    yield "weights of one number", saved({**contents, "model_state_dict": wide})
    for i in range(4):
        yield f"truncated {i}", good[: len(good) * i // 4]
    for i in range(8):
        flipped = bytearray(good)
        # The ends of an archive hold its structure; the middle is numbers.
        position = chance.choice((chance.randrange(5000), len(good) - 1 - chance.randrange(5000)))
        flipped[position] ^= 1 << chance.randrange(8)
        yield f"flipped {i}", bytes(flipped)


def read_agent(path):
    from_contents(checkpoint.load(path), path)


def test_damaged_checkpoints_are_refused_in_one_line_and_run_nothing(tmp_path, capfd):
    accepted = {}
    for name, data in damaged_checkpoints():
        path = tmp_path / "model.tar"
        path.write_bytes(data)
        try:
            if not refused_or_read(read_agent, path):
                accepted[name] = checkpoint.load(path)["model_state_dict"]
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
    # Some bits of an archive say nothing, such as those of times and padding.
    assert [name for name in accepted if not name.startswith("flipped")] == []
    state = checkpoint.load(GOOD)["model_state_dict"]
    for loaded in accepted.values():
        torch.testing.assert_close(loaded, state, rtol=0, atol=0)
    assert "this was run" not in capfd.readouterr().out


def test_a_flipped_bit_in_the_weights_is_refused(tmp_path):
    data = bytearray(GOOD.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "model.tar").write_bytes(data)
    with pytest.raises(UsageError, match=r"model.tar is damaged \(the CRC-32 of .* is wrong\)"):
        checkpoint.load(tmp_path / "model.tar")


PROGRAMS = [
    (polybeast.main, "--mode=test --savedir={0} --xpid=run"),
    (saliency.main, "--savedir={0} --xpid=run"),
    (monobeast.main, "--agent_type=atari --env=Mock --savedir={0} --xpid=run"),
    (analyze_resnet.main, "--mode=filter_vis --load_path={0}/run/model.tar"),
]


@pytest.fixture
def assert_refused(tmp_path, monkeypatch, assert_misuse):
    """Starts a program with an agent of a game: it refuses in one line and writes nothing."""
    monkeypatch.chdir(tmp_path)

    def check(program, game, message):
        main, arguments = program
        contents = torch.load(GOOD, weights_only=True)
        contents["agent"]["tasks"] = (game,)
        path = tmp_path / "run" / "model.tar"
        path.parent.mkdir()
        torch.save(contents, path)
        assert_misuse(main, arguments.format(tmp_path).split(), message)
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]

    return check


def test_a_checkpoint_names_no_path(assert_refused):
    assert_refused(PROGRAMS[0], "../../elsewhere", "'../../elsewhere', which the checkpoint names")


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_programs_refuse_what_a_checkpoint_must_not_say(assert_refused, program):
    assert_refused(program, "\x1b[2JPong", "model.tar is damaged (")


def test_a_checkpoint_does_not_make_a_program_import_a_module(
    assert_refused, monkeypatch, tmp_path_factory
):
    modules = tmp_path_factory.mktemp("modules")
    (modules / "evil.py").touch()
    monkeypatch.syspath_prepend(modules)
    assert_refused(PROGRAMS[0], "evil:Evil-v0", "allow its import with --env evil:Evil-v0")
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"args": 5}', '{"args": {"env": "\\u001b"}}', "[" * 100_000, " " * 2_000_000],
)
def test_damaged_meta_files_are_refused(tmp_path, text):
    assert checkpoint.read_meta(tmp_path / "model.tar") == {}
    for data in (text.encode(), b"\xff\xfe" + text.encode()):
        (tmp_path / "meta.json").write_bytes(data)
        assert refused_or_read(checkpoint.read_meta, tmp_path / "model.tar")


LOGS = "step,seconds,mean_episode_return/Pong,std_episode_return/Pong,steps/Pong\n"


def read_curves(path):
    run = RunRecords(path.parent)
    for game in run.games:
        run.curve(game)
    run.moments("Pong")


def read_scores(path):
    (path.parent / "logs.csv").write_text(LOGS + "1,2,3,0,1\n")
    RunRecords(path.parent).score_curve("Pong")


# By file: who reads it, its header, and a row; 7 is a number in it that is read.
TABLES = {
    "logs.csv": (read_curves, LOGS, "1,2,7,0,1\n"),
    "scores.csv": (
        read_scores,
        ",".join(SCORE_FIELDS) + "\n",
        "1,2,Pong,sampled,3,7,0,4,4,9,0.5\n",
    ),
    "filter_comp.csv": (
        lambda path: load_comparison(path.parent),
        ",".join(Row._fields) + "\n",
        "single_single,Pong,B,1,2,fc,default,,same,1,1,7\n",
    ),
    "curves_2019.csv": (read_reference, "env,agent_steps,return_mean\n", "Pong,1,7\n"),
}
DAMAGE = {
    "other columns": lambda header, row: "a,b\n1,2\n",
    "no rows": lambda header, row: header,
    "text for a number": lambda header, row: header + row.replace("7", "x"),
    "zero bytes": lambda header, row: header + row + "\0,1,1\n",
    "a long field": lambda header, row: header + row.replace("7", "9" * 200_000),
    "a column missing": lambda header, row: header.rpartition(",")[0] + "\n" + row,
    "headers for rows": lambda header, row: header * 3,
    "a terminal's commands": lambda header, row: (header + row).replace("Pong", "\x1b[2J"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", TABLES)
def test_damaged_tables_are_refused_in_one_line_or_read(tmp_path, name, damage):
    read, header, row = TABLES[name]
    path = tmp_path / name
    path.write_text(header + row)
    assert not refused_or_read(read, path)
    path.write_text(DAMAGE[damage](header, row))
    is_refused = refused_or_read(read, path)
    assert is_refused or damage not in ("other columns", "text for a number", "a column missing")
    resume_table(path, last_step=10)  # Renames what it cannot read.


LOADED_IN_LITTLE_MEMORY = """
import sys
from pathlib import Path
from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint
def peak_mb():
    # Not getrusage(): its peak is also that of the process that started this one.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
before = peak_mb()
try:
    checkpoint.load(Path(sys.argv[1]))
except UsageError:
    print(peak_mb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Reads /proc")
def test_a_bomb_takes_little_memory(tmp_path):
    zeros = saved({"model_state_dict": {"w": torch.zeros(25_000_000)}})
    with zipfile.ZipFile(io.BytesIO(zeros)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    (tmp_path / "model.tar").write_bytes(zipped(contents, zipfile.ZIP_DEFLATED))
    assert (tmp_path / "model.tar").stat().st_size < 500_000
    result = subprocess.run(
        [sys.executable, "-c", LOADED_IN_LITTLE_MEMORY, tmp_path / "model.tar"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert int(result.stdout) < 50
