"""What one client may cost: memory, the loop's time, descriptors, and how long it may do nothing."""

from __future__ import annotations

import errno
import gc
import itertools
import selectors
import socket
import struct
import threading
from typing import Any

import pytest
from tests.broker.wire import Wire, at, fetch, pass_time
from tests.patience import until

from kadence.clock import FOREVER, SystemClock
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.wire.reader import MAX_ELEMENTS
from kadence_broker import Broker
from kadence_broker.server.listener import Listener, listen
from kadence_broker.server.loop import Loop
from kadence_testing.clock import FakeClock


def held(broker: Broker) -> int:
    """Bytes of requests and answers that connections hold."""
    return broker._on_loop(lambda: sum(each.held_bytes for each in broker._core.server.connections))


def test_answers_that_nobody_reads_are_not_made(broker: Broker, wire: Wire) -> None:
    for _ in range(4):
        wire.produce("t", [bytes(900_000)])
    with broker.faults.observe(FetchRequest) as served, Wire(broker) as lazy:
        for _ in range(30):
            lazy.send(fetch("t", at(0, max_bytes=10_000_000)), 12)
        served.wait(1)
        until(lambda: not broker._on_loop(lambda: broker._core.loop._soon))
        wire.call(MetadataRequest(topics=[]))
        # The socket's own buffers take some; of the rest one answer waits, not 30.
        assert held(broker) < 8_000_000
        assert len(served) < 15
        for _ in range(30):
            assert len(lazy.receive().responses[0].partitions[0].records) > 3_600_000
        assert len(served) == 30


def test_requests_that_wait_behind_a_parked_one_are_bounded(broker: Broker) -> None:
    with Wire(broker) as client, broker.faults.observe(FetchRequest) as parked:
        client.send(fetch("t", at(0), max_wait_ms=30_000), 12)
        parked.wait()
        client.sock.settimeout(1.0)
        with pytest.raises(TimeoutError):  # the broker stops reading, and the system's buffers fill
            client.sock.sendall((struct.pack(">i", 1_000_000) + bytes(1_000_000)) * 50)
        assert held(broker) < 3_000_000


def test_an_idle_connection_keeps_nothing_of_its_last_request(broker: Broker, wire: Wire) -> None:
    names = [MetadataRequestTopic(name=f"no-{number}") for number in range(1_234)]
    wire.call(MetadataRequest(topics=names, allow_auto_topic_creation=False))
    del names

    def kept() -> list[Any]:
        gc.collect()
        return [
            each
            for each in gc.get_objects()
            if type(each) is MetadataRequest and len(each.topics or ()) == 1_234
        ]

    until(lambda: not kept())
    assert held(broker) == 0


