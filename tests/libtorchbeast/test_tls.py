"""Streams that could leave the machine: encrypted, and certified on both sides."""

import shutil
import threading

import pytest

from libtorchbeast import Server
from tests.libtorchbeast.environments import mock_server
from tests.libtorchbeast.pools import Pool, T, run_pool
from tests.network import free_port, make_certificates
from tests.processes import wait_until
from torchbeast.envs.mock import Mock

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that all tests of a module share; some of them it refuses."""
    tls = make_certificates(tmp_path_factory.mktemp("tls") / "ours")
    with mock_server(tls) as port:
        yield f"localhost:{port}", tls


def test_both_sides_show_certificates_and_no_proxy_is_asked(server, monkeypatch):
    address, tls = server
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")  # Nothing listens there.
    rollout, error = run_pool(address, tls)
    assert error is None
    assert rollout[0][0][0].shape == (T + 1, 1, 4, 84, 84)


def log_of_a_pool(address, tls, caplog, **options):
    """Runs a pool until it logs something; returns that."""
    with Pool([address], tls=tls, connect_timeout_s=20, **options) as pool:
        wait_until(lambda: caplog.text or pool.error, 60)
    assert f"Environment server at {address}: no answer for 1 s: " in caplog.text
    assert "do both sides use TLS?" in caplog.text
    return caplog.text


def assert_serves(address, tls):
    """Checks that the server is there: else a refusal would say nothing."""
    rollout, error = run_pool(address, tls)
    assert rollout is not None, error


def test_a_server_of_another_root_is_refused(server, tmp_path, caplog):
    address, tls = server
    others = make_certificates(tmp_path / "others")
    log = log_of_a_pool(address, [*tls[:2], others[2]], caplog)
    assert "certificate verify failed" in log.lower().replace("_", " ")
    assert_serves(address, tls)


def test_the_name_to_verify_may_be_another_one_than_the_address(server, caplog):
    address, tls = server
    address = address.replace("localhost", "127.0.0.1")
    rollout, error = run_pool(address, tls, tls_server_name="localhost")
    assert rollout is not None, error
    assert "elsewhere" in log_of_a_pool(address, tls, caplog, tls_server_name="elsewhere")


def test_a_client_of_another_root_is_refused(server, tmp_path, caplog):
    address, tls = server
    others = make_certificates(tmp_path / "others")
    log_of_a_pool(address, [*others[:2], tls[2]], caplog)
    assert_serves(address, tls)


def test_plain_clients_are_refused(server, caplog):
    address, tls = server
    log_of_a_pool(address, None, caplog)
    assert_serves(address, tls)


def test_plain_servers_are_refused(tmp_path, caplog):
    tls = make_certificates(tmp_path / "ours")
    plain = Server(Mock, "localhost:0")
    assert plain.port == 0
    thread = threading.Thread(target=plain.run)
    thread.start()
    wait_until(lambda: plain.port != 0, 60)
    log_of_a_pool(f"localhost:{plain.port}", tls, caplog)
    plain.stop()
    thread.join(timeout=60)
