import contextlib
import signal
import subprocess
import sys

import pytest

from libtorchbeast import Server
from tests.libtorchbeast.pools import Pool
from tests.processes import wait_until
from tests.threads import start
from torchbeast.envs.mock import Mock


@pytest.mark.parametrize("argument", ["env_init", "env_class"])  # The second is that of 2019.
def test_stop_makes_run_return_and_removes_the_socket(tmp_path, argument):
    server = Server(server_address=f"unix:{tmp_path}/s", **{argument: Mock})
    thread, results = start(server.run)
    wait_until((tmp_path / "s").exists)
    assert not (tmp_path / "s").stat().st_mode & 0o077
    server.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert results == [None]
    assert not (tmp_path / "s").exists()


def test_a_server_that_is_stopped_makes_no_further_environments(tmp_path):
    made = []

    def make():
        made.append(Mock())
        server.stop()
        return made[-1]

    address = f"unix:{tmp_path}/s"
    server = Server(make, address)
    thread, results = start(server.run)
    with Pool([address], envs=16):
        thread.join(timeout=60)
    assert results == [None]
    assert len(made) == 1


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
    wait_until((tmp_path / "s").exists)
    with Pool([f"unix:{tmp_path}/s"]) if busy else contextlib.nullcontext():
        if busy:
            assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"


def test_wrong_arguments_are_refused():
    for address, message in (
        ("nonsense", "neither unix:PATH nor HOST:PORT"),
        ("unix:/" + "x" * 120, "the system allows 107"),
        ("0.0.0.0:4000", "without TLS"),
    ):
        with pytest.raises(ValueError, match=message):
            Server(Mock, address)
    with pytest.raises(TypeError, match="env_init must be callable"):
        Server(3)
    with pytest.raises(TypeError, match="give one"):
        Server(env_init=Mock, env_class=Mock)
    with pytest.raises(RuntimeError, match="Cannot listen on"):
        Server(Mock, "unix:/missing/s").run()


def test_a_server_does_without_torch():
    code = (
        "import sys, libtorchbeast, torchbeast.polybeast_env, torchbeast.envs\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
