"""What deploy/ starts is what the programs accept."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from torchbeast import polybeast, polybeast_env
from torchbeast.servers.addresses import check_basenames, server_addresses
from torchbeast.train import TrainingConfig, prepare

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
PARSERS = {"polybeast": polybeast.make_parser, "polybeast_env": polybeast_env.make_parser}


def parse(program, *arguments):
    return PARSERS[program]().parse_args(arguments)


def compose_services():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return {
        name: parse(*shlex.split(service["command"])) for name, service in services.items()
    }, services


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


def test_compose_connects_the_learner_with_both_hosts():
    commands, services = compose_services()
    learner, hosts = commands.pop("learner"), list(commands)
    for host in hosts:
        assert commands[host].tls_dir == learner.tls_dir
        check_plan(learner, commands[host], hosts)
    build = services["learner"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()


def test_kubernetes_connects_the_learner_with_all_replicas():
    objects = kubernetes_objects()
    envs = objects["StatefulSet", "envs"]
    _, servers = container_of(envs)
    _, learner = container_of(objects["Job", "learner"])
    hosts = [f"envs-{i}.{envs['spec']['serviceName']}" for i in range(envs["spec"]["replicas"])]
    check_plan(learner, servers, hosts)
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in objects["Job", "learner"]["spec"]["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    # Without it a tag "latest" is pulled from a registry, also where the image is on the node.
    for workload in (envs, objects["Job", "learner"]):
        assert container_of(workload)[0]["imagePullPolicy"] == "IfNotPresent"
    assert claims == {name for kind, name in objects if kind == "PersistentVolumeClaim"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_certificates_name_all_hosts_and_have_one_root(tmp_path):
    script = [DEPLOY / "make_certificates.sh", tmp_path]
    subprocess.run([*script, "env-a"], check=True)
    root = (tmp_path / "root.pem").read_bytes()
    long_name = ".".join(["env" * 10] * 3)
    subprocess.run([*script, long_name, "10.0.0.1", "::1", "10.example"], check=True)
    assert (tmp_path / "root.pem").read_bytes() == root
    certificate = tmp_path / "cert.pem"
    # As strict as Python's own checks from 3.13 on.
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", tmp_path / "root.pem", certificate]
    subprocess.run(verify, check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert re.findall(r"DNS:([^,\s]+)", shown) == [long_name, "10.example"]
    assert re.findall(r"IP Address:([^,\s]+)", shown) == ["10.0.0.1", "0:0:0:0:0:0:0:1"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    assert subprocess.run(script, capture_output=True).returncode == 2


@pytest.mark.parametrize(("num_nodes", "code"), [(2, 3), (100_000, 0)])
def test_a_slurm_job_ends_with_the_exit_code_of_its_training(tmp_path, num_nodes, code):
    programs = {
        "scontrol": f"seq -f node%.0f {num_nodes}",
        "srun": f'echo "$@" > "{tmp_path}/srun"; exit {code}',
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
    done = subprocess.run(
        ["bash", DEPLOY / "slurm.sh", "--env", "six"], env=environment, check=False
    )
    assert done.returncode == code
    arguments = (tmp_path / "srun").read_text().split()
    assert arguments[:3] == ["--cpus-per-task", "16", "torchrun"]
    assert arguments[-2:] == ["--env", "six"]
    assert arguments[arguments.index("--rdzv-endpoint") + 1] == "node1:29400"
    flags = arguments[arguments.index("torchbeast.polybeast") + 1 :]
    assert parse("polybeast", *flags).xpid == "six-games"
