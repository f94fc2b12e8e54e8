"""Training the shipped agents: which is trained when, and what happens when one fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import all_end, family, read_logs, wait_until
from tools.shipped import locking, plan, processes, records, resumable, status, trainer
from torchbeast.core.types import RunError, UsageError
from torchbeast.records import checkpoint, run_files
from torchbeast.runtime.priority import session_niceness

pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[2]
REAL = """
[recipe]
flags = "--agent_type atari --fixed_input_scale --unroll_length 10 --batch_size 2 --num_actors 4"

[[agent]]
name = "Tiny"
flags = "--env Mock --disable_cuda"
steps = 10_000_000
seeds = [1]
"""


@pytest.fixture
def make_runs(tmp_path):
    """Reads runs from a plan with agents that are given as name, steps and flags."""

    def make(*agents, seeds=(1,)):
        text = "".join(
            f'[[agent]]\nname = "{name}"\nsteps = {steps}\nflags = "{flags}"\n'
            f"seeds = {list(seeds)}\n"
            for name, steps, flags in agents
        )
        path = tmp_path / "plan.toml"
        path.write_text(text)
        return plan.read_plan(path)

    return make


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains runs with the stand-in; returns the trainer."""
    program = (sys.executable, str(ROOT / "tests" / "tools" / "stand_in.py"))
    monkeypatch.setattr(processes, "PROGRAM", program)

    def run(runs, *, slice_s=0.3, stop=lambda: False, jobs=1, min_free_bytes=0):
        cores = trainer.divide_cores(1, 1) * jobs
        settings = trainer.Settings(slice_s, cores, "normal", min_free_bytes)
        training = trainer.Trainer(runs, tmp_path / "runs", settings)
        with locking.lock(tmp_path / "runs"):
            training.train(stop)
        return training

    return run


def slices(tmp_path, name):
    return records.read_slices(tmp_path / "runs" / name)


def last_step(tmp_path, name):
    return records.read_progress(tmp_path / "runs" / name).steps


