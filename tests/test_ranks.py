"""Several learners under torchrun: a real run of two games, and what happens when a rank dies."""

import contextlib
import signal
import subprocess
import sys

import psutil
import pytest
import torch

from tests.conftest import ROOT
from tests.network import free_port
from tests.processes import all_end, family, kill_family, last_step, read_logs, wait_until

RUN = [
    "--env=Pong,Breakout", "--use_popart", "--agent_type=atari", "--fixed_input_scale",
    "--unit_statistics", "--unroll_length=10", "--batch_size=2", "--num_actors=2",
    "--num_servers=2", "--xpid=run",
]  # fmt: skip


@pytest.fixture
def torchrun(tmp_path):
    """Starts two ranks of PolyBeast; kills what is left of them at the end."""
    processes = []

    def start(*arguments):
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            "--max-restarts=1", "-m", "torchbeast.polybeast", *RUN, "--savedir", tmp_path,
            *arguments,
        ]  # fmt: skip
        processes.append(
            subprocess.Popen(
                [str(word) for word in command],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        kill_family(process)
        process.communicate()


def find_rank(process, index):
    for member in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            if member.ppid() == process.pid and member.environ().get("RANK") == str(index):
                return member
    raise AssertionError(f"no rank {index}")


def test_a_killed_rank_is_restarted_and_a_signal_stops_all_after_the_same_step(torchrun, tmp_path):
    def wait_for_steps(more):
        before = last_step(tmp_path / "run")
        wait_until(lambda: last_step(tmp_path / "run") > before + more or run.poll() is not None)

    run = torchrun("--total_steps=1e9")
    wait_for_steps(0)
    find_rank(run, 1).send_signal(signal.SIGKILL)
    log = tmp_path / "run" / "out.log"
    wait_until(lambda: "Resuming at step" in log.read_text() or run.poll() is not None)
    wait_for_steps(200)
    members = family(run)
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=200)
    assert "Resuming at step" in out
    assert "SIGTERM: saving the run" in out
    assert f"Saved {tmp_path / 'run' / 'model.tar'}" in out
    all_end(members, timeout=30)
    steps = [int(row["step"]) for row in read_logs(tmp_path / "run")]
    assert steps == sorted(set(steps))
    contents = torch.load(tmp_path / "run" / "model.tar", weights_only=True)
    # Each step is of two batches of two rollouts of ten steps.
    assert contents["steps"] == contents["learner_steps"] * 40 == sum(contents["task_steps"])
    assert contents["steps"] == steps[-1] > 0
    assert min(contents["task_steps"]) > 0


def test_a_rank_with_other_flags_ends_the_run_and_says_which(start, tmp_path):
    port, ranks = free_port(), []
    for index, rate in enumerate(("0.0005", "0.001")):
        variables = {
            **{"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
        }
        environment = {name: str(value) for name, value in variables.items()}
        arguments = [*RUN, "--total_steps=1000", f"--learning_rate={rate}", "--savedir", tmp_path]
        ranks.append(start("polybeast", *arguments, env=environment))
    code, _, err = ranks[1].finish()
    assert code == 2
    assert "differs from the first one: learning_rate 0.001 instead of 0.0005; start all" in err
    code, _, err = ranks[0].finish()
    assert code == 1
    assert "another rank of this run ended" in err
