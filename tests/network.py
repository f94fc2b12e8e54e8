"""Ports and certificates of this machine."""

import contextlib
import random
import socket
import subprocess

from tests.conftest import ROOT


def free_port():
    """A port on which nobody listens, below those that the system gives to whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def is_open(port):
    """Whether somebody listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("localhost", port)) == 0


def make_certificates(directory):
    """A root and a certificate of its for localhost; returns (certificate, key, root)."""
    script = ROOT / "deploy" / "make_certificates.sh"
    subprocess.run([script, directory, "localhost"], check=True)
    return [(directory / name).read_text() for name in ("cert.pem", "key.pem", "root.pem")]
