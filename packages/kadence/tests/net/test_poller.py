"""One call that waits, reads and cuts frames: when it comes back, and how often it gives the interpreter away."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.net.conftest import Certificates
from tests.net.test_inbox import framed

from kadence.clock import SystemClock
from kadence.connection.request import Request
from kadence.errors import DisconnectedError
from kadence.net import openssl
from kadence.net.arena import ArenaPool
from kadence.net.intake import Inbox
from kadence.net.sockets import new_poller, stream_of

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
LONG = 3_000_000


class Link:
    """A connection that a poller reads: frames that are whole, and what the peer sends."""

    def __init__(self, poller: Any, certificates: Certificates | None, *, lent: bool = True) -> None:
        self.poller = poller
        ours, theirs = socket.socketpair()
        theirs.settimeout(20)
        self.sock, self.peer = ours, theirs
        if certificates is not None:
            self._secure(certificates)
        self.sock.setblocking(False)
        self.stream = stream_of(self.sock)
        self.intake: Any = self.stream.intake
        self.pool = ArenaPool(1 << 24)
        fetch = Request(None, 1, 0)
        self.inbox = Inbox(self.intake, self.pool, lambda: fetch if lent else None, 1 << 30, "broker 1")
        poller.watch(self.sock.fileno(), READ, self, self.intake)

    def _secure(self, certificates: Certificates) -> None:
        def shake() -> None:
            self.peer = certificates.server_context().wrap_socket(self.peer, server_side=True)

        thread = threading.Thread(target=shake)
        thread.start()
        self.sock.settimeout(20)
        self.sock = certificates.client_context().wrap_socket(
            self.sock, server_hostname="localhost", do_handshake_on_connect=False
        )
        openssl.read_ahead(openssl.pointer(self.sock))
        self.sock.do_handshake()
        thread.join()

    def bodies(self) -> list[bytes]:
        found = []
        while (frame := self.inbox.next_frame()) is not None:
            found.append(bytes(frame.data))
            if frame.arena is not None:
                frame.arena.release()
        return found

    def close(self) -> None:
        self.poller.unwatch(self.sock.fileno())
        self.inbox.close()
        self.sock.close()
        self.peer.close()


class Bench:
    """A poller with what it watches."""

    def __init__(self, certificates: Certificates | None) -> None:
        self._certificates = certificates
        self.poller, self.wakeup = new_poller()
        self.links: list[Link] = []

    @property
    def releases(self) -> int:
        poller: Any = self.poller
        return int(poller.releases)

    def link(self, *, lent: bool = True) -> Link:
        made = Link(self.poller, self._certificates, lent=lent)
        self.links.append(made)
        return made

    def wait(self) -> list[tuple[Any, int]]:
        """What the poller has to tell next. The plain one comes back for half a frame, with nothing."""
        for _ in range(10_000):
            if ready := self.poller.wait(20_000):
                return ready
        raise AssertionError("nothing came")

    def next(self, link: Link) -> list[bytes]:
        """The next whole frames of a link, however many waits that takes."""
        while not (found := link.bodies()):
            self.wait()
        return found

    def until_error(self, link: Link, found: list[bytes]) -> None:
        """Read to the end, which `Inbox` raises after the frames before it."""
        while True:
            self.wait()
            while (frame := link.inbox.next_frame()) is not None:
                found.append(bytes(frame.data))

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.poller.close()
        self.wakeup.close()


@pytest.fixture(params=["plain socket", "tls"])
def bench(request: pytest.FixtureRequest, half: str, certificates: Certificates) -> Iterator[Bench]:
    made = Bench(certificates if request.param == "tls" else None)
    yield made
    made.close()


@pytest.fixture
def compiled(bench: Bench, half: str) -> Bench:
    if half != "compiled":
        pytest.skip("Python's sockets give the interpreter away in each call")
    return bench


@pytest.fixture
def outbox(compiled: Bench) -> Link:
    """A connection whose long frames the poller writes."""
    link = compiled.link()
    if isinstance(link.peer, ssl.SSLSocket):
        pytest.skip("TLS is written by the network thread")
    return link


def sending(link: Link, *parts: bytes) -> threading.Thread:
    def send() -> None:
        for part in parts:
            link.peer.sendall(part)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_nothing_within_the_time_is_nothing(bench: Bench) -> None:
    bench.link()
    assert bench.poller.wait(0) == []
    assert bench.poller.wait(1) == []


def test_whoever_has_a_frame_is_named(bench: Bench) -> None:
    first, second = bench.link(), bench.link()
    second.peer.sendall(framed(b"hello"))
    assert bench.wait() == [(second, READ)]
    assert (first.bodies(), second.bodies()) == ([], [b"hello"])


def test_c10_a_small_frame_costs_one_hand_over(compiled: Bench) -> None:
    link = compiled.link()
    for number in range(10):
        before = compiled.releases
        thread = sending(link, framed(b"%d" % number * 100))
        assert compiled.next(link) == [b"%d" % number * 100]
        assert compiled.releases - before <= 1
        thread.join()


def test_c10_what_has_come_already_costs_none(compiled: Bench) -> None:
    link = compiled.link()
    link.peer.sendall(framed(b"x" * 1000, b"y" * 50_000))
    compiled.wakeup.wake()
    assert sorted(compiled.poller.wait(None), key=str) == sorted([(None, READ), (link, READ)], key=str)
    assert link.bodies() == [b"x" * 1000, b"y" * 50_000]
    assert compiled.releases == 0


def test_c10_the_wait_goes_on_inside_while_a_frame_is_incomplete(compiled: Bench) -> None:
    """In the four bytes of its length, and in its body."""
    link = compiled.link()
    data = framed(b"z" * 20_000)
    pieces = [data[:1], data[1:3], data[3:7], data[7:9_000], data[9_000:]]
    thread = sending(link, *pieces)
    assert compiled.poller.wait(20_000) == [(link, READ)]
    assert compiled.releases <= 1
    assert link.bodies() == [b"z" * 20_000]
    thread.join()


def test_c10_a_long_frame_costs_one_hand_over_more_for_its_memory(compiled: Bench) -> None:
    link = compiled.link()
    data = os.urandom(LONG)
    thread = sending(link, framed(data))
    assert compiled.next(link) == [data]
    assert compiled.releases <= 2
    thread.join()


def test_a_long_frame_that_comes_slowly_holds_up_nobody(bench: Bench) -> None:
    """Another connection's frame comes through in the middle, and a wake-up."""
    slow, quick = bench.link(), bench.link()
    data = framed(os.urandom(LONG))
    slow.peer.sendall(data[:100_000])
    while slow.inbox._body is None:
        bench.wait()
        assert slow.bodies() == []
    while bench.poller.wait(0):
        assert slow.bodies() == []
    quick.peer.sendall(framed(b"quick"))
    assert (quick, READ) in bench.wait()
    assert quick.bodies() == [b"quick"]
    bench.wakeup.wake()
    assert (None, READ) in bench.wait()
    thread = sending(slow, data[100_000:])
    assert bench.next(slow) == [data[4:]]
    thread.join()


