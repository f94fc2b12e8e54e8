"""What deploy/ starts is what the programs accept."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from tests.conftest import ROOT
from torchbeast import polybeast, polybeast_env
from torchbeast.servers.addresses import check_basenames, server_addresses
from torchbeast.train import TrainingConfig, prepare

DEPLOY = ROOT / "deploy"
PARSERS = {"polybeast": polybeast.make_parser, "polybeast_env": polybeast_env.make_parser}


def parse(program, *arguments):
    return PARSERS[program]().parse_args(arguments)


def kubernetes_objects():
    text = (DEPLOY / "kubernetes" / "torchbeast.yaml").read_text()
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}


def container_of(workload):
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return container, parse(*container["command"], *container["args"])


def check_plan(learner, servers, hosts):
    """The learner connects to each server of each host, whose games are its own."""
    config = TrainingConfig.from_flags(vars(learner))
    assert not config.servers.start_servers
    setup = prepare(config)
    assert len(set(setup.shares)) == 1
    num_servers = len(setup.servers)
    servers_of = (config.servers.pipes_basename, num_servers, len(config.games))
    check_basenames(*servers_of, config.servers.tls_dir)
    assert num_servers == servers.num_servers * len(hosts)
    assert learner.env == servers.env
    addresses = server_addresses(config.servers.pipes_basename.split(","), num_servers)
    port = int(servers.pipes_basename.rpartition(":")[2])
    assert addresses == [f"{h}:{port + i}" for h in hosts for i in range(servers.num_servers)]


def check_cluster(words):
    """A learner's command line: the servers that it wants of a cluster are equal for its games."""
    learner = parse(*words)
    setup = prepare(TrainingConfig.from_flags(vars(learner)))
    assert learner.ray_address == "auto"
    assert len(setup.servers) == learner.num_servers
    assert len({load.num_environments for load in setup.servers}) == 1
    return setup


def test_compose_has_a_cpu_for_each_server():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    script = services["learner"]["command"][-1].split("exec ")[1]
    setup = check_cluster(shlex.split(script))
    worker = shlex.split(services["worker"]["command"])
    cpus = int(worker[worker.index("--num-cpus") + 1])
    assert cpus * services["worker"]["deploy"]["replicas"] == len(setup.servers)
    for service in services.values():
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
    build = services["learner"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()


def test_kubernetes_scales_to_a_cpu_for_each_server():
    text = (DEPLOY / "kubernetes" / "rayjob.yaml").read_text()
    _, job = yaml.safe_load_all(text)
    setup = check_cluster(shlex.split(job["spec"]["entrypoint"]))
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    (worker,) = workers["template"]["spec"]["containers"]
    cpus = int(worker["resources"]["limits"]["cpu"])
    assert cpus * workers["maxReplicas"] == len(setup.servers)
    assert cluster["enableInTreeAutoscaling"]
    assert f"RAY_VERSION={cluster['rayVersion']}" in (DEPLOY / "Dockerfile").read_text()


def test_kubernetes_connects_the_learner_with_all_replicas():
    objects = kubernetes_objects()
    envs = objects["StatefulSet", "envs"]
    _, servers = container_of(envs)
    _, learner = container_of(objects["Job", "learner"])
    hosts = [f"envs-{i}.{envs['spec']['serviceName']}" for i in range(envs["spec"]["replicas"])]
    check_plan(learner, servers, hosts)
    # Without it a tag "latest" is pulled from a registry, also where the image is on the node.
    for workload in (envs, objects["Job", "learner"]):
        assert container_of(workload)[0]["imagePullPolicy"] == "IfNotPresent"


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
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    assert subprocess.run([script[0], tmp_path], capture_output=True).returncode == 2


def run_slurm_job(script, tmp_path, num_nodes, srun):
    """Runs a script of deploy/ as SLURM would, with another ``srun``. Returns its exit code."""
    programs = {"scontrol": f"seq -f node%.0f {num_nodes}", "srun": srun}
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
    return subprocess.run(command, env=environment, check=False).returncode


@pytest.mark.parametrize(("num_nodes", "code"), [(2, 3), (100_000, 0)])
def test_a_slurm_job_ends_with_the_exit_code_of_its_training(tmp_path, num_nodes, code):
    srun = f'echo "$@" > "{tmp_path}/srun"; exit {code}'
    assert run_slurm_job("slurm.sh", tmp_path, num_nodes, srun) == code
    arguments = (tmp_path / "srun").read_text().split()
    assert arguments[:3] == ["--cpus-per-task", "16", "torchrun"]
    assert arguments[-2:] == ["--env", "six"]
    assert arguments[arguments.index("--rdzv-endpoint") + 1] == "node1:29400"
    flags = arguments[arguments.index("torchbeast.polybeast") + 1 :]
    assert parse("polybeast", *flags).xpid == "six-games"


def test_a_slurm_job_with_ray_leaves_the_learner_cores_of_the_first_node(tmp_path):
    (tmp_path / "ray").write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/arguments"\nexit 3\n')
    (tmp_path / "ray").chmod(0o755)
    srun = 'shift 2; SLURM_PROCID=0 exec "$@"'
    assert run_slurm_job("slurm_ray.sh", tmp_path, 3, srun) == 3
    arguments = (tmp_path / "arguments").read_text()
    start, command = arguments.split(" -- ")
    assert start == "symmetric-run --address node1:6379 --min-nodes 3 --num-cpus 8"
    learner = parse(*shlex.split(command))
    assert (learner.num_servers, learner.cores, learner.env) == (3 * 16 - 8, 8, "six")
    assert (learner.ray_address, learner.xpid) == ("auto", "six-games")
