"""What the requests of all connections may hold: `queued.max.request.bytes`."""

from __future__ import annotations

import contextlib
import ssl
import struct
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.broker.server.conftest import Certificates
from tests.broker.wire import Wire, at, fetch, pass_time
from tests.patience import until

from kadence.errors import ConfigError
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker, TlsFiles
from kadence_broker.server.frames import READ_BYTES, Frames
from kadence_broker.server.memory import RequestMemory
from kadence_testing import FakeClock

BOUND = 1_000_000
CONFIG = {"socket.request.max.bytes": BOUND, "queued.max.request.bytes": BOUND}
LONG = 900_000
"""One such request leaves room for another to begin; two leave none."""


def held(broker: Broker) -> int:
    return broker._on_loop(lambda: broker._core.server._memory.held_bytes)


def waiting(broker: Broker) -> int:
    return broker._on_loop(lambda: len(broker._core.server._memory._waiting))


def begin(wire: Wire, length: int = LONG) -> None:
    """Send the beginning of a request."""
    wire.sock.sendall(struct.pack(">i", length) + bytes(10))


@pytest.mark.parametrize("tls", [False, True])
def test_who_comes_while_requests_hold_too_much_waits_until_one_is_over(
    tls: bool, certificates: Certificates
) -> None:
    with (
        Broker(config=CONFIG, tls=TlsFiles(certificates.server) if tls else None) as broker,
        contextlib.ExitStack() as clients,
    ):

        def client() -> Wire:
            wire = clients.enter_context(Wire(broker))
            if tls:
                context = ssl.create_default_context(cafile=str(certificates.ca))
                wire.sock = context.wrap_socket(wire.sock, server_hostname="localhost")
            return wire

        one, other, third = client(), client(), client()
        begin(one)
        begin(other)
        until(lambda: held(broker) == 2 * LONG)
        third.send(MetadataRequest(topics=[]))
        until(lambda: waiting(broker) == 1)
        one.sock.close()
        assert third.receive().topics == []
        assert held(broker) == LONG
        # The one that had begun is read to its end, and found to be no request.
        other.sock.sendall(bytes(LONG - 10))
        assert other.is_closed()
        until(lambda: held(broker) == 0)


def test_who_waits_for_memory_is_not_idle_and_who_sends_half_a_request_is() -> None:
    clock = FakeClock()
    with (
        Broker(config={**CONFIG, "connections.max.idle.ms": 500}, clock=clock) as broker,
        Wire(broker) as one,
        Wire(broker) as other,
        Wire(broker) as third,
    ):
        begin(one)
        begin(other)
        until(lambda: held(broker) == 2 * LONG)
        third.send(MetadataRequest(topics=[]))
        until(lambda: waiting(broker) == 1)
        pass_time(broker, clock, 500)
        assert third.receive().topics == []
        assert one.is_closed()
        assert other.is_closed()


def test_a_produce_counts_until_its_answer_and_a_parked_fetch_does_not(broker: Broker) -> None:
    with Wire(broker) as reader, Wire(broker) as writer:
        with broker.faults.observe(FetchRequest) as parked, broker.faults.drop(ProduceRequest):
            reader.send(fetch("t", at(0), max_wait_ms=30_000), 12)
            parked.wait()
            until(lambda: held(broker) == 0)
            writer.send_produce("t", [bytes(300_000)])
            until(lambda: 300_000 < held(broker) < 301_000)
        writer.sock.close()
        until(lambda: held(broker) == 0)
        with Wire(broker) as again:
            again.produce("t", [bytes(300_000)])
        assert len(reader.receive().responses[0].partitions[0].records) > 300_000
        until(lambda: held(broker) == 0)


def test_many_producers_within_a_small_bound_are_all_served() -> None:
    with Broker(topics={"t": 1}, config=CONFIG) as broker, ThreadPoolExecutor(12) as threads:

        def produce(_number: int) -> int:
            with Wire(broker) as wire:
                return int(wire.produce("t", [bytes(LONG)]).error_code)

        assert list(threads.map(produce, range(12))) == [0] * 12
        until(lambda: held(broker) == 0)
        assert waiting(broker) == 0
        assert broker.offsets("t") == [(0, 12)]


@pytest.mark.parametrize("bound", [1, BOUND - 1])
def test_a_bound_below_the_longest_request_is_refused(bound: int) -> None:
    with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes"):
        Broker(config={**CONFIG, "queued.max.request.bytes": bound})


