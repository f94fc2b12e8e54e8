import logging

from torchbeast.joining.config import HostEvent
from torchbeast.records.snapshot import HostSnapshot
from torchbeast.runtime.allocation import ServerLoad
from torchbeast.training.hosts import Hosts

LOADS = (ServerLoad(0, 4), ServerLoad(1, 3), ServerLoad(0, 2))


def test_every_step_of_a_place_belongs_to_the_host_that_filled_it_last(caplog):
    caplog.set_level(logging.INFO)
    hosts = Hosts(("PongNoFrameskip-v4", "my.module:Catch-v0"), LOADS)
    assert hosts.snapshot([0, 0, 0]) == ()
    hosts.note(HostEvent("joined", "a", (0, 1), ""), [0, 0, 0])
    assert hosts.snapshot([10, 20, 0]) == (HostSnapshot("a", 7, 30),)
    hosts.note(HostEvent("lost", "a", (0, 1), "no word for 30 s"), [10, 30, 0])
    # What was under way when it was lost.
    assert hosts.snapshot([20, 30, 0]) == (HostSnapshot("a", 0, 50),)
    hosts.note(HostEvent("joined", "b", (1, 2), ""), [20, 30, 0])
    hosts.note(HostEvent("joined", "a", (0,), ""), [20, 50, 5])
    counts = [120, 1050, 10005]
    assert hosts.snapshot(counts) == (HostSnapshot("a", 4, 150), HostSnapshot("b", 5, 11025))
    assert sum(host.steps for host in hosts.snapshot(counts)) == sum(counts)
    assert caplog.messages == [
        "Host a joined (7 environments of Pong, Catch; 2 of 3 places filled)",
        "Host a is lost: no word for 30 s (7 environments of Pong, Catch; 0 of 3 places filled)",
        "Host b joined (5 environments of Catch, Pong; 2 of 3 places filled)",
        "Host a joined (4 environments of Pong; 3 of 3 places filled)",
    ]


def test_refused_hosts_are_warned_of(caplog):
    Hosts(("Mock",), LOADS[:1]).note(HostEvent("refused", "c", (), "it has version 0"), [0])
    assert caplog.messages == ["Host c is refused: it has version 0"]
