"""Ray's autoscaler, whose machines are all this one. ``ray stop`` ends all clusters here."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters import MOCK, wait_for_hosts
from tests.conftest import ROOT

pytest.importorskip("ray")
pytest.importorskip("cryptography")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]


def test_an_autoscaler_brings_the_machines_that_servers_wait_for(start, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    types = {
        "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2,
        },
    }  # fmt: skip
    provider = {"type": "fake_multinode"}
    provider |= {"disable_node_updaters": True, "disable_launch_config_check": True}
    config = {
        "cluster_name": "test", "max_workers": 2, "provider": provider, "auth": {}, "docker": {},
        "available_node_types": types, "head_node_type": "ray.head.default",
        "idle_timeout_minutes": 5, "upscaling_speed": 1.0, "file_mounts": {},
        "file_mounts_sync_continuously": False,
    }  # fmt: skip
    commands = ("head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    for name in (*commands, "initialization", "setup"):
        config[f"{name}_commands"] = []
    for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter"):
        config[name] = []
    path = tmp_path / "autoscaler.json"
    path.write_text(json.dumps(config))
    command = ["ray", "start", "--head", "--num-cpus=0", f"--autoscaling-config={path}"]
    environment = {**os.environ, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    try:
        learner = start(
            "polybeast", *MOCK, "--ray_address=auto", "--xpid=run", "--savedir", tmp_path,
            "--total_steps=1e9", "--num_servers=3", "--num_actors=6",
        )  # fmt: skip
        wait_for_hosts(learner, tmp_path / "run", lambda h: sum(n for n, _ in h.values()) == 6)
        learner.process.send_signal(signal.SIGINT)
        code, _, err = learner.finish()
    finally:
        subprocess.run(["ray", "stop", "--force"], check=True, capture_output=True)
    assert code == 130, err
