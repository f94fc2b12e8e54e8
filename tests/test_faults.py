"""Faults of real processes: what dies, what hangs, what collides (docs/runs.md)."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.processes import (
    all_end,
    find,
    is_evaluating,
    last_step,
    nothing_left,
)
from torchbeast.records import checkpoint

FAST = ["--agent_type=resnet", "--unroll_length=10", "--batch_size=2", "--num_actors=2"]
MOCK = ["--env=Mock", "--fixed_input_scale", "--agent_type=atari"]


def wait_for_steps(run, directory, more=1):
    """Waits until the run has learned from so many steps more."""
    before = last_step(directory)
    run.wait_until(lambda: last_step(directory) >= before + more, 120)


@pytest.mark.parametrize("program", ["polybeast", "monobeast"])
def test_a_hung_environment_is_replaced_and_shows_where_it_hung(
    start, tmp_path, monkeypatch, program
):
    monkeypatch.setenv("HANG_ONCE", str(tmp_path / "hung"))
    monkeypatch.setenv("CLOSED", str(tmp_path / "closed"))
    code, _, err = start(
        program, *FAST, "--env=tests.hostile:HangsOnce-v0", "--fixed_input_scale",
        "--savedir", tmp_path, "--total_steps=100", "--step_timeout_s=1", "--num_actors=1",
    ).finish()  # fmt: skip
    assert code == 0, err
    assert (tmp_path / "hung").exists()
    assert "hung for 1 s, restarting it (1 of 5" in err
    assert "in hang_once" in err  # From the traceback.
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("program", ["polybeast", "monobeast"])
def test_a_killed_learner_takes_all_along_and_leaves_a_checkpoint(start, tmp_path, program):
    run = start(
        program, *FAST, *MOCK, "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9",
        "--evaluate_every=100", "--checkpoint_interval_s=1",
    )  # fmt: skip
    run.wait_until(lambda: is_evaluating(run.family()))
    run.wait_until((tmp_path / "run" / "model.tar").exists)
    family = run.family()
    run.process.kill()
    all_end(family)
    assert checkpoint.load(tmp_path / "run" / "model.tar")["steps"] > 0


def test_an_environment_that_hangs_when_it_is_made_shows_where(start, tmp_path, monkeypatch):
    monkeypatch.setenv("MADE", str(tmp_path / "made"))
    code, _, err = start(
        "polybeast", *FAST, "--env=tests.hostile:HangsWhenMadeAgain-v0", "--fixed_input_scale",
        "--savedir", tmp_path, "--total_steps=100", "--step_timeout_s=1", "--num_actors=1",
    ).finish()  # fmt: skip
    assert code == 1, err
    assert "hung for 1 s" in err
    assert "in hang_again" in err  # From the traceback.


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("polybeast_env", "HangsWhenMade"),
        ("polybeast", "HangsOnce"),  # While its game is measured.
    ],
)
def test_an_environment_that_hangs_at_the_start_is_given_up_after_the_same_time(
    start, tmp_path, monkeypatch, program, name
):
    for variable in ("HANGING", "HANG_ONCE", "CLOSED"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    flags = [] if program == "polybeast_env" else [*FAST, "--savedir", tmp_path / "runs"]
    env_id = f"tests.hostile:{name}-v0"
    run = start(program, f"--env={env_id}", "--step_timeout_s=2", *flags)
    code, out, err = run.finish(timeout=120)
    assert (code, out) == (1, "")
    assert err.endswith(f"{program}: error: {env_id}: it hung for 2 s\n")
    assert "in __init__" in err or "in hang_once" in err  # From the traceback.
    assert not list(tmp_path.glob("runs/*"))


def find_server(run, name):
    """The process of the run that listens on a socket."""

    def listens(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = process.net_connections("unix")
            return any(name in str(c.laddr) for c in sockets if c.status == "NONE")

    return next(p for p in run.family() if p.pid != run.process.pid and listens(p))


def test_a_run_has_one_writer_and_a_signal_to_the_job_reaches_only_the_learner(start, tmp_path):
    run = start(
        "polybeast", *FAST, *MOCK, "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9",
        start_new_session=True,
    )  # fmt: skip
    wait_for_steps(run, tmp_path / "run")
    code, _, err = start(
        "polybeast", *FAST, *MOCK, "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9"
    ).finish()
    assert code == 2
    assert "Another process writes" in err
    family = run.family()
    os.killpg(run.process.pid, signal.SIGTERM)
    code, _, err = run.finish()
    assert code == 143
    assert "restarting it" not in err
    assert "went away" not in err
    nothing_left(run, family)


@pytest.mark.parametrize("program", ["polybeast", "monobeast"])
def test_a_signal_to_all_processes_of_a_job_ends_them_and_none_is_replaced(
    start, tmp_path, program
):
    run = start(
        program, *FAST, *MOCK, "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9",
        *(["--num_servers=2"] if program == "polybeast" else []),
    )  # fmt: skip
    wait_for_steps(run, tmp_path / "run")
    family = run.family()
    for process in family:  # As scancel does.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    code, out, err = run.finish()
    assert code == 143
    assert "Saved" in out
    assert "restarting it" not in err
    nothing_left(run, family)


def test_killed_servers_are_replaced(start, tmp_path):
    run = start(
        "polybeast", *FAST, *MOCK, "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9",
        "--num_servers=2", "--num_actors=33", "--cores=2",
    )  # fmt: skip
    wait_for_steps(run, tmp_path / "run")
    names = [path.read_text() for path in Path(f"/proc/{run.process.pid}/task").glob("*/comm")]
    assert names.count("pool-events\n") == 2
    (directory,) = run.tmp.glob("torchbeast-*")
    assert directory.stat().st_mode & 0o077 == 0
    find_server(run, "/env.0").kill()
    wait_for_steps(run, tmp_path / "run", 300)
    find(run, "multiprocessing.forkserver").kill()  # Its workers, all servers, end with it.
    wait_for_steps(run, tmp_path / "run", 300)
    family = run.family()
    run.process.send_signal(signal.SIGTERM)
    code, _, err = run.finish()
    assert code == 143
    nothing_left(run, family)
    assert err.count("restarting it") >= 3


def test_a_run_whose_standard_streams_are_closed_trains_and_saves(tmp_path):
    command = [sys.executable, "-m", "torchbeast.polybeast", *FAST, *MOCK]
    command += ["--savedir", str(tmp_path), "--xpid=run", "--total_steps=100"]
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    done = subprocess.run(closing, check=False, timeout=300, cwd=ROOT)
    assert done.returncode == 0
    assert (tmp_path / "run" / "model.tar").exists()
    assert "Run run in" in (tmp_path / "run" / "out.log").read_text()