@pytest.mark.parametrize("version", [1, 12])
def test_an_array_may_not_become_gigabytes(broker: Broker, version: int) -> None:
    count = MAX_ELEMENTS + 1
    array = struct.pack(">i", count) + bytes(2 * count)
    compact = bytes([(count + 1) % 128 | 128, (count + 1) // 128 % 128 | 128, (count + 1) // 16_384]) + bytes(
        20 * count
    )
    header = struct.pack(">hhih", 3, version, 1, -1)
    with Wire(broker) as wire:
        wire.send_frame(header + (array if version == 1 else b"\0" + compact))
        assert wire.is_closed()


def test_who_does_nothing_is_cut_and_who_waits_for_the_broker_is_not() -> None:
    clock = FakeClock()
    with (
        Broker(topics={"t": 1}, config={"connections.max.idle.ms": 400}, clock=clock) as broker,
        Wire(broker) as waiting,
        Wire(broker) as idle,
        Wire(broker) as slow,
    ):
        with broker.faults.observe(FetchRequest) as parked:
            waiting.send(fetch("t", at(0), max_wait_ms=1_500), 12)
            parked.wait()
        slow.sock.sendall(struct.pack(">i", 1_000))

        def is_cut() -> bool:
            """A byte now and then is what a slow client sends."""
            try:
                slow.sock.send(b"\0")
            except ConnectionError:
                return True
            if clock.now_ms() < began + 1_000:
                pass_time(broker, clock, 50)
            return False

        began = clock.now_ms()
        until(is_cut)
        assert idle.is_closed()
        pass_time(broker, clock, 1_500)
        assert waiting.receive().responses[0].partitions[0].error_code == 0


def test_who_reads_no_answer_is_cut() -> None:
    clock = FakeClock()
    with Broker(topics={"t": 1}, config={"connections.max.idle.ms": 300}, clock=clock) as broker:
        with Wire(broker) as wire:
            for _ in range(8):
                wire.produce("t", [bytes(900_000)])
        with Wire(broker) as lazy:
            lazy.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            lazy.send(fetch("t", at(0, max_bytes=100_000_000), max_bytes=100_000_000), 12)
            until(lambda: held(broker) > 0)

            def is_cut() -> bool:
                pass_time(broker, clock, 300)
                return not broker._on_loop(lambda: broker._core.server.connections)

            until(is_cut)


def test_a_listener_out_of_descriptors_rests() -> None:
    class Exhausted:
        """A listening socket of a process that can open nothing more."""

        def __init__(self, real: socket.socket) -> None:
            self.real = real
            self.tried_at: list[int] = []
            self.is_exhausted = True

        def fileno(self) -> int:
            return self.real.fileno()

        def close(self) -> None:
            self.real.close()

        def accept(self) -> Any:
            if self.is_exhausted:
                self.tried_at.append(loop.turn_at)
                raise OSError(errno.EMFILE, "Too many open files")
            return self.real.accept()

    loop = Loop(SystemClock(), lambda _now: FOREVER)
    real = listen("127.0.0.1", 0)
    exhausted = Exhausted(real)
    accepted: list[socket.socket] = []
    listener = Listener(loop, exhausted, lambda sock, _peer: accepted.append(sock))  # type: ignore[arg-type]
    thread = threading.Thread(target=loop.run)
    thread.start()
    with socket.create_connection(real.getsockname()):
        until(lambda: len(exhausted.tried_at) >= 3)
        exhausted.is_exhausted = False
        until(lambda: accepted)
        loop.stop()
        thread.join()
        listener.close()
        loop.close()
        accepted[0].close()
    assert all(later - earlier >= 200 for earlier, later in itertools.pairwise(exhausted.tried_at))


def test_b8_a_late_loop_reads_to_the_end_before_a_session_is_judged() -> None:
    """A heartbeat behind much else on its connection takes several reads to come to."""
    order: list[str] = []
    clock = FakeClock()
    ends_at = clock.now_ms() + 1_000
    loop = Loop(clock, lambda _now: FOREVER)

    def end_session() -> None:
        order.append("the session ends")
        loop.stop()

    def serve(_events: int) -> None:
        order.append(there.recv(1).decode())
        if order == ["a"]:
            # The thread is held up here, and meanwhile more arrives than one read takes.
            clock.advance(5_000)
            here.send(b"bcdefh")

    loop.at(ends_at, end_session)
    here, there = socket.socketpair()
    with here, there:
        loop.selector.register(there, selectors.EVENT_READ, serve)
        here.send(b"a")
        loop.run()
        loop.close()
    assert order == [*"abcdefh", "the session ends"]


def test_a_flood_does_not_put_off_timers_for_ever() -> None:
    order: list[str] = []
    loop = Loop(SystemClock(), lambda _now: FOREVER)
    here, there = socket.socketpair()

    def serve(_events: int) -> None:
        there.recv(1)
        here.send(b"x")

    def fire() -> None:
        order.append("fired")
        loop.stop()

    with here, there:
        loop.selector.register(there, selectors.EVENT_READ, serve)
        loop.at(0, fire)
        here.send(b"x")
        loop.run()
        loop.close()
    assert order == ["fired"]
