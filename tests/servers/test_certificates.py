"""The certificates of a run, shown by a real server and a real actor pool."""

import pytest

from tests.libtorchbeast.environments import mock_server
from tests.libtorchbeast.pools import T, run_pool
from torchbeast.servers import certificates


@pytest.fixture(scope="module")
def tls():
    return certificates.make_certificate()


@pytest.fixture(scope="module")
def address(tls):
    """The address of a server that has the run's certificate, and wants it of its clients."""
    with mock_server(tls) as port:
        yield f"localhost:{port}"


def take_rollout(address, tls, connect_timeout_s=60):
    """Returns a rollout, or what the pool raised."""
    options = {"connect_timeout_s": connect_timeout_s, "tls_server_name": certificates.SERVER_NAME}
    rollout, error = run_pool(address, tls, **options)
    return rollout[0] if rollout else str(error)


def test_a_server_is_known_by_its_name_at_an_address_of_which_nobody_knew(tls, address):
    (env_output, _) = take_rollout(address, tls)
    assert env_output[0].shape == (T + 1, 1, 4, 84, 84)


def test_a_learner_of_another_run_is_refused(tls, address):
    certificate, key, _ = certificates.make_certificate()
    error = take_rollout(address, [certificate, key, tls[2]], connect_timeout_s=3)
    assert "No environment server answered" in error
    assert not isinstance(take_rollout(address, tls), str)  # The server is there.