def test_when_something_was_heard_last_counts_parts_of_a_frame_too(bench: Bench) -> None:
    """A slow connection that still brings bytes is not given up with those that are silent."""
    link = bench.link()
    assert link.intake.heard_at == -1
    before = SystemClock().now_ms()
    link.peer.sendall(framed(bytes(LONG))[:100_000])
    while link.inbox._body is None:
        bench.wait()
        assert link.bodies() == []
    while bench.poller.wait(1):
        assert link.bodies() == []
    began = link.intake.heard_at
    assert before <= began <= SystemClock().now_ms()
    while SystemClock().now_ms() == began:
        pass
    thread = sending(link, b"more")
    while link.intake.heard_at == began:
        bench.poller.wait(1)
    thread.join()


def test_two_long_frames_come_at_the_same_time(bench: Bench) -> None:
    links = [bench.link(), bench.link()]
    data = [os.urandom(LONG), os.urandom(LONG)]
    threads = [sending(link, framed(each)) for link, each in zip(links, data, strict=True)]
    found: dict[Link, list[bytes]] = {link: [] for link in links}
    while not all(found.values()):
        bench.wait()
        for link in links:
            found[link] += link.bodies()
    assert [found[link] for link in links] == [[each] for each in data]
    for thread in threads:
        thread.join()


def test_more_short_frames_than_there_is_room_for(bench: Bench) -> None:
    link = bench.link(lent=False)
    bodies = [b"%05d" % number * 100 for number in range(2_000)]
    thread = sending(link, framed(*bodies))
    found: list[bytes] = []
    while len(found) < len(bodies):
        found += bench.next(link)
    assert found == bodies
    thread.join()


def test_the_end_comes_after_the_frames_before_it(bench: Bench) -> None:
    link = bench.link()
    link.peer.sendall(framed(b"first", b"last") + b"\0\0")
    if isinstance(link.peer, ssl.SSLSocket):
        # The farewell; ours does not come, which it would wait for.
        link.peer.settimeout(0)
        with contextlib.suppress(OSError):
            link.peer.unwrap()
    link.peer.shutdown(socket.SHUT_WR)
    found: list[bytes] = []
    with pytest.raises(DisconnectedError, match="in the middle of a message"):
        bench.until_error(link, found)
    assert found == [b"first", b"last"]


def test_an_end_in_the_middle_of_a_long_frame(bench: Bench) -> None:
    link = bench.link()
    link.peer.sendall(framed(bytes(LONG))[:100_000])
    link.peer.shutdown(socket.SHUT_RDWR)
    # The last one from OpenSSL 3.5, which wants to tell the peer.
    with pytest.raises((DisconnectedError, ssl.SSLEOFError, BrokenPipeError)):
        bench.until_error(link, [])
    link.inbox.close()
    assert link.pool.in_use == 0


