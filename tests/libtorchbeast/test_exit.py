"""What happens to threads inside the library when Python exits."""

import subprocess
import sys

import pytest

from tests.kernels import HAS_KERNELS

PREAMBLE = """
import threading, time
import numpy as np
from libtorchbeast import _C
from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher, Server
from torchbeast.envs.mock import Mock

queue, full = BatchingQueue(), BatchingQueue(maximum_queue_size=1)
batcher, computing = DynamicBatcher(), DynamicBatcher()
pool = ActorPool(1, queue, batcher, ["unix:{directory}/nobody"], ())
server = Server(Mock, "unix:{directory}/s")

class Slow(Mock):
    # A stream of these is busy in Python code for longer than Python waits at the exit.
    def __init__(self):
        super().__init__()
        time.sleep(0.5)

def connect():
    slow = ActorPool(1, queue, batcher, ["unix:{directory}/slow"], (), environments_per_stream=16)
    slow.run()

def normalize_for_ever():
    stacks, games = np.zeros((256, 4, 84, 84), np.uint8), np.zeros(256, np.int32)
    means, scales = np.zeros((1, 84, 84, 4), np.float32), np.ones(1, np.float32)
    outputs = np.zeros((256, 84, 84, 4), np.int16)
    while True:
        _C.normalize_frames(stacks, means, scales, games, outputs)

def start(function, *arguments):
    entered = threading.Event()
    def run():
        entered.set()
        function(*arguments)
    threading.Thread(target=run, daemon=True).start()
    entered.wait()
    time.sleep(0.02)
"""
WAITS = {
    "environments that are made": "start(Server(Slow, 'unix:{directory}/slow').run); "
    "start(connect); time.sleep(1)",
    **({"kernels": "start(normalize_for_ever); time.sleep(1)"} if HAS_KERNELS else {}),
    "the rest at once, with torch": "import torch; start(next, queue); start(next, batcher); "
    "start(pool.run); start(server.run); start(computing.compute, np.ones((1, 1))); "
    "full.enqueue(np.ones((1, 1))); start(full.enqueue, np.ones((1, 1)))",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_waiting_daemon_thread_does_not_disturb_the_exit(tmp_path, wait):
    code = (PREAMBLE + wait + "\n").format(directory=tmp_path)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
