"""Streams that could leave the machine: encrypted, and certified on both sides."""

import multiprocessing
import shutil
import socket
import subprocess
import threading

import pytest
import torch

from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher, Server
from torchbeast.envs.mock import Mock

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def make_certificates(directory):
    """A root and a certificate of its for localhost; returns (certificate, key, root)."""
    directory.mkdir()

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    subject = ["-subj", "/CN=localhost"]
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "root.key",
        "-out", "root.pem", "-days", "2", "-subj", "/CN=root",
    )  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "csr", *subject)
    (directory / "ext").write_text("subjectAltName=DNS:localhost")
    openssl(
        "x509", "-req", "-in", "csr", "-CA", "root.pem", "-CAkey", "root.key",
        "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "ext",
    )  # fmt: skip
    return [(directory / name).read_text() for name in ("cert.pem", "key.pem", "root.pem")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(address, tls):
    Server(Mock, address, 0, tls).run()


@pytest.fixture
def server(tmp_path):
    tls = make_certificates(tmp_path / "ours")
    address = f"localhost:{free_port()}"
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(address, tls), daemon=True
    )
    process.start()
    yield address, tls
    process.kill()
    process.join()


def run_pool(address, tls):
    """Takes one rollout; returns it and what the pool raised."""
    queue, batcher = BatchingQueue(batch_dim=1, maximum_batch_size=1), DynamicBatcher()
    pool = ActorPool(2, queue, batcher, [address], (), connect_timeout_s=4, tls=tls)
    errors = []

    def run():
        try:
            pool.run()
        except RuntimeError as error:
            errors.append(error)
            queue.close()

    def infer():
        for batch in batcher:
            batch.get_inputs()
            batch.set_outputs(((torch.zeros(1, 1, 1, dtype=torch.int64),), ()))

    threads = [threading.Thread(target=f, daemon=True) for f in (run, infer)]
    for thread in threads:
        thread.start()
    rollout = next(queue, None)
    batcher.close()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
    return rollout, errors


def test_both_sides_show_certificates(server):
    address, tls = server
    rollout, errors = run_pool(address, tls)
    assert not errors
    assert rollout[0][0][0].shape == (3, 1, 4, 84, 84)


def test_strangers_are_refused(server, tmp_path):
    address, _ = server
    rollout, errors = run_pool(address, make_certificates(tmp_path / "others"))
    assert rollout is None
    assert "No environment server answered" in str(errors[0])


def test_plain_clients_are_refused(server):
    address, _ = server
    rollout, errors = run_pool(address, None)
    assert rollout is None
    assert errors
