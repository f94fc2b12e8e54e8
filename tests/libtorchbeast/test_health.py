"""Servers answer grpc.health.v1.Health, as load balancers and Kubernetes ask."""

import multiprocessing
import os

import grpc
import pytest

from tests.libtorchbeast.environments import serve_mock
from tests.processes import wait_until


@pytest.fixture
def channel(tmp_path):
    process = multiprocessing.get_context("spawn").Process(
        target=serve_mock, args=(f"unix:{tmp_path}/s",), daemon=True
    )
    process.start()
    wait_until(lambda: os.path.exists(tmp_path / "s"))
    with grpc.insecure_channel(f"unix:{tmp_path}/s") as connection:
        yield connection
    process.kill()
    process.join()


def encode_request(service):
    """A HealthCheckRequest, whose field 1 is a text of less than 128 bytes."""
    return bytes([0x0A, len(service)]) + service.encode()


def test_a_server_says_that_it_serves(channel):
    def ask(request, method="Check"):
        call = channel.unary_unary(f"/grpc.health.v1.Health/{method}")
        return call(request, timeout=60, wait_for_ready=True)

    # The first byte is the tag of field 1, the second one the status SERVING.
    for _ in range(2):
        for request in (
            b"",
            encode_request(""),
            encode_request("torchbeast.rpcenv.EnvironmentService"),
        ):
            assert ask(request) == b"\x08\x01"
    for request, method, code in [
        (encode_request("another.Service"), "Check", grpc.StatusCode.NOT_FOUND),
        (b"\xff\xff", "Check", grpc.StatusCode.NOT_FOUND),
        (b"", "Watch", grpc.StatusCode.UNIMPLEMENTED),
    ]:
        with pytest.raises(grpc.RpcError) as error:
            ask(request, method)
        assert error.value.code() == code
    assert ask(b"") == b"\x08\x01"
