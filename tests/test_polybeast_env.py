import signal
import sys

import pytest

from tests.processes import nothing_left
from torchbeast.polybeast_env import main, make_parser, plan_servers
from torchbeast.runtime import threads
from torchbeast.runtime.allocation import default_num_actors, default_num_servers, divide


def test_without_the_compiled_part_one_line_says_what_to_do(monkeypatch, tmp_path, assert_misuse):
    (tmp_path / "libtorchbeast.py").write_text("raise ImportError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "libtorchbeast")
    message = "polybeast_env: error: PolyBeast's C++ part cannot be loaded (undefined symbol): run"
    assert_misuse(main, [], message)


@pytest.mark.parametrize(("cores", "num_actors"), [(1, None), (11, None), (11, 60)])
def test_as_many_servers_start_by_default_as_the_learner_expects(monkeypatch, cores, num_actors):
    monkeypatch.setattr(threads, "available_cores", lambda: cores)
    shares = divide(num_actors or default_num_actors(3), 3)
    servers = plan_servers(make_parser().parse_args(["--env=Pong,Breakout,Tennis"]))
    assert servers.num_servers == default_num_servers(cores, shares)


def test_a_signal_ends_it_while_it_waits_for_an_environment_at_the_start(
    start, tmp_path, monkeypatch
):
    monkeypatch.setenv("HANGING", str(tmp_path / "hanging"))
    run = start(
        "polybeast_env", "--env=tests.hostile:HangsWhenMade-v0",
        f"--pipes_basename=unix:{tmp_path}/pipe",
    )  # fmt: skip
    run.wait_until((tmp_path / "hanging").exists)
    family = run.family()
    run.process.send_signal(signal.SIGTERM)
    assert run.finish(timeout=60) == (-signal.SIGTERM, "", "")
    nothing_left(run, family, timeout=60)
