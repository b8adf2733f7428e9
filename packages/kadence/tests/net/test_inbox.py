"""Frames out of a stream: whole, byte by byte, many at once, with junk, cut short."""

from __future__ import annotations

import mmap
import random
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kadence.connection.request import Request
from kadence.errors import DisconnectedError, MalformedMessageError
from kadence.net.arena import ArenaPool
from kadence.net.intake import Frame, Inbox
from kadence.net.sockets import new_poller, stream_of


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


class Wire:
    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self._keep = ours
        ours.setblocking(False)
        self.pool = ArenaPool(1 << 24)
        self.lent = False
        self.fetch = Request(None, 1, 0)
        self.poller, self._wakeup = new_poller()
        intake = stream_of(ours).intake
        self.poller.watch(ours.fileno(), selectors.EVENT_READ, self, intake)
        self.inbox = Inbox(intake, self.pool, self.fetch_due, 1_000_000, "broker 1 (kafka:9092)")

    def fetch_due(self) -> Request | None:
        return self.fetch if self.lent else None

    def next(self) -> Frame | None:
        if (frame := self.inbox.next_frame()) is None:
            self.poller.wait(0)
            frame = self.inbox.next_frame()
        return frame

    def until_frame(self) -> None:
        while self.next() is None:
            pass

    def bodies(self) -> list[bytes]:
        found = []
        while (frame := self.next()) is not None:
            found.append(bytes(frame.data))
            if frame.arena is not None:
                frame.arena.release()
        return found

    def close(self) -> None:
        self.inbox.close()
        self.poller.close()
        self._wakeup.close()
        for sock in (self._keep, self.peer):
            sock.close()


@pytest.fixture(params=["bytes", "lent"])
def wire(request: pytest.FixtureRequest, half: str) -> Iterator[Wire]:
    made = Wire()
    made.lent = request.param == "lent"
    yield made
    made.close()


def test_whole_frames_in_one_piece(wire: Wire) -> None:
    wire.peer.sendall(framed(b"first", b"second", b"last"))
    assert wire.bodies() == [b"first", b"second", b"last"]
    assert wire.pool.in_use == 0


def test_byte_by_byte(wire: Wire) -> None:
    found = []
    for byte in framed(b"first", b"second"):
        wire.peer.sendall(bytes([byte]))
        found += wire.bodies()
    assert found == [b"first", b"second"]


def test_a_lent_frame_lies_in_an_arena_that_its_taker_holds(wire: Wire) -> None:
    wire.peer.sendall(framed(b"x" * 50_000))
    frame = wire.next()
    assert frame is not None
    if wire.lent:
        assert frame.arena is not None
        assert wire.pool.in_use == frame.arena.size
        frame.arena.release()
    else:
        assert frame.arena is None
    assert wire.pool.in_use == 0


def test_the_fetch_knows_what_is_lent_from_when_its_answer_begins_to_arrive(wire: Wire) -> None:
    wire.peer.sendall(framed(b"x" * 200_000)[:1_000])
    assert wire.next() is None
    assert wire.fetch.lent_bytes == wire.pool.in_use
    assert (wire.pool.in_use >= 200_000) is wire.lent


def test_an_answer_too_short_for_records_needs_no_arena(wire: Wire) -> None:
    wire.peer.sendall(framed(b"x" * 17))
    frame = wire.next()
    assert frame is not None
    assert frame.arena is None


def test_whether_to_lend_is_asked_for_each_frame(wire: Wire) -> None:
    wire.peer.sendall(framed(b"first" * 10, b"second" * 10))
    wire.lent = True
    first = wire.next()
    wire.lent = False
    second = wire.next()
    assert first is not None
    assert second is not None
    assert (first.arena is not None, second.arena) == (True, None)


def test_junk_after_a_frame_is_a_length_that_lies(wire: Wire) -> None:
    wire.peer.sendall(framed(b"good") + b"HTTP/1.1 400 Bad Request")
    assert wire.next() is not None
    with pytest.raises(MalformedMessageError, match="HTTP answer"):
        wire.next()


@pytest.mark.parametrize("sent", [b"", b"\0", framed(b"some body")[:-1], framed(b"some body")[:4]])
def test_a_peer_that_leaves_is_told_with_where(wire: Wire, sent: bytes) -> None:
    wire.peer.sendall(sent)
    wire.peer.close()
    where = " in the middle of a message" if sent else "$"
    with pytest.raises(DisconnectedError, match=r"broker 1 \(kafka:9092\) closed the connection" + where):
        wire.until_frame()


def test_memory_of_an_unfinished_frame_comes_back(wire: Wire) -> None:
    """Only a long one has any: a short one waits in the intake until it is whole."""
    wire.peer.sendall(framed(b"some body")[:-1])
    assert wire.next() is None
    assert wire.pool.in_use == 0
    wire.peer.sendall(b"y" + framed(bytes(200_000))[:60_000])
    assert wire.bodies() == [b"some body"]
    assert (wire.pool.in_use > 0) == wire.lent
    wire.inbox.close()
    assert wire.pool.in_use == 0


def test_long_and_short_frames_follow_each_other(wire: Wire) -> None:
    """In pieces that end anywhere."""
    sizes = [3_000, 65_532, 65_533, 65_536, 4, 300_000, 70_000, 5, 5]
    bodies = [random.Random(size).randbytes(size) for size in sizes]
    data = framed(*bodies)
    found = []
    for start in range(0, len(data), 7_001):
        wire.peer.sendall(data[start : start + 7_001])
        found += wire.bodies()
    assert found == bodies
    assert wire.pool.in_use == 0


def test_the_limit_may_rise_between_frames(wire: Wire) -> None:
    """It is low until the peer has shown who it is."""
    wire.inbox.limit = 100
    wire.peer.sendall(framed(b"x" * 100))
    assert wire.bodies() == [b"x" * 100]
    wire.inbox.limit = 1_000
    wire.peer.sendall(framed(b"x" * 1_000))
    assert wire.bodies() == [b"x" * 1_000]
    wire.peer.sendall(framed(b"x" * 1_001))
    with pytest.raises(MalformedMessageError, match="between 4 and 1000 are accepted"):
        wire.bodies()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
def test_memory_of_a_long_frame_is_taken_as_it_comes(wire: Wire) -> None:
    """A length is four bytes that anybody can send."""
    wire.inbox.limit = 1 << 30
    before = resident_pages()
    wire.peer.sendall((1 << 29).to_bytes(4) + b"x" * 1_000)
    assert wire.next() is None
    assert resident_pages() - before < (1 << 26) // mmap.PAGESIZE


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