def after(seconds):
    """A condition that holds after some time."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def test_the_plan_has_the_agents_of_the_report():
    runs = plan.read_plan()
    assert len({run.agent for run in runs}) == 9
    assert len(runs) == 11
    assert {run.agent for run in runs if not run.is_first} == {"Pong", "MultiTaskPopArt"}
    recipes = []
    for run in runs:
        values = run.values()
        games = len(run.games())
        assert run.steps >= {1: 2_500_000, 3: 4_000_000, 6: 6_000_000}[games]
        assert values["use_popart"] == (run.agent == "MultiTaskPopArt")
        names = ("agent_type", "learning_rate", "entropy_cost", "batch_size", "replay_ratio")
        recipes.append([values[name] for name in names])
    # Else neither filters nor curves can be compared.
    assert recipes == [recipes[0]] * len(runs)
    assert recipes[0][0] == "resnet"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[agent]]\nname = "A"\nsteps = 5\nflags = "--bogus"\nseeds = [1]', "--bogus"),
        ('[[agent]]\nname = "A"\nsteps = 5\nflags = "--env Pang"\nseeds = [1]', "Pong"),
        ('[[agent]]\nname = "A"\nsteps = 5\nflags = "--seed=3"\nseeds = [1]', "--seed=3"),
        ('[[agent]]\nname = "A"\nsteps = 5\nseeds = [1, 1]', "A-s1 twice"),
        ('[[agent]]\nname = "A"\nseeds = [1]', "steps"),
        ('[[agent]]\nname = "A"\nsteps = 5\nseed = 1', "unknown entry seed"),
        ('[recipe]\ncopies = 0\n[[agent]]\nname = "A"\nsteps = 5\nseeds = [1]', "by zero"),
        ("agent", "plan.toml"),
    ],
)
def test_a_wrong_plan_is_refused(tmp_path, text, message):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        plan.read_plan(path)


def test_runs_are_trained_in_turn_until_all_are_done(tmp_path, make_runs, train):
    runs = make_runs(("A", 1000, ""), ("B", 200, ""))
    train(runs)
    done = slices(tmp_path, "A-s1"), slices(tmp_path, "B-s1")
    for run, mine in zip(runs, done, strict=True):
        assert mine[-1].last_step == run.steps
        assert mine[-1].exit_code == 0
        # Each slice begins where the one before ended.
        assert [s.first_step for s in mine] == [0, *(s.last_step for s in mine[:-1])]
    assert len(done[0]) >= 2
    assert done[0][0].exit_code == 143
    assert min(s.date for s in done[1]) <= done[0][-1].date
    table = status.format_status(runs, tmp_path / "runs").splitlines()
    assert table[1].split() == [
        *("A", "1", "1.00k", "1.00k", "100.0", "0.0", "500", "0s", "done", "Pong", "-20.5")
    ]
    assert table[-1].endswith("nothing is trained now; 0s of training left at these speeds")


def test_the_run_furthest_behind_its_target_comes_first(tmp_path, make_runs, train):
    runs = make_runs(("Ahead", 1000, ""), ("Behind", 1000, ""))
    for run, steps in zip(runs, (600, 100), strict=True):
        path = tmp_path / "runs" / run.name
        path.mkdir(parents=True)
        path.joinpath("logs.csv").write_text(
            f"step,seconds,sps,mean_episode_return/Pong\n{steps},1,500,\n"
        )
    train(runs, stop=lambda: last_step(tmp_path, "Behind-s1") > 100)
    assert slices(tmp_path, "Behind-s1")[0].first_step == 100
    assert not slices(tmp_path, "Ahead-s1")


def test_runs_are_trained_side_by_side(tmp_path, make_runs, train):
    names = ("A-s1", "B-s1")
    runs = make_runs(("A", 10**6, ""), ("B", 10**6, ""))
    train(runs, slice_s=600, jobs=2, stop=lambda: all(last_step(tmp_path, name) for name in names))
    for name in names:
        (one,) = slices(tmp_path, name)
        assert one.exit_code == 143


def test_a_run_that_fails_is_left_out_and_others_are_trained(tmp_path, make_runs, train, capsys):
    runs = make_runs(("Bad", 100, "--num_actors 13"), ("Good", 100, ""))
    training = train(runs)
    assert training.left_out == [runs[0]]
    assert [s.exit_code for s in slices(tmp_path, "Bad-s1")] == [1, 1, 1]
    assert slices(tmp_path, "Good-s1")[-1].last_step == 100
    assert (
        "Bad-s1: failed 3 of 3 times (exit code 1): error: the stand-in" in capsys.readouterr().out
    )
    assert "failing" in status.format_status(runs, tmp_path / "runs")


def test_a_run_without_a_step_fails_if_it_had_the_time(make_runs, train, monkeypatch, capsys):
    runs = make_runs(("Idle", 100, "--num_actors 14"))
    # One that had to wait for the cores is given more time instead.
    assert train(runs, stop=after(1.0), slice_s=0.1).left_out == []
    monkeypatch.setattr(processes, "START_CPU_S", 0.0)
    assert train(runs, slice_s=1.0).left_out == runs
    assert "took no step" in capsys.readouterr().out


def test_a_run_that_fails_after_saving_has_not_failed(tmp_path, make_runs, train, capsys):
    runs = make_runs(("Late", 10**6, "--num_actors 16"), ("Other", 10**6, ""))
    training = train(runs, stop=lambda: len(slices(tmp_path, "Late-s1")) == 3)
    assert training.left_out == []
    text = capsys.readouterr().out
    assert text.count("exit code 1 after saving") == 3
    assert "failed" not in text


def test_a_run_that_does_not_end_is_killed(tmp_path, make_runs, train, monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE_S", 0.3)
    runs = make_runs(("Stubborn", 10**9, "--num_actors 15"))
    train(runs, stop=lambda: last_step(tmp_path, "Stubborn-s1"))
    assert slices(tmp_path, "Stubborn-s1")[-1].exit_code == 137


def test_a_full_disk_and_a_missing_program_are_named(make_runs, train, monkeypatch):
    runs = make_runs(("A", 100, ""))
    with pytest.raises(RunError, match="MB are free"):
        train(runs, min_free_bytes=10**18)
    monkeypatch.setattr(processes, "PROGRAM", ("/nonexistent",))
    with pytest.raises(RunError, match="A-s1 cannot be started"):
        train(runs)


@pytest.mark.skipif(sys.platform != "linux", reason="Other systems lack idle priority")
def test_a_run_has_idle_priority():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        processes.lower_priority(process.pid, "idle")
        scheduler, nice = os.sched_getscheduler(process.pid), os.getpriority(0, process.pid)
        has_sessions = os.path.exists(f"/proc/{process.pid}/autogroup")
        session = session_niceness(process.pid) if has_sessions else 19
        process.kill()
    assert (scheduler, nice, session) == (os.SCHED_IDLE, 19, 19)


@pytest.mark.skipif(sys.platform != "linux", reason="Other systems lack this signal")
def test_runs_end_with_a_trainer_that_is_killed(tmp_path, make_runs):
    make_runs(("A", 10**6, ""))
    code = f"""
