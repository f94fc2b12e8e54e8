"""Certificates of one run, for connections between its learner and servers anywhere.

The learner is the authority. A private key never leaves the process that made it: a server sends a
request for a certificate, and gets it signed.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Every server's name: nobody knows its address before it listens.
SERVER_NAME = "server.torchbeast"
# The keys exist in memory only, while the run lasts. So the end of validity protects nothing.
VALIDITY = datetime.timedelta(days=3650)
# Clocks of two machines may differ by less.
CLOCK_TOLERANCE = datetime.timedelta(days=1)


class Authority(NamedTuple):
    """Who signs the certificates of a run. PEM texts."""

    key: str
    root: str


def make_authority() -> Authority:
    """Makes the authority of a run."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("TorchBeast run")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    root = (
        _builder(name, name, key.public_key())
        .add_extension(constraints, critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_key_text(key), _text(root))


def make_request() -> tuple[str, str]:
    """Makes a private key and a request for its certificate. PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name("TorchBeast"))
    return _key_text(key), _text(builder.sign(key, hashes.SHA256()))


def sign(authority: Authority, request: str, *, is_server: bool) -> str:
    """Returns the certificate for a request of :func:`make_request`: a server's or a learner's."""
    key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    root = x509.load_pem_x509_certificate(authority.root.encode())
    wanted = x509.load_pem_x509_csr(request.encode())
    usage = ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH
    name = SERVER_NAME if is_server else "learner.torchbeast"
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    subject = x509.SubjectKeyIdentifier.from_public_key(wanted.public_key())
    certificate = (
        _builder(wanted.subject, root.subject, wanted.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(subject, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _text(certificate)


def _builder(subject: x509.Name, issuer: x509.Name, public_key: Any) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + VALIDITY)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _text(signed: x509.Certificate | x509.CertificateSigningRequest) -> str:
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
