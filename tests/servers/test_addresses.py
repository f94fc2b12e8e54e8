import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from torchbeast.core.types import UsageError
from torchbeast.servers.addresses import check_basenames, load_tls, server_addresses
from torchbeast.servers.certificates import make_certificate


def test_each_host_has_an_equal_part_of_the_servers():
    assert server_addresses(["unix:/tmp/a"], 2) == ["unix:/tmp/a.0", "unix:/tmp/a.1"]
    found = server_addresses(["a:4000", "b:5000"], 4)
    assert found == ["a:4000", "a:4001", "b:5000", "b:5001"]
    check_basenames("a:4000,b:5000", 4, 2, "tls")
    check_basenames("a:1,b:65534", 4, 2, "tls")


@pytest.mark.parametrize(
    ("basenames", "num_servers", "message"),
    [
        ("a:4000,a:4000", 4, "names a host twice"),
        ("a:4000,b:4000", 2, "2 hosts with all of 2 games need a multiple of 4"),
        ("a:4000,b", 4, "must be unix:/path or host:port, not b"),
        ("a:4000,b:65535", 4, "b:65535: the ports of 2 servers"),
        (":4000", 2, "neither unix:PATH nor HOST:PORT: :4001"),
        ("unix:/tmp/" + "a" * 200, 2, "Socket path of 207 characters"),
        ("unix:/tmp/a#b", 2, "that gRPC may take for another one"),
        ("unix:/nowhere/a", 2, "no directory /nowhere"),
    ],
)
def test_hosts_that_cannot_be_are_refused(basenames, num_servers, message):
    with pytest.raises(UsageError, match=message):
        check_basenames(basenames, num_servers, 2, "tls")


def test_hosts_beyond_this_machine_need_certificates():
    with pytest.raises(UsageError, match="a:4000 is beyond this machine: it needs --tls_dir"):
        check_basenames("a:4000", 2, 2, None)
    check_basenames("127.0.0.1:4000", 2, 2, None)


def test_certificate_and_key_must_belong_together(tmp_path):
    for name, text in zip(("cert", "key", "root"), make_certificate(), strict=True):
        (tmp_path / f"{name}.pem").write_text(text)
    load_tls(str(tmp_path))
    key = load_pem_private_key((tmp_path / "key.pem").read_bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a"))
    for name, text in (
        ("key", make_certificate()[1]),
        ("key", encrypted.decode()),  # Nobody is asked for the pass phrase.
        ("root", "no certificate"),
    ):
        before = (tmp_path / f"{name}.pem").read_text()
        (tmp_path / f"{name}.pem").write_text(text)
        with pytest.raises(UsageError, match="--tls_dir: "):
            load_tls(str(tmp_path))
        (tmp_path / f"{name}.pem").write_text(before)
