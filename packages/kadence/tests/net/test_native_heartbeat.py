"""The native thread on real sockets: what it sends, when it must not, and what the network thread does about it."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.net.conftest import Certificates
from tests.net.test_inbox import framed

from kadence.clock import FOREVER, SystemClock
from kadence.net import native_heartbeat, openssl
from kadence.net.sockets import stream_of

if not native_heartbeat.AVAILABLE:
    pytest.skip("Windows has no native heartbeat", allow_module_level=True)

from kadence._native.native_heartbeat import NativeHeartbeat

BODY = b"\x00\x0c\x00\x04????heartbeat"
"""API key, version, and where the correlation id goes."""
FRAME = framed(BODY)


def heartbeat_number(number: int) -> bytes:
    """What the native thread sends the so-manieth time."""
    return FRAME[:8] + (-1 - number).to_bytes(4, signed=True) + FRAME[12:]


class Link:
    """A stream with a beat, and its peer."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(20)
        theirs.settimeout(20)
        self.sock, self.peer = ours, theirs
        if certificates is not None:

            def shake() -> None:
                self.peer = certificates.server_context().wrap_socket(self.peer, server_side=True)

            thread = threading.Thread(target=shake)
            thread.start()
            self.sock = certificates.client_context().wrap_socket(ours, server_hostname="localhost")
            thread.join()
        self.sock.setblocking(False)
        self.stream: Any = stream_of(self.sock)
        self.heartbeat: Any = NativeHeartbeat(self.stream.session)

    def arm(self, due: int = 0, until: int = FOREVER, interval: int = 3_600_000) -> bool:
        armed: bool = self.heartbeat.arm(FRAME, due, until, interval)
        return armed

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self.peer.recv(count - len(found))
            assert more, "the connection ended"
            found += more
        return found

    def close(self) -> None:
        self.heartbeat.close()
        self.sock.close()
        self.peer.close()


@pytest.fixture(params=["plain", "tls"])
def link(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Link]:
    if request.param == "tls" and not openssl.BOUND:
        pytest.skip("this OpenSSL is not reached by the compiled half")
    link = Link(certificates if request.param == "tls" else None)
    yield link
    link.close()


def now() -> int:
    return SystemClock().now_ms()


def test_a_beat_is_sent_when_it_is_due_and_again_each_interval(link: Link) -> None:
    armed_at = now()
    link.arm(due=armed_at + 30, interval=20)
    for number in (1, 2, 3):
        assert link.read(len(FRAME)) == heartbeat_number(number)
    assert now() >= armed_at + 30 + 2 * 20
    link.heartbeat.disarm()
    assert link.heartbeat.count_sent() >= 3
    assert armed_at + 30 <= link.heartbeat.sent_at <= now()


def test_nothing_is_sent_from_the_forbidden_time_on(link: Link) -> None:
    armed_at = now()
    link.arm(due=armed_at, until=armed_at + 100, interval=30)
    other = Link()
    # A beat that is due long after the last that may be sent shows that the thread has passed it.
    other.arm(due=armed_at + 200)
    other.read(len(FRAME))
    sent = link.heartbeat.count_sent()
    # On a machine that pauses, the thread may have slept until then.
    assert sent <= 4
    assert link.read(sent * len(FRAME)) == b"".join(heartbeat_number(number + 1) for number in range(sent))
    assert not sent or link.heartbeat.sent_at < armed_at + 100
    other.close()


def test_nothing_is_written_and_nothing_armed_before_what_was_sent_is_counted(link: Link) -> None:
    """Whoever writes must know what went before: answers come in the order of the requests."""
    link.arm()
    link.read(len(FRAME))
    assert link.stream.write_now([memoryview(b"late")]) is None
    assert not link.arm()
    assert link.heartbeat.count_sent() == 1
    assert link.heartbeat.count_sent() == 0
    assert link.stream.write_now([memoryview(b"late")]) == 4
    assert link.read(4) == b"late"
    assert link.arm(due=FOREVER)


