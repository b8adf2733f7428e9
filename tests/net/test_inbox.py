"""Frames out of a stream: whole, byte by byte, many at once, with junk, cut short."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kadence.errors import DisconnectedError, MalformedMessageError
from kadence.net.arena import ArenaPool
from kadence.net.inbox import Frame, Inbox
from kadence.net.stream import stream_of


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


class Wire:
    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self._keep = ours
        self._wake, self._other = socket.socketpair()
        ours.setblocking(False)
        self.pool = ArenaPool(1 << 24)
        self.leased = False
        self.inbox = Inbox(
            stream_of(ours), self.pool, lambda: self.leased, 1_000_000, "broker 1 (kafka:9092)"
        )

    def next(self) -> Frame | None:
        return self.inbox.next_frame(self._wake.fileno())

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
        for sock in (self._keep, self.peer, self._wake, self._other):
            sock.close()


@pytest.fixture(params=[False, True], ids=["bytes", "leased"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    made = Wire()
    made.leased = request.param
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


def test_a_leased_frame_lies_in_an_arena_that_its_taker_holds(wire: Wire) -> None:
    wire.peer.sendall(framed(b"x" * 50_000))
    frame = wire.next()
    assert frame is not None
    if wire.leased:
        assert frame.arena is not None
        assert wire.pool.in_use == frame.arena.size
        frame.arena.release()
    else:
        assert frame.arena is None
    assert wire.pool.in_use == 0


def test_whether_to_lease_is_asked_for_each_frame(wire: Wire) -> None:
    wire.peer.sendall(framed(b"first", b"second"))
    wire.leased = True
    first = wire.next()
    wire.leased = False
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
    wire.peer.sendall(framed(b"some body")[:-1])
    assert wire.next() is None
    wire.inbox.close()
    assert wire.pool.in_use == 0
