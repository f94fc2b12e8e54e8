import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher, Server
from torchbeast.envs.mock import Mock


def run_in_thread(server):
    errors = []

    def run():
        try:
            server.run()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stop_makes_run_return_and_removes_the_socket(tmp_path):
    server = Server(Mock, f"unix:{tmp_path}/s")
    thread, errors = run_in_thread(server)
    wait_for(tmp_path / "s")
    while (tmp_path / "s").stat().st_mode & 0o077:  # From its first listening on.
        time.sleep(0.01)
    server.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert not errors
    assert not (tmp_path / "s").exists()


def test_address_in_use_is_an_error(tmp_path):
    first = Server(Mock, f"unix:{tmp_path}/s")
    thread, _ = run_in_thread(first)
    wait_for(tmp_path / "s")
    with pytest.raises(RuntimeError, match="Address is in use"):
        Server(Mock, f"unix:{tmp_path}/s").run()
    first.stop()
    thread.join(timeout=60)


def test_stale_socket_file_is_no_obstacle(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from libtorchbeast import Server\n"
            "from torchbeast.envs.mock import Mock\n"
            f"Server(Mock, 'unix:{tmp_path}/s').run()",
        ]
    )
    wait_for(tmp_path / "s")
    process.kill()
    process.wait()
    assert (tmp_path / "s").exists()
    server = Server(Mock, f"unix:{tmp_path}/s")
    thread, errors = run_in_thread(server)
    time.sleep(0.3)
    server.stop()
    thread.join(timeout=60)
    assert not errors


@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_reaches_the_caller_of_run(tmp_path, busy):
    """Also in the middle of an environment's step, which is no failure of the environment's."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, time\n"
            # A shell that starts tests in the background has it ignored.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from libtorchbeast import Server\n"
            "from torchbeast.envs.mock import Mock\n"
            "class Slow(Mock):\n"
            "    def reset(self):\n"
            "        print('busy', flush=True)\n"
            "        time.sleep(60)\n"
            "try:\n"
            f"    Server(Slow, 'unix:{tmp_path}/s').run()\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(tmp_path / "s")
    queue, batcher = BatchingQueue(), DynamicBatcher()
    if busy:
        pool = ActorPool(1, queue, batcher, [f"unix:{tmp_path}/s"], ())
        client = threading.Thread(target=pool.run, daemon=True)
        client.start()
        assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"
    queue.close()
    if busy:
        client.join(timeout=60)
        assert not client.is_alive()


def test_unusable_addresses_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="Cannot listen on"):
        Server(Mock, f"unix:{tmp_path}/missing/s").run()
    with pytest.raises(ValueError, match="neither unix:PATH nor HOST:PORT"):
        Server(Mock, "nonsense")
    with pytest.raises(ValueError, match="the system allows 107"):
        Server(Mock, "unix:/" + "x" * 120)
    with pytest.raises(ValueError, match="that gRPC takes for another one"):
        Server(Mock, f"unix:{tmp_path}/a%41")


@pytest.mark.parametrize("address", ["0.0.0.0:4000", "192.0.2.1:4000", "[::]:4000"])
def test_nothing_listens_to_other_machines_without_tls(address):
    with pytest.raises(ValueError, match="without TLS"):
        Server(Mock, address)


def test_env_init_must_be_callable():
    with pytest.raises(TypeError, match="env_init must be callable"):
        Server(3)


def test_server_and_factory_in_a_cycle_are_collected():
    class Factory:
        def __call__(self):
            return Mock()

    factory = Factory()
    factory.server = Server(factory)
    alive = weakref.ref(factory)
    del factory
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    "order",
    ["torch libtorchbeast cv2 ale_py", "libtorchbeast ale_py cv2 torch", "cv2 libtorchbeast torch"],
)
def test_imports_in_any_order(order):
    code = "; ".join(f"import {module}" for module in order.split())
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_a_server_does_without_torch():
    code = (
        "import sys, libtorchbeast, torchbeast.polybeast_env, torchbeast.envs\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Closing(Mock):
    """Says when it is made and closed; the third one cannot be made."""

    made = 0

    def __init__(self, limit=10**6):
        super().__init__()
        type(self).made += 1
        if type(self).made > limit:
            raise ValueError("no more environments")
        self.number = type(self).made
        print("made", self.number, flush=True)

    def close(self):
        print("closed", self.number, flush=True)


def run_server_script(tmp_path, script, envs=3):
    """Runs a server that a pool connects to until it fails; returns the server's output."""
    process = subprocess.Popen(
        [sys.executable, "-c", script.format(address=f"unix:{tmp_path}/s")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(tmp_path / "s")
    queue, batcher = BatchingQueue(), DynamicBatcher()
    pool = ActorPool(
        1,
        queue,
        batcher,
        [f"unix:{tmp_path}/s"],
        (),
        environments_per_stream=envs,
        max_environment_failures=1,
    )
    return process, pool, (queue, batcher)


def test_environments_are_closed_when_a_later_one_cannot_be_made(tmp_path):
    script = (
        "import functools\n"
        "from libtorchbeast import Server\n"
        "from tests.libtorchbeast.test_server import Closing\n"
        "Server(functools.partial(Closing, 2), '{address}').run()"
    )
    process, pool, _ = run_server_script(tmp_path, script)
    with pytest.raises(RuntimeError, match=r"(?s)Environment 2 of .*no more environments"):
        pool.run()
    lines = [process.stdout.readline() for _ in range(4)]
    assert lines == ["made 1\n", "made 2\n", "closed 1\n", "closed 2\n"]
    process.kill()
    process.communicate()


def test_ctrl_c_while_an_environment_closes_ends_the_server(tmp_path):
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from libtorchbeast import Server\n"
        "from torchbeast.envs.mock import Mock\n"
        "class Slow(Mock):\n"
        "    def close(self):\n"
        "        print('closing', flush=True)\n"
        "        time.sleep(60)\n"
        "try:\n"
        "    Server(Slow, '{address}').run()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    process, pool, (queue, batcher) = run_server_script(tmp_path, script, envs=1)
    client = threading.Thread(target=pool.run)
    client.start()
    batch = next(batcher)
    queue.close()
    client.join(timeout=60)
    del batch
    assert process.stdout.readline() == "closing\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"


def test_env_class_is_the_name_of_2019(tmp_path):
    server = Server(env_class=Mock, server_address=f"unix:{tmp_path}/s")
    thread, errors = run_in_thread(server)
    wait_for(tmp_path / "s")
    server.stop()
    thread.join(timeout=60)
    assert not errors


def test_a_server_has_at_most_so_many_environments(tmp_path):
    server = Server(Mock, f"unix:{tmp_path}/s", max_environments=4)
    thread, _ = run_in_thread(server)
    wait_for(tmp_path / "s")
    pool = ActorPool(
        1,
        BatchingQueue(),
        DynamicBatcher(),
        [f"unix:{tmp_path}/s"],
        (),
        environments_per_stream=5,
        connect_timeout_s=0.5,
    )
    with pytest.raises(RuntimeError, match="this server has at most 4"):
        pool.run()
    server.stop()
    thread.join(timeout=60)
