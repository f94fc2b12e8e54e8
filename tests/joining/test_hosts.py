"""Hosts as users start them, at a gateway with an actor pool."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import threading

import pytest

from tests.processes import all_end, nothing_left, wait_until
from torchbeast import polybeast_env
from torchbeast.core.types import RunError, UsageError
from torchbeast.joining.host import Host, HostConfig
from torchbeast.joining.messages import Lease, Offer, Place, Refusal, encode
from torchbeast.joining.process import listen

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


def run_host(port, tls_dir=None, games=None):
    """Runs a host in this process until it says something, and returns that, or raises."""

    async def run():
        said = asyncio.Queue()
        config = HostConfig(f"localhost:{port}", "1", "h", 1, games, tls_dir)
        running = asyncio.ensure_future(Host(config, said.put_nowait).run())
        saying = asyncio.ensure_future(said.get())
        done, _ = await asyncio.wait(
            {running, saying}, timeout=60, return_when=asyncio.FIRST_COMPLETED
        )
        running.cancel()
        saying.cancel()
        return done.pop().result()

    return asyncio.run(run())


def test_a_host_without_certificate_is_told_so(make_learner, make_tls):
    ours, others = (make_tls("localhost", side) for side in ("ours", "others"))
    learner = make_learner(tls_dir=ours)
    with pytest.raises(RunError, match="its certificate is refused"):
        run_host(learner.port, others)
    # One that takes the learner's certificate, but whose own the learner does not take.
    shutil.copy(f"{ours}/root.pem", f"{others}/root.pem")
    said = run_host(learner.port, others)
    assert "refuses this side's certificate" in said
    assert said.endswith("; trying again until it works")
    assert not learner.sees("joined")


@contextlib.contextmanager
def answering(*messages):
    """A learner that answers whatever it is told; yields its port."""

    def answer():
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as file:
            for message in messages:
                file.readline()
                file.write(encode(message))
                file.flush()
            file.read()

    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_a_host_waits_for_its_learner_and_ends_when_it_is_refused():
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    assert run_host(port).endswith("; trying again until it works")
    with answering(Refusal("not now", is_final=False)) as port:
        said = run_host(port)
        assert said == f"localhost:{port} refuses this host: not now; trying again until it works"
    with (
        answering(Refusal("never", is_final=True)) as port,
        pytest.raises(RunError, match=f"localhost:{port} refuses this host: never"),
    ):
        run_host(port)


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
    with answering(*answers) as port:
        assert reason in run_host(port)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([OFFER._replace(frame_height=0)], "it asks for frames of 0 x 84 pixels"),
        ([OFFER._replace(frame_width=10**9)], "it asks for frames of 84 x 1000000000 pixels"),
        ([OFFER, LEASE], "it deals 0 places, this host offered 1 server"),
        (
            [OFFER, LEASE._replace(places=tuple(Place(i, 0, "Mock", 1) for i in range(2)))],
            "it deals 2 places, this host offered 1 server",
        ),
    ],
)
def test_a_learner_cannot_have_more_than_the_host_offers(answers, reason):
    with answering(*answers) as port:
        assert reason in run_host(port, games=("Mock",))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_host_while_it_waits_for_an_environment(
    start, tmp_path, monkeypatch, signum
):
    monkeypatch.setenv("HANGING", str(tmp_path / "hanging"))
    game = "tests.hostile:HangsWhenMade-v0"
    with answering(OFFER._replace(games=(game,))) as port:
        run = start("polybeast_env", f"--join=localhost:{port}", f"--env={game}")
        wait_until((tmp_path / "hanging").exists)
        members = run.family()
        run.process.send_signal(signum)
        assert run.finish(timeout=60) == (-signum, "", "")
        nothing_left(run, members, timeout=60)


@pytest.mark.parametrize("host", ["learner..", "a" * 64 + ".org"])
def test_a_mistyped_name_is_misuse(assert_misuse, tmp_path, host):
    assert_misuse(
        polybeast_env.main,
        [f"--join={host}:4000", f"--tls_dir={tmp_path}"],
        f"--join must be HOST:PORT, not {host}:4000",
    )
    with pytest.raises(UsageError, match="--join_address must be HOST:PORT, not"):
        listen(f"{host}:4000", str(tmp_path))


def test_hosts_need_encryption_beyond_this_machine(assert_misuse):
    assert_misuse(
        polybeast_env.main,
        ["--join=10.0.0.1:4000"],
        "--join 10.0.0.1:4000 is beyond this machine: it needs --tls_dir",
    )
