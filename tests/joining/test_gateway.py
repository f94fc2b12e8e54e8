"""The gateway as a process: what it grants, and what it refuses."""

import contextlib
import os
import resource
import socket
import sys
import time

import psutil
import pytest

from tests.joining.conftest import HELLO, SPACES
from tests.processes import wait_until
from torchbeast.core.types import RunError, UsageError
from torchbeast.joining.admission import Bounds
from torchbeast.joining.messages import Data, Lease, Leave, Offer, Ping, Ready, Refusal
from torchbeast.joining.process import listen


def take_places(client, hello=HELLO):
    """Gets a lease."""
    client.send(hello)
    assert isinstance(client.receive(), Offer)
    client.send(SPACES)
    lease = client.receive()
    assert isinstance(lease, Lease)
    return lease


def test_hosts_are_refused_by_name_of_what_is_wrong(make_learner):
    learner = make_learner()
    for fields, reason in [
        ({"version": "0.1"}, f"it has version 0.1, the learner {HELLO.version}"),
        ({"games": ("Pong", "a:B")}, "it serves Pong, a:B, the learner plays Mock"),
        ({"games": ("x" * 300,)}, f"it serves {'x' * 287}..."),
    ]:
        client = learner.connect()
        client.send(HELLO._replace(**fields))
        assert client.receive() == Refusal(reason, is_final=True)
        assert client.is_closed()
    (spaces,) = SPACES.spaces
    for changed, reason in [
        (spaces._replace(num_actions=18), "Mock has observations [4, 84, 84] and 18 actions there"),
        (spaces._replace(observation_shape=(1, 9)), "Mock has observations [1, 9] and 4 actions"),
        (spaces._replace(game="Pong"), "it does not describe Mock"),
    ]:
        client = learner.connect()
        client.send(HELLO, SPACES._replace(spaces=(changed,)))
        assert isinstance(client.receive(), Offer)
        refusal = client.receive()
        assert refusal.is_final
        assert reason in refusal.reason
    wait_until(lambda: learner.sees("refused", 6))


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="Reads /proc, calls prlimit")


@pytest.fixture
def few_files():
    """Gives this process a soft limit of 150 open files more; those that it starts inherit it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 150, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@needs_linux
def test_a_host_may_have_more_places_than_a_process_has_files_at_first(make_learner, few_files):
    learner = make_learner(num_places=250)
    client = learner.connect()
    lease = take_places(client, HELLO._replace(servers=250))
    client.send(Ready())
    wait_until(lambda: learner.sees("joined"))
    assert len(learner.events[0].places) == len(lease.places) == 250


@needs_linux
def test_places_for_which_no_files_are_left_are_said(make_learner):
    before = psutil.Process().children()
    learner = make_learner(num_places=100)
    (gateway,) = set(psutil.Process().children()) - set(before)
    client = learner.connect()
    take_places(client, HELLO._replace(servers=100))
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (50, 50))
    client.send(Ready())
    wait_until(lambda: learner.sees("refused"))
    assert learner.events[0].reason == "its places cannot be opened: Too many open files"


def test_a_refused_host_that_tries_again_is_reported_once(make_learner):
    learner = make_learner()
    for version in ("0.1", "0.1", "0.1", "0.2"):
        client = learner.connect()
        client.send(HELLO._replace(version=version))
        assert isinstance(client.receive(), Refusal)
    wait_until(lambda: learner.sees("refused", 2))
    assert ["0.1" in event.reason for event in learner.events] == [True, False]


def test_hosts_beyond_the_places_are_refused_until_one_leaves(make_learner):
    learner = make_learner()
    first, second, third = (learner.connect() for _ in range(3))
    assert take_places(first, HELLO._replace(servers=9)).places[1].number == 1
    second.send(HELLO)
    refusal = second.receive()
    assert refusal == Refusal("all 2 places of its games are filled", is_final=False)
    first.send(Ready(), Leave())
    wait_until(lambda: learner.sees("left"))
    assert take_places(third).places[0].number == 0


def test_what_is_no_host_is_cut_off(make_learner):
    learner = make_learner(bounds=Bounds(burst=12, per_second=0.01))
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + os.urandom(64) + b"\n"):
        client = learner.connect()
        client.socket.sendall(junk)
        assert client.is_closed()
    client = learner.connect()
    client.send_changed(HELLO, servers="many")
    assert client.is_closed()
    client = learner.connect()
    client.send(Data("a token that nobody gave"))
    assert client.is_closed()
    # One that sends a byte now and then has as little time as one that sends nothing.
    slow, start = learner.connect(), time.monotonic()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while time.monotonic() - start < 60:
            slow.socket.sendall(b"{")
            time.sleep(0.05)
    assert time.monotonic() - start < 60
    # The learner still takes hosts in, and hears no more of this address than it may.
    assert take_places(learner.connect())
    for _ in range(6):
        learner.connect().socket.sendall(b"junk\n")
    late = learner.connect()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        late.send(HELLO)
        assert late.receive() is None
    assert not learner.sees("joined")


def test_a_host_that_breaks_the_protocol_loses_its_places(make_learner):
    learner = make_learner()
    client = learner.connect()
    take_places(client)
    client.send(Ready())
    wait_until(lambda: learner.sees("joined"))
    client.send(HELLO)
    wait_until(lambda: learner.sees("lost"))
    assert learner.events[-1].reason == "it broke the protocol: an unexpected message"
    assert learner.events[-1].places == (0,)
    assert not os.path.exists(learner.basename.removeprefix("unix:") + ".0")


def test_a_host_that_says_nothing_loses_its_places(make_learner):
    learner = make_learner()
    client, talking = learner.connect(), learner.connect()
    take_places(client)
    take_places(talking)
    for one in (client, talking):
        one.send(Ready())
    start = time.monotonic()
    while not learner.sees("lost"):
        talking.send(Ping())
        time.sleep(0.1)
        assert time.monotonic() - start < 60
    assert [event.places for event in learner.events if event.kind == "lost"] == [(0,)]
    assert learner.events[-1].reason == "no word for 10 s"


def test_hosts_hear_that_the_learner_ends(make_learner):
    learner = make_learner()
    client = learner.connect()
    take_places(client)
    learner.process.__exit__()
    messages = []
    while (message := client.receive()) is not None:
        messages.append(message)
    assert messages[-1] == Leave()
    with pytest.raises(RunError, match="the process that hosts connect to ended"):
        learner.process.events()


def test_addresses_that_cannot_be_used_are_named():
    for address, reason in [
        ("localhost", "--join_address must be HOST:PORT, not localhost"),
        ("unix:/tmp/a", "--join_address must be HOST:PORT, not unix:/tmp/a"),
        ("0.0.0.0:4000", "--join_address 0.0.0.0:4000 is beyond this machine: it needs --tls_dir"),
    ]:
        with pytest.raises(UsageError, match=reason.replace(".", r"\.")):
            listen(address, None)
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--join_address localhost:{port}: "):
            listen(f"localhost:{port}", None)
