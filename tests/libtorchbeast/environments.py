"""Servers of environments whose every mistake shows. Nothing here imports torch: it takes long."""

import contextlib
import itertools
import multiprocessing
import sys
import threading
import time

import numpy as np

from libtorchbeast import Server


class Counting:
    """Frames whose planes count the steps, so that every mistake in a stack shows.

    Episodes of 7 steps; the third ends by truncation. Reward = the action taken.
    """

    def __init__(self, start=0, **behaviour):
        self._count = start
        self._behaviour = behaviour
        self._stack = None
        self._steps = 0
        self._episodes = 0

    def reset(self):
        self._count += 1
        self._stack = np.full((4, 2, 3), self._count % 256, np.uint8)
        return self._stack, {}

    def step(self, action):
        if self._behaviour.get("exit_at") == self._steps:
            sys.exit(3)
        self._steps += 1
        self._count += 1
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = self._count % 256
        over = self._steps % 7 == 0
        self._episodes += over
        truncated = over and self._episodes % 3 == 0
        info = {"game_over": self._episodes % 2 == 0}
        frame, reward = self._stack, float(action)
        if self._steps > self._behaviour.get("bad_at", 1 << 30):
            bad = self._behaviour["bad"]
            if "text" in bad:
                raise bad.get("error", ValueError)(bad["text"])
            frame, reward = bad.get("frame", frame), bad.get("reward", reward)
            truncated = bad.get("truncated", truncated)
        assert isinstance(action, int)
        return frame, reward, over and not truncated, truncated, info


class OldGym:
    """The interface of gym before 0.26, with a nest of odd observations.

    Episodes of 3 steps; all but the first are cut off by gym's time limit.
    """

    def __init__(self):
        self._steps = self._episodes = 0

    def observe(self):
        matrix = np.arange(6, dtype=np.float64).reshape(2, 3).T + self._steps
        return {"b": matrix, "a": (np.bool_(True), self._steps)}

    def reset(self):
        self._steps = 0
        return self.observe()

    def step(self, action):
        self._steps += 1
        done = self._steps == 3
        self._episodes += done
        return self.observe(), 0.5, done, {"TimeLimit.truncated": done and self._episodes > 1}


@contextlib.contextmanager
def mock_server(tls):
    """Makes a context with a process that serves environments that cost nothing; its port."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=serve_at_any_port, args=(tls, theirs), daemon=True)
    process.start()
    theirs.close()  # So that the pipe ends with the process.
    try:
        yield pipe.recv()
    finally:
        process.kill()
        process.join()


def serve_at_any_port(tls, pipe):
    """Serves until the pipe says something; tells the port."""
    from torchbeast.envs.mock import Mock

    server = Server(Mock, "localhost:0", 0, tls)
    threading.Thread(target=server.run, daemon=True).start()
    while server.port == 0:
        time.sleep(0.01)
    pipe.send(server.port)
    pipe.recv()


def serve(address, kind, behaviour, task, environment):
    made = itertools.count(0, 1000)

    def counting():
        return Counting(next(made), **behaviour)

    kinds = {"counting": counting, "old": OldGym}
    Server(kinds[kind], address, task, environment=environment).run()
