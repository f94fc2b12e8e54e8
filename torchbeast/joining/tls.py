"""Encryption of the connections between a learner and its hosts."""

from __future__ import annotations

import ssl
from pathlib import Path

from torchbeast.core.types import UsageError
from torchbeast.runtime.servers import is_local, load_tls


def make_tls_context(tls_dir: str | None, *, is_server: bool) -> ssl.SSLContext | None:
    """Returns the settings of one side. Both sides must show a certificate.

    Args:
        tls_dir: the directory of cert.pem, key.pem and root.pem; None for no encryption.
        is_server: whether it is the side that accepts connections.

    Raises:
        UsageError: a file cannot be read or used.
    """
    if tls_dir is None:
        return None
    load_tls(tls_dir)  # Names a file that is missing, which ssl does not.
    side = ssl.Purpose.CLIENT_AUTH if is_server else ssl.Purpose.SERVER_AUTH
    directory = Path(tls_dir)
    try:
        context = ssl.create_default_context(side, cafile=str(directory / "root.pem"))
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        raise UsageError(f"--tls_dir: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def split_address(flag: str, address: str, tls_dir: str | None) -> tuple[str, int]:
    """Splits ``HOST:PORT``.

    Args:
        flag: the flag that has the address, for messages.
        address: the address.
        tls_dir: None if the connection will not be encrypted.

    Returns:
        Host and port; of ``[::1]:4000`` the host is ``::1``.

    Raises:
        UsageError: it is no such address, or encryption is needed.

    >>> split_address("--join", "[::1]:4000", None)
    ('::1', 4000)
    """
    try:
        local = is_local(address) and not address.startswith("unix:")
        host, _, port = address.rpartition(":")
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number < 2**16:
        raise UsageError(f"{flag} must be HOST:PORT, not {address}")
    if not local and tls_dir is None:
        raise UsageError(f"{flag} {address} is beyond this machine: it needs --tls_dir")
    return host.removeprefix("[").removesuffix("]"), number


def split_flag(flag: str, address: str, tls_dir: str | None) -> tuple[str, int]:
    """Splits the ``HOST:PORT`` that a flag has: as :func:`split_address`.

    Raises:
        UsageError: besides, the host's name cannot be one: it has an empty part or a long one.
    """
    host, port = split_address(flag, address, tls_dir)
    try:
        host.encode("idna")  # As every connection does.
    except UnicodeError as error:
        raise UsageError(f"{flag} must be HOST:PORT, not {address}") from error
    return host, port
