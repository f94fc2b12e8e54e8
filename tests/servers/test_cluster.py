"""Environment servers on a real Ray cluster, all of whose machines are this one."""

import contextlib
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests.conftest import ROOT
from tests.processes import all_end, family, kill_family, last_step, wait_until

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
# The warnings are Ray's.
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

SMALL = ["--fixed_input_scale", "--unroll_length=10", "--batch_size=2"]
MOCK = [*SMALL, "--agent_type=atari", "--env=Mock"]
# Seconds until Ray believes that its head is lost: 60 by default.
RECONNECT_S = 5


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def head(directory):
    """A cluster's head, on which learners run and no servers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        for name in ("HANG_ONCE", "CLOSED"):  # The nodes' environment is that of their servers.
            patch.setenv(name, str(directory / name))
        cluster = make_cluster()
        yield cluster
        cluster.shutdown()


def make_cluster():
    arguments = {"num_cpus": 0, "include_dashboard": False}
    return cluster_utils.Cluster(initialize_head=True, head_node_args=arguments)


@pytest.fixture
def cluster(head):
    """The cluster, without nodes that other tests added."""
    yield head
    for node in list(head.worker_nodes):
        head.remove_node(node, allow_graceful=False)


def add_node(cluster, name, num_cpus=2):
    return cluster.add_node(node_name=name, num_cpus=num_cpus)


def servers_of(cluster):
    """The processes of all environment servers."""
    found = []
    for node in cluster.list_all_nodes():
        for raylet in node.all_processes.get("raylet", []):
            for process in family(raylet.process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += [process] if process.name().startswith("ray::EnvServer") else []
    return found


@pytest.fixture
def learn(start, cluster, tmp_path):
    """Starts a learner, whose run is ``tmp_path / "run"``."""

    def run(*arguments):
        return start(
            "polybeast", f"--ray_address={cluster.address}", "--xpid=run", "--savedir", tmp_path,
            "--total_steps=1e9", *arguments,
        )  # fmt: skip

    return run


def test_nodes_are_killed_and_added_and_the_run_goes_on(cluster, learn, tmp_path):
    run = tmp_path / "run"
    first = add_node(cluster, "first")
    learner = learn(*MOCK, "--num_servers=4", "--num_actors=8")

    def times(text):
        return (run / "out.log").read_text().count(text)

    waiting = "Ray: 2 of 4 servers run; the others wait for CPUs of the cluster"
    learner.wait_until(lambda: last_step(run) > 40 and times(waiting) == 1, 120)
    add_node(cluster, "second")
    learner.wait_until(lambda: times("Ray: 4 of 4 servers run") == 1, 120)
    cluster.remove_node(first, allow_graceful=False)
    learner.wait_until(lambda: times("Ray: first is gone with") > 0, 120)
    before = last_step(run)
    learner.wait_until(lambda: last_step(run) > before + 100, 120)
    add_node(cluster, "third")
    learner.wait_until(lambda: times("Ray: 4 of 4 servers run") == 2, 120)
    members = [*learner.family(), *servers_of(cluster)]
    learner.process.send_signal(signal.SIGINT)
    code, _, err = learner.finish()
    assert code == 130, err
    all_end(members, timeout=30)
    # In one line, or in two if Ray tells of one after the other.
    assert sum(map(int, re.findall(r"Ray: first is gone with (\d) server", err))) == 2
    assert "raylet" not in err


def test_a_killed_learner_leaves_no_server_and_its_run_resumes(cluster, learn, tmp_path):
    run = tmp_path / "run"
    add_node(cluster, "node")
    learner = learn(*MOCK, "--num_servers=2", "--num_actors=2", "--checkpoint_interval_s=1")
    learner.wait_until((run / "model.tar").exists, 120)
    wait_until(lambda: len(servers_of(cluster)) == 2, 60)
    members = [*learner.family(), *servers_of(cluster)]
    learner.process.kill()
    all_end(members, timeout=30)
    assert not servers_of(cluster)
    learner = learn(*MOCK, "--num_servers=2", "--num_actors=2", "--total_steps=2000")
    code, _, err = learner.finish()
    assert code == 0, err
    assert "Resuming at step" in err


def test_a_lost_head_ends_the_run_with_a_line_and_a_checkpoint(start, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S))
    own = make_cluster()
    address = own.address
    try:
        own.add_node(num_cpus=1)
        learner = start(
            "polybeast", *MOCK, f"--ray_address={address}", "--num_servers=1",
            "--num_actors=1", "--savedir", tmp_path, "--xpid=run", "--total_steps=1e9",
        )  # fmt: skip
        run = tmp_path / "run"
        learner.wait_until(lambda: last_step(run) > 0, 120)
        own.head_node.kill_gcs_server()
        code, _, err = learner.finish(timeout=120)
    finally:
        own.shutdown()
    assert code == 1, err
    assert err.splitlines()[-1].startswith(
        f"polybeast: error: the Ray cluster at {address} is lost (Ray ended with exit code 1"
    )
    assert err.count("error") == 1
    assert (run / "model.tar").exists()
    assert "Failed to connect to GCS" in (run / "ray.log").read_text()


@pytest.mark.parametrize(
    ("name", "line", "traceback"),
    [
        ("Raises", "of server 0 on node (", "ZeroDivisionError: the third step"),
        ("Crashes", "server 0 on node died", "Fatal Python error: Segmentation fault"),
    ],
)
def test_an_environment_that_fails_again_and_again_ends_the_run(
    cluster, learn, tmp_path, name, line, traceback
):
    add_node(cluster, "node", num_cpus=1)
    flags = [*SMALL, "--num_servers=1", "--num_actors=1", f"--env=tests.hostile:{name}-v0"]
    code, _, err = learn(*flags).finish(timeout=200)
    assert code == 1
    assert line in err.splitlines()[-1] if name == "Crashes" else line in err
    log = err if name == "Raises" else (tmp_path / "run" / "ray.log").read_text()
    assert traceback in log
    assert not servers_of(cluster)


@pytest.mark.parametrize(
    ("env", "place"), [("tests.odd_games:Hangs-v0", "in step"), ("tests.hostile:HangsOnce-v0", "")]
)
def test_a_server_that_hangs_is_replaced(cluster, learn, tmp_path, env, place):
    add_node(cluster, "node", num_cpus=1)
    flags = ["--num_servers=1", "--num_actors=1", f"--env={env}", "--step_timeout_s=1"]
    learner = learn(*SMALL, *flags)
    if place:
        code, _, err = learner.finish(timeout=200)
        assert code == 1
        assert "Ray: server 0 on node died or hung (its last words are in " in err
        assert place in (tmp_path / "run" / "ray.log").read_text()
    else:  # With Python's lock held; once.
        learner.wait_until(lambda: last_step(tmp_path / "run") > 0)
        learner.process.send_signal(signal.SIGINT)
        code, _, err = learner.finish()
        assert code == 130, err
        assert "in hang_once" in (tmp_path / "run" / "ray.log").read_text()


def test_another_version_is_refused_by_name(cluster, tmp_path):
    from torchbeast.core.types import ObservationConfig, UsageError
    from torchbeast.servers.cluster import ClusterConfig, RayServers
    from torchbeast.servers.supervisor import ServedGames

    add_node(cluster, "node", num_cpus=1)
    served = ServedGames(("Mock",), ObservationConfig(), False, 1, 60.0)
    log_file = str(tmp_path / "ray.log")
    config = ClusterConfig(cluster.address, served, (1,), log_file, "0.0.1")
    with RayServers(config) as servers, pytest.raises(UsageError, match=r"^node has torchbeast"):
        wait_until(servers.changes, 60)


def test_ranks_of_torchrun_have_servers_of_their_own(cluster, tmp_path):
    add_node(cluster, "node", num_cpus=4)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        "-m", "torchbeast.polybeast", *MOCK, f"--ray_address={cluster.address}",
        "--num_servers=2", "--num_actors=2", "--savedir", tmp_path, "--xpid=run",
        "--total_steps=1e9",
    ]  # fmt: skip
    process = subprocess.Popen([*map(str, command)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: last_step(tmp_path / "run") > 0 or process.poll() is not None, 120)
        wait_until(lambda: len(servers_of(cluster)) == 4, 60)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert "SIGTERM: saving the run" in err, err
        assert (tmp_path / "run" / "model.tar").exists()
    finally:
        kill_family(process)
        process.communicate()
    wait_until(lambda: not servers_of(cluster), 30)
