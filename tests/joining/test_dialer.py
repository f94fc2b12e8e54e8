import asyncio
import shutil
import socket
import time

import pytest

from tests.joining.conftest import TIMING
from tests.processes import wait_until
from torchbeast.core.types import UsageError
from torchbeast.joining import dialer
from torchbeast.joining.dialer import Dialer, Entry, parse_addresses, read_addresses


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:4000", "line 1: a line is HOST:PORT GAME"),
        ("a:4000 Pong\n\na:4001 Tennis # no\n", "line 3: Tennis is none of the games"),
        ("a:4000 Pong\na:4000 Pong", "line 2: a:4000 is there twice"),
    ],
)
def test_lines_that_cannot_be_used_are_named(text, reason):
    with pytest.raises(UsageError, match=reason):
        parse_addresses(text, ["Pong"])


def test_addresses_are_checked_before_the_run(tmp_path):
    path = tmp_path / "servers"
    with pytest.raises(UsageError, match=r"--env_addresses: .*No such file"):
        read_addresses(str(path), ["Pong"], None)
    path.write_text("10.0.0.1:4000 Pong")
    with pytest.raises(UsageError, match="beyond this machine: it needs --tls_dir"):
        read_addresses(str(path), ["Pong"], None)
    path.write_text("localhost:x Pong")
    with pytest.raises(UsageError, match="must be HOST:PORT"):
        read_addresses(str(path), ["Pong"], None)


def test_a_vanished_machine_is_noticed_within_a_minute():
    with socket.socket() as connection:
        dialer.keep_alive(connection)
        probes = dialer.KEEPALIVE_INTERVAL_S * dialer.KEEPALIVE_PROBES
        assert dialer.KEEPALIVE_IDLE_S + probes < 60
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_servers_of_a_file_come_and_go_with_its_lines(
    make_learner, run_pool, steps_go_on, start, make_tls, tmp_path
):
    tls = make_tls("localhost")
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    path = tmp_path / "servers"
    path.write_text("# none yet\n")
    server = start(
        "polybeast_env", "--env=Mock", "--num_servers=1", f"--pipes_basename=localhost:{port}",
        f"--tls_dir={tls}",
    )  # fmt: skip
    learner = make_learner(tls_dir=tls, num_places=1, env_addresses=str(path))
    pool = run_pool(learner)
    path.write_text(f"localhost:{port} Mock\n")
    wait_until(lambda: learner.sees("joined"))
    assert learner.events[0].host == f"localhost:{port}"
    steps_go_on(pool)
    path.write_text("nonsense\n")  # What was there stays.
    wait_until(lambda: learner.sees("refused"))
    steps_go_on(pool)
    path.write_text("")
    wait_until(lambda: learner.sees("left"))
    path.write_text(f"localhost:{port} Mock\n")
    wait_until(lambda: learner.sees("joined", 2))
    steps_go_on(pool)
    refused = len([e for e in learner.events if e.kind == "refused"])
    server.process.terminate()
    wait_until(lambda: learner.sees("lost"))
    time.sleep(1)  # Several looks at a server that is away, which is nothing to speak of.
    assert not learner.sees("refused", refused + 1)


def test_a_server_that_refuses_this_sides_certificate_is_named_and_gets_no_place(
    make_learner, start, make_tls, tmp_path
):
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    start(
        "polybeast_env", "--env=Mock", "--num_servers=1", f"--pipes_basename=localhost:{port}",
        f"--tls_dir={make_tls('localhost', 'theirs')}",
    )  # fmt: skip
    # The learner trusts the server, whose root does not know the learner.
    ours = make_tls("localhost", "ours")
    shutil.copy(tmp_path / "theirs" / "root.pem", ours)
    path = tmp_path / "servers"
    path.write_text(f"localhost:{port} Mock\n")
    learner = make_learner(tls_dir=ours, num_places=1, env_addresses=str(path))
    wait_until(lambda: learner.sees("refused"))
    assert "certificate" in learner.events[0].reason
    assert not learner.sees("joined")


def test_a_server_that_hangs_up_without_a_word_gets_no_place(make_learner, tmp_path):
    with socket.create_server(("localhost", 0)) as listener:
        path = tmp_path / "servers"
        path.write_text(f"localhost:{listener.getsockname()[1]} Mock\n")
        learner = make_learner(num_places=1, env_addresses=str(path))
        for _ in range(4):  # The fourth comes when the third has been judged.
            listener.accept()[0].close()
        assert learner.sees("refused")
        assert "hangs up" in learner.events[0].reason
        assert not learner.sees("refused", 2)  # Said once.
        assert not learner.sees("joined")


def test_a_name_that_is_none_is_reported(make_learner, make_tls, tmp_path):
    path = tmp_path / "servers"
    path.write_text("localhost..:4000 Mock\n")
    learner = make_learner(tls_dir=make_tls("localhost"), num_places=1, env_addresses=str(path))
    wait_until(lambda: learner.sees("refused"))
    assert learner.events[0].host == "localhost..:4000"


class LostTransport(asyncio.Transport):
    """What Python 3.10 makes of an encrypted connection that is lost at once: it has no socket."""

    def is_closing(self):
        return False


def test_a_server_whose_connection_is_lost_at_once_is_reported(monkeypatch):
    async def connect(*_):
        return LostTransport()

    async def run():
        reports = asyncio.Queue()
        server = Dialer(
            lambda: [Entry("localhost:4000", 0)], None, "unix:/tmp/unused", TIMING,
            lambda _: None, lambda _: None, lambda *report: reports.put_nowait(report),
        )  # fmt: skip
        running = asyncio.ensure_future(server.run())
        kind, host, _, reason = await asyncio.wait_for(reports.get(), 10)
        assert (kind, host) == ("refused", "localhost:4000")
        assert "hangs up" in reason
        running.cancel()

    monkeypatch.setattr(dialer, "connect", connect)
    asyncio.run(run())
