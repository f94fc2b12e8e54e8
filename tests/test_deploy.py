"""What deploy/ starts is what the programs accept."""

import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest

from tests.conftest import ROOT
from tests.processes import wait_until
from torchbeast.polybeast import make_parser

DEPLOY = ROOT / "deploy"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_certificates_name_all_hosts_and_have_one_root(tmp_path):
    script = [DEPLOY / "make_certificates.sh", tmp_path]
    subprocess.run([*script, "env-a", "env-b"], check=True)
    root = (tmp_path / "root.pem").read_bytes()
    # As strict as Python's own checks from 3.13 on.
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", tmp_path / "root.pem"]
    verify.append(tmp_path / "cert.pem")
    show = ["openssl", "x509", "-in", tmp_path / "cert.pem", "-noout", "-ext", "subjectAltName"]
    for names in (["env-a", "env-b"], ["10.example"]):
        subprocess.run([*script, *names], check=True)
        subprocess.run(verify, check=True, capture_output=True)
        shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
        assert re.findall(r"DNS:(\S+?)(?:,|$)", shown, re.M) == names
    assert (tmp_path / "root.pem").read_bytes() == root
    (tmp_path / "root.pem").unlink()  # As an interrupted call leaves it.
    subprocess.run([*script, "env-a"], check=True)
    subprocess.run(verify, check=True, capture_output=True)
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    assert subprocess.run([script[0], tmp_path], capture_output=True).returncode == 2


def start_slurm_job(script, tmp_path, num_nodes, srun):
    """Starts a script of deploy/ as SLURM would, with other commands of SLURM."""
    calls = f'echo "$(basename "$0") $@" >> "{tmp_path}/calls"'
    programs = {
        "scontrol": f'[ "$1" != show ] || exec seq -f node%.0f {num_nodes}; {calls}',
        "scancel": f'{calls}; kill -TERM "$(cat "{tmp_path}/srun.pid")"',
        "srun": srun,
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_JOB_NODELIST": f"node[1-{num_nodes}]",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "six-games",
        "SLURM_NNODES": str(num_nodes),
        "SLURM_CPUS_PER_TASK": "16",
    }
    command = ["bash", DEPLOY / script, "--env", "six"]
    return subprocess.Popen(command, env=environment)


# The list of so many nodes fills a pipe, which whoever wants the first one closes.
@pytest.mark.parametrize(("num_nodes", "code"), [(2, 3), (100_000, 0)])
def test_a_slurm_job_ends_with_the_exit_code_of_its_training(tmp_path, num_nodes, code):
    srun = f'echo "$@" > "{tmp_path}/srun"; exit {code}'
    assert start_slurm_job("slurm.sh", tmp_path, num_nodes, srun).wait() == code
    arguments = (tmp_path / "srun").read_text().split()
    assert arguments[:3] == ["--cpus-per-task", "16", "torchrun"]
    assert arguments[-2:] == ["--env", "six"]
    assert arguments[arguments.index("--rdzv-endpoint") + 1] == "node1:20007"
    flags = arguments[arguments.index("torchbeast.polybeast") + 1 :]
    assert make_parser().parse_args(flags).xpid == "six-games"


@pytest.mark.parametrize("script", ["slurm.sh", "slurm_ray.sh"])
@pytest.mark.parametrize(
    ("sent", "calls"),
    [
        (signal.SIGUSR1, ["scancel --signal=TERM 7", "scontrol requeue 7"]),
        (signal.SIGTERM, []),
    ],
    ids=["its time is over", "cancelled"],
)
def test_a_slurm_job_is_requeued_at_its_end_and_saved_when_cancelled(tmp_path, script, sent, calls):
    pid = tmp_path / "srun.pid"
    save = f'sleep 0.2; touch "{tmp_path}/saved"; exit 143'
    srun = f"trap '{save}' TERM; echo $$ > \"{pid}\"; for i in $(seq 1200); do sleep 0.05; done"
    job = start_slurm_job(script, tmp_path, 2, srun)
    wait_until(lambda: pid.exists() and pid.read_text())
    if sent == signal.SIGTERM:  # SLURM signals all steps.
        os.kill(int(pid.read_text()), sent)
    job.send_signal(sent)
    assert job.wait(60) == 128 + sent
    assert (tmp_path / "saved").exists()
    log = tmp_path / "calls"
    assert (log.read_text().splitlines() if log.exists() else []) == calls


def test_a_slurm_job_with_ray_leaves_the_learner_cores_of_the_first_node(tmp_path):
    (tmp_path / "ray").write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/arguments"\nexit 3\n')
    (tmp_path / "ray").chmod(0o755)
    srun = 'shift 2; SLURM_PROCID=0 exec "$@"'
    assert start_slurm_job("slurm_ray.sh", tmp_path, 3, srun).wait() == 3
    arguments = (tmp_path / "arguments").read_text()
    start, command = arguments.split(" -- ")
    assert start == "symmetric-run --address node1:6379 --min-nodes 3 --num-cpus 8"
    program, *flags = shlex.split(command)
    assert program == "polybeast"
    learner = make_parser().parse_args(flags)
    assert (learner.num_servers, learner.cores, learner.env) == (3 * 16 - 8, 8, "six")
    assert (learner.ray_address, learner.xpid) == ("auto", "six-games")
