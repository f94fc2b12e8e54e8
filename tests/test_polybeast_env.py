import multiprocessing
import random
import signal
import sys

import numpy as np
import pytest

import libtorchbeast
from tests.processes import nothing_left
from torchbeast.core.types import ObservationConfig
from torchbeast.polybeast_env import main, make_parser, plan_servers
from torchbeast.runtime import threads
from torchbeast.runtime.allocation import default_num_actors, default_num_servers, divide
from torchbeast.servers.supervisor import ServedGames, serve


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
    assert len(servers.tasks) == default_num_servers(cores, shares)


class DrawingServer:
    """Serves nothing: its error says what the global generators draw."""

    def __init__(self, *_, **__):
        pass

    def run(self):
        raise ValueError(f"{np.random.random()} {random.random()}")


def test_each_server_and_its_replacement_draw_other_numbers(monkeypatch):
    monkeypatch.setattr(libtorchbeast, "Server", DrawingServer)
    served = ServedGames(("PongNoFrameskip-v4",), ObservationConfig(), False, 1, 60)
    context = multiprocessing.get_context("fork")
    draws = []
    for index, generation in ((0, 0), (1, 0), (0, 1), (0, 0)):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (served, 0, "", None, (index, generation), theirs)
        server = context.Process(target=serve, args=arguments)
        server.start()
        theirs.close()  # So that the pipe ends with the server.
        draws.append(ours.recv().split())
        server.join()
    *others, again = draws
    assert again == others[0]  # The run's seed decides.
    for generator in zip(*others, strict=True):
        assert len(set(generator)) == 3


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
