"""A gateway with an actor pool behind it, and clients that say what a test wants."""

import json
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import torchbeast
from tests.processes import wait_until
from torchbeast.joining.config import GatewayConfig
from torchbeast.joining.messages import Announcement, Hello, Spaces, decode, encode
from torchbeast.joining.process import GatewayProcess, listen
from torchbeast.joining.tenancy import Timing
from torchbeast.runtime.allocation import allocate
from torchbeast.runtime.servers import server_addresses

MAKE_CERTIFICATES = Path(__file__).parents[2] / "deploy" / "make_certificates.sh"
# Long enough that a host on a busy machine does not look lost.
TIMING = Timing(hello_s=2.0, start_s=120.0, ping_s=0.5, silence_s=10.0, look_s=0.2)
OBSERVATION = {
    "preprocessing": "deepmind",
    "frame_format": "gray_stack",
    "frame_height": 84,
    "frame_width": 84,
}
HELLO = Hello(torchbeast.__version__, "host", 1, None)
SPACES = Announcement((Spaces("Mock", (4, 84, 84), 4),))


class Learner:
    """A gateway, and what it reports."""

    def __init__(self, directory, tls_dir=None, num_places=2, address="localhost", **changes):
        self.basename = f"unix:{directory}/env"
        self.num_places = num_places
        listener = listen(f"{address}:0", tls_dir)
        self.port = listener.getsockname()[1]
        config = GatewayConfig(
            version=torchbeast.__version__,
            games=("Mock",),
            names=("Mock",),
            loads=allocate([2 * num_places], num_places),
            basename=self.basename,
            observation=OBSERVATION,
            full_action_space=False,
            observation_shape=(4, 84, 84),
            num_actions=4,
            step_timeout_s=300.0,
            seed=1,
            tls_dir=tls_dir,
            timing=TIMING,
        )
        self.process = GatewayProcess(config._replace(**changes), listener)
        self.events = []
        self.clients = []

    def sees(self, kind, count=1):
        """Whether so many events of a kind have come."""
        self.events += self.process.events()
        return sum(event.kind == kind for event in self.events) >= count

    def connect(self):
        self.clients.append(Client(self.port))
        return self.clients[-1]


class Client:
    """A connection to a gateway, without encryption."""

    def __init__(self, port):
        self.socket = socket.create_connection(("localhost", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, *messages):
        self.socket.sendall(b"".join(map(encode, messages)))

    def send_changed(self, message, **fields):
        """Sends a message with other fields than it may have."""
        ((name, content),) = json.loads(encode(message)).items()
        self.socket.sendall(json.dumps({name: {**content, **fields}}).encode() + b"\n")

    def receive(self):
        """The next message; None at the end."""
        line = self.file.readline()
        return decode(line.rstrip()) if line else None

    def is_closed(self):
        """Waits until the gateway closes the connection."""
        try:
            return self.file.read() == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.file.close()
        self.socket.close()


@pytest.fixture
def make_tls(tmp_path):
    """Makes certificates for a host name; returns their directory."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")

    def make(name, directory="tls"):
        subprocess.run([MAKE_CERTIFICATES, tmp_path / directory, name], check=True)
        return str(tmp_path / directory)

    return make


@pytest.fixture
def make_learner(tmp_path):
    """Starts gateways; ends them after the test."""
    learners = []

    def make(**changes):
        learners.append(Learner(tmp_path, **changes))
        learners[-1].process.__enter__()
        return learners[-1]

    yield make
    for learner in learners:
        learner.process.__exit__()
        for client in learner.clients:
            client.close()


@pytest.fixture
def run_pool():
    """Runs actor pools whose environments all do the same; ends them after the test."""
    import torch

    from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher

    ends = []

    def run(learner):
        queue = BatchingQueue(batch_dim=1, maximum_batch_size=1)
        batcher = DynamicBatcher(batch_dim=1, timeout_ms=5)
        addresses = server_addresses([learner.basename], learner.num_places)
        pool = ActorPool(
            10, queue, batcher, addresses, (), environments_per_stream=2, connect_timeout_s=1e9
        )
        errors = []

        def infer():
            for batch in batcher:
                time.sleep(0.02)  # Steps are not to take all of the machine's time.
                size = batch.get_inputs()[0][1].shape[1]
                batch.set_outputs(((torch.zeros(1, size, 1, dtype=torch.int64),), ()))

        def act():
            try:
                pool.run()
            except RuntimeError as error:
                errors.append(error)

        threads = [
            threading.Thread(target=work, daemon=True)
            for work in (act, infer, lambda: [None for _ in queue])
        ]
        for thread in threads:
            thread.start()
        ends.append((queue, batcher, threads, errors))
        return pool

    yield run
    for queue, batcher, threads, errors in ends:
        queue.close()
        batcher.close()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert not errors


@pytest.fixture
def steps_go_on():
    """Waits until a pool has taken further steps of all its places, or of some."""

    def wait(pool, places=None):
        before = pool.stream_counts()
        wanted = range(len(before)) if places is None else places
        wait_until(lambda: all(pool.stream_counts()[i] > before[i] for i in wanted))

    return wait