def test_junk_under_tls_is_named_by_the_ssl_module(bench: Bench) -> None:
    link = bench.link()
    if not isinstance(link.peer, ssl.SSLSocket):
        pytest.skip("plain streams have no junk")
    os.write(link.peer.fileno(), b"junk that is no TLS record, and long enough")
    assert bench.wait() == [(link, READ)]
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version|packet|record|ssl"):
        link.bodies()


def test_what_can_be_written_is_told_while_it_is_asked_for(bench: Bench) -> None:
    link = bench.link()
    bench.poller.watch(link.sock.fileno(), READ | WRITE, link, link.intake)
    assert bench.poller.wait(20_000) == [(link, WRITE)]
    link.peer.sendall(framed(b"both"))
    seen = bench.wait()
    while seen == [(link, WRITE)]:
        seen = bench.wait()
    assert seen == [(link, READ | WRITE)]
    assert link.bodies() == [b"both"]
    bench.poller.watch(link.sock.fileno(), READ, link, link.intake)
    assert bench.poller.wait(0) == []


def in_pieces(data: bytes) -> list[memoryview]:
    return [
        memoryview(each)
        for each in (data[:10], data[10:2_000_000], data[2_000_000:2_000_007], data[2_000_007:])
    ]


def test_a_long_frame_is_written_while_the_poller_waits_and_costs_no_hand_over_more(
    outbox: Link, compiled: Bench
) -> None:
    data = os.urandom(LONG)
    assert outbox.stream.write_now(in_pieces(data)) == LONG
    assert outbox.stream.has_unwritten
    found = bytearray()

    def answer() -> None:
        while len(found) < LONG:
            found.extend(outbox.peer.recv(LONG))
        outbox.peer.sendall(framed(b"got it"))

    thread = threading.Thread(target=answer)
    thread.start()
    assert compiled.poller.wait(20_000) == [(outbox, READ)]
    assert outbox.bodies() == [b"got it"]
    assert found == data
    assert outbox.stream.write_now([memoryview(b"more")]) == 4, "nothing is unwritten any more"
    assert compiled.releases == 1
    thread.join()


def test_what_comes_behind_a_long_frame_waits_until_it_is_written(outbox: Link, compiled: Bench) -> None:
    data = os.urandom(LONG)
    assert outbox.stream.write_now(in_pieces(data)) == LONG
    compiled.poller.watch(outbox.sock.fileno(), READ | WRITE, outbox, outbox.intake)
    assert compiled.poller.wait(0) == []
    assert outbox.stream.write_now([memoryview(b"more")]) is None
    assert outbox.stream.write_now(in_pieces(data)) is None
    found = bytearray()

    def read() -> None:
        while len(found) < LONG + 4:
            found.extend(outbox.peer.recv(LONG))

    thread = threading.Thread(target=read)
    thread.start()
    assert compiled.poller.wait(20_000) == [(outbox, WRITE)]
    assert outbox.stream.write_now([memoryview(b"more")]) == 4
    thread.join()
    assert found == data + b"more"


def test_a_connection_that_breaks_while_a_long_frame_is_written(outbox: Link, compiled: Bench) -> None:
    assert outbox.stream.write_now(in_pieces(bytes(LONG))) == LONG
    assert compiled.poller.wait(0) == []
    outbox.peer.sendall(framed(b"last words"))
    outbox.peer.close()
    found: list[bytes] = []
    with pytest.raises((DisconnectedError, OSError)):
        compiled.until_error(outbox, found)
    assert found == [b"last words"]
    assert not outbox.stream.has_unwritten


def test_who_is_not_watched_any_more_is_not_told(bench: Bench) -> None:
    links = [bench.link() for _ in range(20)]
    for link in links:
        link.peer.sendall(framed(b"hello"))
    for link in links[::2]:
        bench.links.remove(link)
        link.close()
    told: set[Link] = set()
    while len(told) < 10:
        for owner, _ in bench.wait():
            told.add(owner)
            assert owner.bodies() == [b"hello"]
    assert told == set(links[1::2])


def test_a_socket_without_an_intake_is_only_told_of(bench: Bench) -> None:
    """One that is still being connected."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bench.poller.watch(ours.fileno(), READ, "dial")
        theirs.sendall(b"x")
        assert bench.poller.wait(20_000) == [("dial", READ)]
        assert ours.recv(1) == b"x"
        theirs.close()
        [(owner, events)] = bench.poller.wait(20_000)
        assert (owner, events & READ) == ("dial", READ)
        bench.poller.unwatch(ours.fileno())


def _start_and_wait(timer: threading.Timer, bench: Bench) -> None:
    timer.start()
    bench.wait()


def test_a_signal_runs_its_handler_in_the_middle_of_a_wait(bench: Bench) -> None:
    """Admin's calls wait on the main thread: Ctrl-C must end them."""

    class Interrupt(Exception): ...  # noqa: N818

    def handler(number: int, frame: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        # The signal may come before the wait.
        with pytest.raises(Interrupt):
            _start_and_wait(timer, bench)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
