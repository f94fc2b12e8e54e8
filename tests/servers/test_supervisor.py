import multiprocessing
import random

import numpy as np

import libtorchbeast
from torchbeast.core.types import ObservationConfig
from torchbeast.servers.supervisor import ServedGames, make_env_init, serve


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


def test_each_environment_of_each_server_has_a_seed_of_its_own():
    served = ServedGames(
        ("tests.moving_target:MovingTarget-v0",), ObservationConfig(), False, 1, 60
    )
    seeds = []
    for server in ((0, 0), (1, 0), (0, 1)):
        env_init = make_env_init(served, 0, server)
        for env in (env_init(), env_init()):
            env.reset()
            seeds.append(env.unwrapped.np_random_seed)
            env.close()
    assert len(set(seeds)) == 6
