"""A learner and two hosts on three machines, as network namespaces with links that can be cut."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.joining.conftest import TIMING, Learner
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
PREFIX = f"tb{os.getpid()}"
LEARNER_ADDRESS = "10.213.7.1"


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def why_not():
    """Why this test cannot run here; None if it can."""
    if shutil.which("ip") is None or shutil.which("openssl") is None:
        return "needs ip and openssl"
    made = ip("netns", "add", f"{PREFIX}-try", check=False)
    if made.returncode == 0:
        ip("netns", "del", f"{PREFIX}-try")
        return None
    return f"ip netns add is not permitted: {made.stderr.strip()}"


@pytest.fixture
def machines(tmp_path):
    """Namespaces ``a`` and ``b``, each with a link to this one."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        bridge = f"{PREFIX}-br"
        stack.callback(ip, "link", "del", bridge, check=False)
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{LEARNER_ADDRESS}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, name in enumerate("ab", 2):
            space, link = f"{PREFIX}-{name}", f"{PREFIX}-{name}"
            stack.callback(ip, "netns", "del", space, check=False)
            ip("netns", "add", space)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", link, "master", bridge, "up")
            ip("-n", space, "addr", "add", f"10.213.7.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        yield


@pytest.fixture
def join_from(machines, tmp_path):
    """Starts a host on a machine; ends it after the test."""
    hosts = []

    def join(name, port, tls_dir):
        # Its own /etc/hosts has the learner's name, which its certificate is for.
        names = tmp_path / "hosts"
        names.write_text(f"127.0.0.1 localhost\n{LEARNER_ADDRESS} learner\n")
        command = [
            sys.executable, "-m", "torchbeast.polybeast_env", f"--join=learner:{port}",
            f"--host_name={name}", "--env=Mock", "--num_servers=1", f"--tls_dir={tls_dir}",
        ]  # fmt: skip
        script = f'mount --bind {names} /etc/hosts && exec "$@"'
        hosts.append(
            subprocess.Popen(
                ["ip", "netns", "exec", f"{PREFIX}-{name}", "sh", "-c", script, "sh", *command],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(tmp_path)},
                stdout=subprocess.DEVNULL,
            )
        )
        return hosts[-1]

    yield join
    for host in hosts:
        host.terminate()
        host.wait()


def test_hosts_on_other_machines_come_and_go(tmp_path, run_pool, steps_go_on, join_from):
    tls = str(tmp_path / "tls")
    subprocess.run([ROOT / "deploy" / "make_certificates.sh", tls, "learner"], check=True)
    learner = Learner(tmp_path, tls, address=LEARNER_ADDRESS, timing=TIMING)
    with learner.process:
        pool = run_pool(learner)
        join_from("a", learner.port, tls)
        wait_until(lambda: learner.sees("joined"))
        steps_go_on(pool, [0])
        b = join_from("b", learner.port, tls)  # In mid-run.
        wait_until(lambda: learner.sees("joined", 2))
        steps_go_on(pool)
        # No packet says that the link is cut.
        ip("link", "set", f"{PREFIX}-a", "down")
        wait_until(lambda: learner.sees("lost"))
        assert (learner.events[-1].host, learner.events[-1].reason) == ("a", "no word for 10 s")
        steps_go_on(pool, [1])
        ip("link", "set", f"{PREFIX}-a", "up")
        wait_until(lambda: learner.sees("joined", 3))
        steps_go_on(pool)
        b.send_signal(signal.SIGINT)
        wait_until(lambda: learner.sees("left"))
        assert learner.events[-1].host == "b"
        steps_go_on(pool, [0])
