"""A Ray cluster of three machines that are network namespaces, connected by a bridge."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from tests.clusters import MOCK, hosts
from tests.conftest import ROOT
from tests.processes import wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.cluster

BRIDGE = "torchbeast-test"
ADDRESSES = {"tb-head": "10.77.0.1", "tb-a": "10.77.0.2", "tb-b": "10.77.0.3"}


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def remove():
    for name in ADDRESSES:
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
        for pid in map(int, found.stdout.split()):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


@pytest.fixture
def network():
    """The namespaces. What runs in them is killed at the end."""
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespaces here")
    try:
        ip("link", "set", BRIDGE, "up")
        for name, address in ADDRESSES.items():
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        remove()


@pytest.fixture
def short_path():
    """A directory for Ray, whose sockets have long names."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as path:
        yield path


def start_in(name, *words, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["ip", "netns", "exec", name, sys.executable, "-m", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, **options)


def start_ray(name, *words):
    command = ["ray.scripts.scripts", "start", f"--node-ip-address={ADDRESSES[name]}"]
    done = start_in(name, *command, f"--node-name={name}", "--disable-usage-stats", *words,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    out, _ = done.communicate(timeout=120)
    assert done.returncode == 0, out


def test_a_machine_that_is_cut_off_is_noticed_and_the_others_go_on(network, short_path, tmp_path):
    head = f"{ADDRESSES['tb-head']}:6379"
    start_ray("tb-head", "--head", "--port=6379", "--num-cpus=0",
              "--include-dashboard=false", f"--temp-dir={short_path}")  # fmt: skip
    for name in ("tb-a", "tb-b"):
        start_ray(name, f"--address={head}", "--num-cpus=1")
    run = tmp_path / "run"
    with open(tmp_path / "err", "w+") as err:
        learner = start_in(
            "tb-head", "torchbeast.polybeast", *MOCK, f"--ray_address={head}", "--num_servers=2",
            "--num_actors=4", f"--savedir={tmp_path}", "--xpid=run", "--total_steps=1e9",
            stdout=err, stderr=err,
        )  # fmt: skip

        def wait_for(condition):
            wait_until(lambda: learner.poll() is not None or condition(hosts(run)), 120)
            assert learner.poll() is None, (tmp_path / "err").read_text()
            return hosts(run)

        names = ("tb-a", "tb-b")
        wait_for(lambda h: set(h) == set(names) and all(h[name][1] > 40 for name in names))
        ip("link", "set", "tb-b", "down")
        cut_at = time.monotonic()
        before = wait_for(lambda h: h["tb-b"][0] == 0)
        print(f"noticed after {time.monotonic() - cut_at:.0f} s")
        wait_for(lambda h: h["tb-a"][1] > before["tb-a"][1] + 100)
        learner.send_signal(signal.SIGINT)
        assert learner.wait(60) == 130
    text = (tmp_path / "err").read_text()
    assert "Ray: tb-b is gone with 1 server" in text
