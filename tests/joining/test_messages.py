import json

import pytest

from torchbeast.joining import messages
from torchbeast.joining.messages import (
    Announcement,
    Dial,
    Hello,
    Lease,
    Leave,
    MessageError,
    Place,
    Spaces,
    decode,
    encode,
)

HELLO = Hello("1.0", "host", 2, None)


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        HELLO._replace(games=("Pong", "my.module:Catch-v0")),
        Announcement((Spaces("Pong", (4, 84, 84), 18), Spaces("Mock", (4, 84, 84), 4))),
        Lease((Place(3, 1, "Pong", 8),), 5, 300.0, 5.0, 30.0),
        Dial(2, "ab"),
        Leave(),
    ],
)
def test_what_is_sent_is_received(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line[:-1]) == message


@pytest.mark.parametrize(
    "fields",
    [
        {"servers": "2"},
        {"servers": True},
        {"servers": -1},
        {"servers": 1.5},
        {"servers": 10**30},
        {"host": None},
        {"host": "two\nlines"},
        {"host": "\x1b[2J"},
        {"host": "x" * (messages.MAX_TEXT + 1)},
        {"games": "Pong"},
        {"games": [1]},
        {"games": ["Pong"] * (messages.MAX_ITEMS + 1)},
        {"more": 1},
    ],
)
def test_fields_that_are_not_what_they_should_be_are_refused(fields):
    content = {**json.loads(encode(HELLO))["hello"], **fields}
    with pytest.raises(MessageError):
        decode(json.dumps({"hello": content}).encode())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1",
        b"\xff\x00",
        b"[" * 10_000,
        b"[]",
        b"{}",
        b'{"hello": {}}',
        b'{"hello": 1}',
        b'{"eval": {}}',
        b'{"leave": {}, "ping": {}}',
    ],
)
def test_lines_that_are_no_message_are_refused(line):
    with pytest.raises(MessageError):
        decode(line)
