"""Addresses of environment servers, and what they need: sockets, certificates, the C++ part."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from torchbeast.core.types import UsageError
from torchbeast.runtime.text import counted

MAX_PORT = 65535
# In a checkout Python takes the sources there, also beside an installed package.
REBUILD = "run make build or pip install --editable ."


def server_address(basename: str, index: int) -> str:
    """Returns the address of server ``index``.

    >>> server_address("unix:/tmp/polybeast", 2), server_address("localhost:4000", 2)
    ('unix:/tmp/polybeast.2', 'localhost:4002')
    """
    if basename.startswith("unix:"):
        return f"{basename}.{index}"
    host, _, port = basename.rpartition(":")
    return f"{host}:{int(port) + index}"


def server_addresses(basenames: Sequence[str], num_servers: int) -> list[str]:
    """Returns the addresses of all servers, those of the first base name first.

    Args:
        basenames: of one or several hosts.
        num_servers: servers of all of them, equally many of each.

    >>> server_addresses(["hosta:4000", "hostb:4000"], 4)
    ['hosta:4000', 'hosta:4001', 'hostb:4000', 'hostb:4001']
    """
    per_host = num_servers // len(basenames)
    return [server_address(name, index) for name in basenames for index in range(per_host)]


def check_basenames(basenames: str, num_servers: int, num_tasks: int, tls_dir: str | None) -> None:
    """Raises UsageError if servers cannot have these base names.

    Args:
        basenames: of one or several hosts, separated by commas.
        num_servers: servers of all base names.
        num_tasks: games that they serve.
        tls_dir: None if connections will not be encrypted: all servers are on this machine then.
    """
    names = basenames.split(",")
    if len(set(names)) < len(names):
        raise UsageError(f"--pipes_basename names a host twice: {basenames}")
    if len(names) > 1 and num_servers % (len(names) * num_tasks) != 0:
        raise UsageError(
            f"--num_servers {num_servers}: {counted(len(names), 'host')} with all of "
            f"{counted(num_tasks, 'game')} need a multiple of {len(names) * num_tasks}"
        )
    for name in names:
        check_basename(name, num_servers // len(names), tls_dir)


def check_basename(basename: str, num_servers: int, tls_dir: str | None) -> None:
    """Raises UsageError for a ``--pipes_basename`` that cannot work."""
    from libtorchbeast import is_local

    try:
        last = server_address(basename, num_servers - 1)
    except ValueError:
        raise UsageError(
            f"--pipes_basename must be unix:/path or host:port, not {basename}"
        ) from None
    try:
        local = is_local(last)
    except ValueError as error:
        raise UsageError(f"--pipes_basename: {error}") from None
    if last.startswith("unix:"):
        directory = os.path.dirname(last.removeprefix("unix:"))
        if not os.path.isdir(directory or "."):
            raise UsageError(f"--pipes_basename: no directory {directory}")
    elif not num_servers <= int(last.rpartition(":")[2]) <= MAX_PORT:
        raise UsageError(
            f"--pipes_basename {basename}: the ports of {counted(num_servers, 'server')} must be "
            f"from 1 to {MAX_PORT}"
        )
    elif tls_dir is None and not local:
        raise UsageError(f"--pipes_basename {basename} is beyond this machine: it needs --tls_dir")


def check_compiled() -> None:
    """Raises UsageError where the extension modules are missing or cannot be loaded."""
    try:
        import libtorchbeast  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"PolyBeast's C++ part is not compiled: {REBUILD}, or install the wheel that make "
            "wheel builds (python -m torchbeast.monobeast works without it)"
        ) from error
    except ImportError as error:
        raise UsageError(f"PolyBeast's C++ part cannot be loaded ({error}): {REBUILD}") from error


def load_tls(tls_dir: str | None) -> list[str] | None:
    """Loads the files of ``--tls_dir``. Raises UsageError unless they are a certificate, its key
    and a root.
    """
    if tls_dir is None:
        return None
    cert, key, root = paths = [Path(tls_dir) / f"{name}.pem" for name in ("cert", "key", "root")]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        texts = [path.read_text() for path in paths]  # Names a missing file, which ssl does not.
        context.load_verify_locations(root)
        context.load_cert_chain(cert, key, password="")  # Else OpenSSL asks for one.
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        raise UsageError(f"--tls_dir: {error}") from error
    return texts