def test_nothing_is_sent_into_the_middle_of_a_frame(link: Link) -> None:
    data = memoryview(bytes(8_000_000))
    written = 0
    while (count := link.stream.write_now([data[written:]])) is not None:
        written += count
    assert written < len(data)
    link.arm()
    other = Link()
    other.arm(due=now() + 250)
    other.read(len(FRAME))
    assert link.heartbeat.count_sent() == 0, "it was due, and tried again since"

    def finish() -> None:
        done = written
        while done < len(data):
            done += link.stream.write_now([data[done:]]) or 0

    thread = threading.Thread(target=finish)
    thread.start()
    assert not any(link.read(len(data)))
    thread.join()
    assert link.read(len(FRAME)) == heartbeat_number(1), "and goes out once the frame is whole"
    other.close()


def test_a_frame_that_went_out_in_part_is_finished_before_anything_else(link: Link) -> None:
    body = os.urandom(8_000_000)
    frame = framed(BODY[:8] + body)
    link.heartbeat.arm(frame, 0, FOREVER, 3_600_000)
    head = link.read(12)
    assert head[8:12] == (-2).to_bytes(4, signed=True)
    assert link.heartbeat.count_sent() == 1
    link.heartbeat.disarm()
    seen = []

    def write() -> None:
        while link.stream.write_now([memoryview(b"after")]) is None:
            seen.append(True)

    thread = threading.Thread(target=write)
    thread.start()
    assert link.read(len(body)) == body
    assert link.read(5) == b"after"
    thread.join()


def test_the_rest_of_a_frame_waits_for_no_later_due_time(link: Link) -> None:
    """The network thread puts the heartbeat off while half a frame is out, and has nothing to write itself."""
    body = os.urandom(8_000_000)
    link.heartbeat.arm(framed(BODY[:8] + body), 0, FOREVER, 3_600_000)
    head = link.read(12)
    assert head[8:12] == (-2).to_bytes(4, signed=True)
    assert link.heartbeat.count_sent() == 1
    assert link.arm(due=now() + 3_600_000)
    assert link.read(len(body)) == body
    other = Link()
    other.arm(due=now() + 200)
    other.read(len(FRAME))
    assert link.heartbeat.count_sent() == 0, "what is armed is sent when it is due"
    other.close()


def test_after_closing_nothing_goes_to_whoever_has_the_descriptor_then(link: Link) -> None:
    link.arm(due=now() + 100)
    fd = link.sock.fileno()
    link.heartbeat.close()
    link.sock.close()
    ours, theirs = socket.socketpair()
    assert fd in (ours.fileno(), theirs.fileno())
    other = Link()
    other.arm(due=now() + 200)
    other.read(len(FRAME))
    for sock in (ours, theirs):
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
    ours.close()
    theirs.close()
    other.close()


def test_a_beat_that_is_dropped_unclosed_is_forgotten() -> None:
    link = Link()
    link.arm(interval=20)
    link.read(len(FRAME))
    peer, sock = link.peer, link.sock
    del link
    gc.collect()
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        peer.recv(1_000_000)
    other = Link()
    other.arm(due=now() + 100)
    other.read(len(FRAME))
    with pytest.raises(BlockingIOError):
        peer.recv(1)
    sock.close()
    peer.close()
    other.close()


def threads() -> list[str]:
    found = []
    for each in Path("/proc/self/task").iterdir():
        # Libraries have threads of their own, also in a child: one may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append((each / "comm").read_text().strip())
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads have names on Linux only")
def test_there_is_one_thread_for_all_and_none_in_a_child_before_it_needs_one() -> None:
    links = [Link(), Link()]
    for each in links:
        each.arm()
        each.read(len(FRAME))
    assert threads().count("kadence-native") == 1
    child = os.fork()
    if child == 0:
        failed = True
        try:
            before = threads().count("kadence-native")
            # What belongs to the parent is left alone, also when it goes.
            links[0].arm()
            links[0].heartbeat.close()
            links.clear()
            gc.collect()
            mine = Link()
            mine.arm()
            mine.read(len(FRAME))
            failed = (before, threads().count("kadence-native")) != (0, 1)
        finally:
            # Never back into the tests: they would run twice.
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for each in links:
        assert each.heartbeat.count_sent() == 1
        each.arm()
        assert each.read(len(FRAME)) == heartbeat_number(2), "the parent's goes on"
        each.close()
