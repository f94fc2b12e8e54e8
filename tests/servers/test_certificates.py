"""The certificates of a run, shown by a real server and a real actor pool."""

import multiprocessing

import pytest

from tests.libtorchbeast.environments import serve_at_any_port
from tests.libtorchbeast.test_tls import run_pool

certificates = pytest.importorskip("torchbeast.servers.certificates", reason="no cryptography")


def make_tls(authority, *, is_server):
    key, request = certificates.make_request()
    return [certificates.sign(authority, request, is_server=is_server), key, authority.root]


@pytest.fixture(scope="module")
def authority():
    return certificates.make_authority()


@pytest.fixture(scope="module")
def address(authority):
    """Of a server that has a certificate of the authority, and wants one."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    arguments = (make_tls(authority, is_server=True), theirs)
    process = context.Process(target=serve_at_any_port, args=arguments, daemon=True)
    process.start()
    yield f"127.0.0.1:{pipe.recv()}"
    process.kill()
    process.join()


def take_rollout(address, tls, name=certificates.SERVER_NAME):
    """Returns a rollout, or what the pool raised."""
    rollout, errors = run_pool(address, tls, connect_timeout_s=3, tls_server_name=name)
    return rollout[0] if rollout else str(errors[0])


def test_a_server_is_known_by_its_name_at_an_address_of_which_nobody_knew(authority, address):
    (env_output, _) = take_rollout(address, make_tls(authority, is_server=False))
    assert env_output[0].shape == (3, 1, 4, 84, 84)


def test_a_learner_of_another_run_is_refused(authority, address):
    certificate, key, _ = make_tls(certificates.make_authority(), is_server=False)
    error = take_rollout(address, [certificate, key, authority.root])
    assert "No environment server answered" in error


def test_a_server_cannot_act_as_a_learner(authority, address):
    error = take_rollout(address, make_tls(authority, is_server=True))
    assert "No environment server answered" in error


def test_a_learner_cannot_act_as_a_server(authority, address):
    error = take_rollout(address, make_tls(authority, is_server=False), "learner.torchbeast")
    assert "No environment server answered" in error