def later() -> tuple[deque[Callable[[], None]], Callable[[], None]]:
    """What was asked to be done soon, and what does it."""
    asked: deque[Callable[[], None]] = deque()

    def do() -> None:
        while asked:
            asked.popleft()()

    return asked, do


def test_who_waits_longest_goes_first_and_only_while_there_is_room() -> None:
    asked, do = later()
    memory = RequestMemory(10, asked.append)
    went: list[str] = []

    def takes(name: str, count: int) -> Callable[[], None]:
        def go_on() -> None:
            went.append(name)
            memory.change(count)

        return go_on

    memory.change(10)
    assert memory.is_full
    memory.wait(takes("first", 10))
    memory.wait(takes("second", 1))
    memory.change(-1)
    do()
    assert went == ["first"]
    memory.change(-10)
    do()
    assert went == ["first", "second"]
    assert memory.held_bytes == 10


def test_a_bug_in_one_that_waited_leaves_the_others_their_turn() -> None:
    asked, do = later()
    memory = RequestMemory(10, asked.append)
    went: list[str] = []
    memory.change(10)
    memory.wait(lambda: 1 / 0)  # type: ignore[arg-type]
    memory.wait(lambda: went.append("second"))
    memory.change(-10)
    with pytest.raises(ZeroDivisionError):
        do()
    do()
    assert went == ["second"]


def frames(memory: RequestMemory) -> Frames:
    return Frames(BOUND, memory)


@pytest.mark.parametrize("step", [1, 7, 1_000_000])
def test_frames_count_however_they_are_cut(step: int) -> None:
    memory = RequestMemory(-1, _never)
    subject = frames(memory)
    lengths = [8, 100, READ_BYTES + 1, 9]
    stream = b"".join(struct.pack(">i", length) + bytes(length) for length in lengths) + b"\0\0"
    for begin_at in range(0, len(stream), step):
        subject.feed(stream[begin_at : begin_at + step])
    assert memory.held_bytes == sum(lengths)
    for length in lengths:
        assert len(subject.take()) == length
    assert memory.held_bytes == sum(lengths)
    subject.let_go()
    assert memory.held_bytes == 0


def test_a_short_frame_that_is_coming_is_read_to_its_end_and_no_further() -> None:
    memory = RequestMemory(100, _never)
    subject = frames(memory)
    subject.feed(struct.pack(">i", 60) + bytes(50))
    assert memory.held_bytes == 60
    assert subject.appetite == READ_BYTES
    memory.change(40)
    assert subject.appetite == 10
    subject.feed(bytes(10))
    assert subject.appetite == 0
    assert len(subject.take()) == 60


def test_a_long_frame_begins_only_when_there_is_room() -> None:
    memory = RequestMemory(100, _never)
    subject = frames(memory)
    memory.change(100)
    subject.feed(struct.pack(">i", 200_000) + bytes(50))
    assert subject.room() is None
    assert subject.appetite == 0
    assert memory.held_bytes == 100
    memory.change(-100)
    assert subject.appetite == READ_BYTES
    subject.feed(bytes(10))
    assert memory.held_bytes == 200_000
    assert subject.appetite == 200_000 - 60
    subject.feed(bytes(200_000 - 60))
    assert len(subject.take()) == 200_000
    subject.clear()
    assert memory.held_bytes == 200_000
    subject.let_go()
    assert memory.held_bytes == 0


@pytest.mark.parametrize("come", [8, 1_000, READ_BYTES, 5 * READ_BYTES])
def test_a_frame_takes_memory_as_it_comes_and_not_as_it_was_announced(come: int) -> None:
    subject = Frames(100_000_000, RequestMemory(-1, _never))
    subject.feed(struct.pack(">i", 100_000_000) + bytes(come))
    assert come <= subject.held_bytes <= 2 * come + 4


def test_a_long_frame_that_was_begun_is_read_to_its_end_though_the_memory_is_full() -> None:
    memory = RequestMemory(300_000, _never)
    subject = frames(memory)
    subject.feed(struct.pack(">i", 200_000) + bytes(50))
    memory.change(100_000)
    while not len(subject):
        room = subject.room()
        count = min(subject.appetite, 10_000)
        assert count > 0
        if room is None:
            subject.feed(bytes(count))
        else:
            count = min(count, len(room))
            room.release()
            subject.filled(count)
    assert len(subject.take()) == 200_000
    assert memory.held_bytes == 300_000


def _never(_action: Any) -> None:
    raise AssertionError("nobody waits")
