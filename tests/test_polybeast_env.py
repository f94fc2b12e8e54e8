import signal
import sys

import pytest

import libtorchbeast
from tests.processes import nothing_left, wait_until
from torchbeast import serving
from torchbeast.polybeast_env import find_server


def test_the_cpp_server_serves_where_it_was_compiled(monkeypatch):
    assert find_server(pure_python=False) is libtorchbeast.Server
    assert find_server(pure_python=True) is serving.Server
    monkeypatch.setitem(sys.modules, "libtorchbeast", None)
    assert find_server(pure_python=False) is serving.Server


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_waits_for_an_environment_at_the_start(
    start, tmp_path, monkeypatch, signum
):
    monkeypatch.setenv("HANGING", str(tmp_path / "hanging"))
    run = start(
        "polybeast_env", "--env=tests.hostile:HangsWhenMade-v0",
        f"--pipes_basename=unix:{tmp_path}/pipe",
    )  # fmt: skip
    wait_until((tmp_path / "hanging").exists)
    family = run.family()
    run.process.send_signal(signum)
    assert run.finish(timeout=60) == (-signum, "", "")
    nothing_left(run, family, timeout=60)
