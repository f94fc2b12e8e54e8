import multiprocessing
import random
import signal
import sys

import numpy as np
import pytest

import libtorchbeast
from tests.processes import nothing_left, wait_until
from torchbeast import polybeast_env, serving
from torchbeast.polybeast_env import find_server, main, make_parser, read_config, serve
from torchbeast.runtime import threads, workers
from torchbeast.runtime.allocation import default_num_actors, default_num_servers, divide


def test_the_cpp_server_serves_where_it_was_compiled(monkeypatch):
    assert find_server(pure_python=False) is libtorchbeast.Server
    assert find_server(pure_python=True) is serving.Server
    monkeypatch.setitem(sys.modules, "libtorchbeast", None)
    assert find_server(pure_python=False) is serving.Server


@pytest.mark.parametrize("arguments", [[], ["--join=localhost:1"], ["--parent_pid=1"]])
def test_a_broken_build_is_one_line_and_not_pythons_server(
    monkeypatch, tmp_path, capsys, arguments
):
    (tmp_path / "libtorchbeast.py").write_text("raise ImportError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "libtorchbeast")
    monkeypatch.setattr(workers, "end_with_parent", lambda: None)
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "polybeast_env: error: the C++ server cannot be loaded (undefined symbol): run make build"
    )


@pytest.mark.parametrize("num_actors", [None, 60])
@pytest.mark.parametrize("cores", [1, 2, 8, 11])
def test_as_many_servers_start_by_default_as_the_learner_expects(monkeypatch, cores, num_actors):
    monkeypatch.setattr(threads, "available_cores", lambda: cores)
    weights = [1, 1, 1]
    shares = divide(num_actors or default_num_actors(weights), weights)
    config = read_config(make_parser().parse_args(["--env=Pong,Breakout,Tennis"]))
    assert len(config.served) == default_num_servers(cores, shares)


class DrawingServer:
    """Serves nothing: its error says what the global generators draw."""

    def __init__(self, *_):
        pass

    def run(self):
        raise ValueError(f"{np.random.random()} {random.random()}")


def test_each_server_and_its_replacement_draw_other_numbers(monkeypatch):
    monkeypatch.setattr(polybeast_env, "find_server", lambda pure_python: DrawingServer)
    config = read_config(make_parser().parse_args(["--env=Pong", "--num_servers=2", "--seed=1"]))
    context = multiprocessing.get_context("fork")
    draws = []
    for index, generation in ((0, 0), (1, 0), (0, 1), (0, 0)):
        ours, theirs = context.Pipe(duplex=False)
        server = context.Process(target=serve, args=(config, index, generation, None, theirs))
        server.start()
        draws.append(ours.recv().split())
        server.join()
    *others, again = draws
    assert again == others[0]  # The run's seed decides.
    for generator in zip(*others, strict=True):
        assert len(set(generator)) == 3


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