import sys
from pathlib import Path
from tools.shipped import plan, processes, trainer
processes.PROGRAM = (sys.executable, "tests/tools/stand_in.py")
path = Path({str(tmp_path)!r})
settings = trainer.Settings(600.0, {trainer.divide_cores(1, 1)}, "normal", 0)
trainer.Trainer(plan.read_plan(path / "plan.toml"), path / "runs", settings).train(
    lambda: False
)
"""
    (tmp_path / "runs").mkdir()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        wait_until(lambda: last_step(tmp_path, "A-s1"))
        members = family(process)
    finally:
        process.kill()
        process.wait()
    assert len(members) == 2
    all_end(members, timeout=60)


def test_cores_are_divided_among_jobs(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7, 8}, raising=False)
    monkeypatch.setattr(trainer, "available_cores", lambda: 5)
    assert trainer.divide_cores(2, None) == ((2, 3), (5, 7, 8))
    assert trainer.divide_cores(2, 2) == ((2,), (3,))
    with pytest.raises(UsageError, match="--jobs 6"):
        trainer.divide_cores(6, None)


def test_the_directory_is_not_in_the_work_tree():
    with pytest.raises(UsageError, match="inside the work tree"), locking.lock(ROOT / "runs"):
        pass


def test_another_machine_resumes_from_a_saved_state(tmp_path, make_runs):
    (run,) = make_runs(("Pong", 4_000_000, ""))
    models, here, elsewhere = (tmp_path / name for name in ("models", "here", "elsewhere"))
    # Of that name an earlier agent is shipped.
    shutil.copytree(ROOT / "models" / "Pong", models / "Pong")
    elsewhere.mkdir()
    assert not resumable.load_state(run, elsewhere, models)  # There is nothing to resume from.
    with pytest.raises(UsageError, match=r"has no model\.tar"):
        resumable.save_state(run, here, models)
    source, copied = here / run.name, elsewhere / run.name
    shutil.copytree(ROOT / "models" / "SpaceInvaders", source)
    with locking.lock(source), pytest.raises(UsageError, match="is being trained"):
        resumable.save_state(run, here, models)
    for _ in range(2):  # The second time it has an earlier state to replace.
        resumable.save_state(run, here, models)
    assert resumable.load_state(run, elsewhere, models)
    for name in ("model.tar", *resumable.TABLES):
        assert (copied / name).read_bytes() == (source / name).read_bytes()
    assert run_files.intermediate_paths(copied).keys() == (
        run_files.intermediate_paths(source).keys()
    )
    assert "savedir" not in json.loads((copied / "meta.json").read_text())["args"]
    assert not resumable.load_state(run, elsewhere, models)  # Now it has the run.
    assert sorted(path.name for path in models.iterdir()) == ["Pong"]
    assert not list((models / "Pong").glob(".state-*"))


def test_an_agent_that_is_shipped_already_is_not_trained(tmp_path, make_runs):
    flags = "--preset small --learning_rate 0.001"
    for steps, seeds, expected in ((2e6, (2,), True), (3e6, (2,), False), (2e6, (1,), False)):
        (run,) = make_runs(("PongShallow", int(steps), flags), seeds=seeds)
        assert records.is_finished(run, tmp_path / "runs") == expected
        _, row, _ = status.format_status([run], tmp_path / "runs").splitlines()
        assert ("2.00M" in row.split()[2] and "shipped" in row) == expected


def test_an_older_run_of_an_agent_that_was_shipped_since_is_not_trained(tmp_path, make_runs):
    (run,) = make_runs(
        ("PongShallow", int(2e6), "--preset small --learning_rate 0.001"), seeds=(2,)
    )
    stopped = records.Slice("2026-11-01T00:00:00Z", 0, 500, 60.0, 1, "machine", 143)
    records.append_slice(tmp_path / run.name, stopped)
    assert records.is_finished(run, tmp_path)
    assert status.find_state(run, tmp_path) == "shipped"


def test_a_state_is_resumed_after_a_start_that_failed(tmp_path, make_runs):
    (run,) = make_runs(("Pong", 4_000_000, ""))
    models = tmp_path / "models"
    shutil.copytree(ROOT / "models" / "SpaceInvaders", models / "Pong" / "resume")
    failed = records.Slice("2026-11-01T00:00:00Z", 0, 0, 1.0, 1, "machine", 1)
    records.append_slice(tmp_path / "runs" / run.name, failed)
    assert resumable.load_state(run, tmp_path / "runs", models)
    assert (tmp_path / "runs" / run.name / "model.tar").exists()


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"date,first_step\n1\n", b"\xff\xfe\n"])
def test_a_damaged_table_of_slices_loses_its_damaged_rows_only(tmp_path, damage):
    slices = [records.Slice("2026-11-01T00:00:00Z", i, i + 1, 1.0, 1, "a", 0) for i in range(2)]
    records.append_slice(tmp_path, slices[0])
    with open(tmp_path / records.SLICES, "a") as file:
        file.write("2026-11-01T00:00:00Z,1,x,1.0,1,a,0\n2026-11-01T0")
    assert records.read_slices(tmp_path) == slices[:1]
    (tmp_path / records.SLICES).write_bytes(damage)
    assert records.read_slices(tmp_path) == []
    records.append_slice(tmp_path, slices[1])  # Else a finished run would be trained for ever.
    assert records.read_slices(tmp_path) == slices[1:]


def test_a_row_that_is_being_written_is_not_read(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_text("step,seconds,sps\n10,1,5\n20,2,5\n30,3")
    assert records.last_row(path)["step"] == "20"
    path.write_text("step,seconds,sps\n" + "10,1,5\n" * 20_000 + "20,2,5\n")
    assert records.last_row(path)["step"] == "20"


def test_real_runs_stop_save_and_resume(tmp_path):
    """The whole program, with a second one on the same directory."""
    path = tmp_path / "plan.toml"
    path.write_text(REAL)
    run = tmp_path / "runs" / "Tiny-s1"
    command = [
        *(sys.executable, ROOT / "tools" / "train_models.py", "--plan", path, "--min_free_mb=0"),
        *("--directory", tmp_path / "runs", "--cores=1", "--priority=normal"),
    ]
    options = {"capture_output": True, "text": True, "check": False, "timeout": 400}
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: read_logs(run))
        second = subprocess.run(command, **options)
        assert second.returncode == 2
        assert "Another process trains the agents" in second.stderr
        assert second.stderr.count("\n") == 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=400)
    assert process.returncode == 143
    steps = checkpoint.load(run / "model.tar")["steps"]
    assert records.read_progress(run).steps == steps
    path.write_text(REAL.replace("10_000_000", str(steps + 40)))
    assert subprocess.run(command, **options).returncode == 0
    (first, last) = records.read_slices(run)
    assert (first.last_step, last.first_step, last.last_step) == (steps, steps, steps + 40)
    assert "done" in status.format_status(plan.read_plan(path), tmp_path / "runs")
    assert json.loads((run / "meta.json").read_text())["seed"] == 1
