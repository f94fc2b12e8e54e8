"""Hosts as users start them, at a gateway with an actor pool."""

import asyncio
import os
import shutil
import signal
import socket

import pytest

from tests.processes import all_end, wait_until
from torchbeast.joining.host import Host, HostConfig
from torchbeast.joining.messages import Lease, Offer, Place, encode

OFFER = Offer(("Mock",), "deepmind", "gray_stack", 84, 84, False)
LEASE = Lease((), 1, 300.0, 5.0, 30.0)


@pytest.fixture
def join(start):
    """Starts a host."""

    def run(port, name, *arguments):
        return start(
            "polybeast_env", f"--join=localhost:{port}", f"--host_name={name}", "--env=Mock",
            "--num_servers=1", *arguments,
        )  # fmt: skip

    return run


def names(learner, kind):
    return [event.host for event in learner.events if event.kind == kind]


def test_hosts_join_leave_die_and_come_back(make_learner, run_pool, steps_go_on, join, make_tls):
    tls = make_tls("localhost")
    learner = make_learner(tls_dir=tls)
    pool = run_pool(learner)
    a, b = (join(learner.port, name, f"--tls_dir={tls}") for name in "ab")
    wait_until(lambda: learner.sees("joined", 2))
    steps_go_on(pool)
    assert sum(pool.stream_counts()) <= pool.count()

    # It is cut off without a word: the other one goes on, and it comes back by itself.
    (place,) = (e.places[0] for e in learner.events if e.host == "a")
    os.kill(a.process.pid, signal.SIGSTOP)
    wait_until(lambda: learner.sees("lost"))
    assert names(learner, "lost") == ["a"]
    steps_go_on(pool, [1 - place])
    os.kill(a.process.pid, signal.SIGCONT)
    wait_until(lambda: learner.sees("joined", 3))
    steps_go_on(pool)

    # It dies, with all of its processes.
    family = a.family()
    a.process.kill()
    wait_until(lambda: learner.sees("lost", 2))
    all_end(family)

    # It leaves in order.
    family = b.family()
    b.process.send_signal(signal.SIGTERM)
    code, out, err = b.finish()
    assert (code, err) == (0, "")
    assert f"joined localhost:{learner.port}: 1 server with 2 environments of Mock" in out
    wait_until(lambda: learner.sees("left"))
    assert names(learner, "left") == ["b"]
    all_end(family)


def test_a_host_without_certificate_is_told_so(make_learner, join, make_tls):
    ours, others = (make_tls("localhost", side) for side in ("ours", "others"))
    learner = make_learner(tls_dir=ours)
    stranger = join(learner.port, "stranger", f"--tls_dir={others}")
    code, _, err = stranger.finish()
    assert code == 1
    assert "its certificate is refused" in err
    # One that takes the learner's certificate, but whose own the learner does not take.
    shutil.copy(f"{ours}/root.pem", f"{others}/root.pem")
    stranger = join(learner.port, "stranger", f"--tls_dir={others}")
    line = stranger.process.stdout.readline()
    assert "refuses this side's certificate" in line
    assert line.endswith("; trying again until it works\n")
    assert not learner.sees("joined")


def test_a_host_waits_for_its_learner_and_ends_when_it_is_refused(join):
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    host = join(port, "early")
    assert "trying again until it works" in host.process.stdout.readline()
    with socket.create_server(("localhost", port)) as listener:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as file:
            assert b'"hello"' in file.readline()
            file.write(b'{"refusal": {"reason": "we do not like you", "is_final": true}}\n')
            file.flush()
            code, _, err = host.finish()
    assert code == 1
    assert err == (
        f"polybeast_env: error: localhost:{port} refuses this host: we do not like you\n"
    )


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([OFFER._replace(games=("evil.module:Id",))], "offers games that this host does not serve"),
        (
            [OFFER, LEASE._replace(places=(Place(0, 0, "evil.module:Id", 1),))],
            "deals games that it did not offer",
        ),
    ],
)
def test_a_learner_cannot_make_a_host_import_a_module(answers, reason):
    async def run():
        said = asyncio.Queue()

        async def answer(reader, writer):
            for message in answers:
                await reader.readline()
                writer.write(encode(message))
            await reader.read()
            writer.close()

        async with await asyncio.start_server(answer, "localhost", 0) as server:
            port = server.sockets[0].getsockname()[1]
            config = HostConfig(f"localhost:{port}", "1", "h", 1, None, None, False)
            running = asyncio.ensure_future(Host(config, said.put_nowait).run())
            assert reason in await asyncio.wait_for(said.get(), 60)
            running.cancel()

    asyncio.run(run())


def test_hosts_need_encryption_beyond_this_machine(start):
    code, _, err = start("polybeast_env", "--join=10.0.0.1:4000").finish()
    assert code == 2
    assert "--join 10.0.0.1:4000 is beyond this machine: it needs --tls_dir" in err
