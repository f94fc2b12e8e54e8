"""The certificate of one run, for connections between its learner and servers anywhere."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Every server's name: nobody knows its address before it listens.
SERVER_NAME = "server.torchbeast"
# The key exists in memory only, while the run lasts. So the end of validity protects nothing.
VALIDITY = datetime.timedelta(days=3650)
# Clocks of two machines may differ by less.
CLOCK_TOLERANCE = datetime.timedelta(days=1)


def make_certificate() -> list[str]:
    """Makes a certificate with which all processes of a run know each other, and nobody else.

    Returns:
        PEM texts: certificate, key and root. The certificate has signed itself, so it is the root.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "TorchBeast run")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    key_text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    return [text, key_text, text]
