"""What the tests of direct sends share: which way a batch went, and what came of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.patience import PATIENCE, standing_inside, until

from kadence import Consumer, Producer, Record, TopicPartition
from kadence.errors import KafkaTimeoutError
from kadence.net import drain
from kadence.producer.direct_sends import DirectSends
from kadence.producer.futures import RecordFuture, RecordMetadata
from kadence_broker import Broker

needs_the_direct_way = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

PARTITIONS = 2


class Ways:
    """Counts the batches that the application's threads sent, and those that were taken over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken_over = 0
        self._made: list[DirectSends] = []
        init, took_over = DirectSends.__init__, DirectSends.took_over

        def made(direct: DirectSends, *arguments: Any) -> None:
            init(direct, *arguments)
            self._made.append(direct)

        def taken(direct: DirectSends, *arguments: Any) -> Any:
            self.taken_over += 1
            return took_over(direct, *arguments)

        monkeypatch.setattr(DirectSends, "__init__", made)
        monkeypatch.setattr(DirectSends, "took_over", taken)

    @property
    def sent(self) -> int:
        return sum(each.sent for each in self._made)


def settle(producer: Producer, ways: Ways) -> None:
    """Send to each partition until that is done by this thread."""

    def is_direct(partition: int) -> bool:
        before = ways.sent
        # On a busy machine a short delivery.timeout.ms may be over.
        with suppress(KafkaTimeoutError):
            producer.send("t", b"before", partition=partition).result(PATIENCE)
        return ways.sent > before

    for partition in range(PARTITIONS):
        until(partial(is_direct, partition), every=0)


def until_open(producer: Producer, partition: int = 0) -> None:
    """Wait until the network thread waits, so that this thread may send to the partition by itself."""
    direct: Any = producer._accumulator.direct
    tp = TopicPartition("t", partition)

    def is_open() -> bool:
        with producer._accumulator.gate:
            return direct._form(tp) is not None and direct._forms[tp][0].turn() != 0

    until(is_open, every=0.001)


def records_in(servers: str) -> list[Record[Any, Any]]:
    """All records but those of `settle`, partition by partition."""
    found: list[Record[Any, Any]] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            found += consumer.poll(PATIENCE)
    found.sort(key=lambda record: (record.partition, record.offset))
    return [record for record in found if record.value != b"before"]


def stored(broker: Broker) -> list[bytes]:
    return [record.value for record in records_in(broker.bootstrap_servers)]


def trips(producer: Producer, count: int, first: int = 0) -> list[RecordMetadata]:
    return [
        producer.send("t", b"%d" % number, partition=number % PARTITIONS).result(PATIENCE)
        for number in range(first, first + count)
    ]


def expected(count: int) -> list[bytes]:
    """What `stored` says after so many trips."""
    return [
        b"%d" % number
        for partition in range(PARTITIONS)
        for number in range(count)
        if number % PARTITIONS == partition
    ]


def in_thread(work: Callable[[], Any], *, waits: bool = False) -> Callable[[], Any]:
    """Runs it on a thread; the result waits for it, and returns or raises as it did.

    Args:
        waits: comes back when the work stands inside a call.
    """
    outcome: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised by the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    if waits:
        assert thread.ident is not None
        until(standing_inside(thread.ident))

    def joined() -> Any:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        if errors:
            raise errors[0]
        return outcome[0]

    return joined


def at_the_gate(producer: Producer, future: RecordFuture, act: Callable[[], object]) -> bool:
    """Wait for a record on this thread. Once its answer has come another one calls ``act``, before it can be taken.

    It holds the producer's lock meanwhile. True if it did so: on a busy machine it may come too late.
    """
    is_over, has_acted = threading.Event(), False

    def hold() -> None:
        nonlocal has_acted
        delivery = future.delivery
        while (asked := delivery.asked) is None and not is_over.wait(0.0001):
            pass
        with producer._accumulator.gate:
            while asked is not None and asked.is_waiting and not is_over.wait(0.001):
                pass
            if asked is not None and asked.is_answered and not delivery.done:
                has_acted = True
                act()

    holding = in_thread(hold)
    try:
        future.result(PATIENCE)
    finally:
        is_over.set()
        holding()
    return has_acted


def striking() -> Callable[[], None]:
    """What sends the main thread signals until one has ended its present call by KeyboardInterrupt."""
    is_armed = True
    main = threading.main_thread().ident
    assert main is not None

    def strike(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise KeyboardInterrupt

    def ring() -> None:
        end = time.monotonic() + PATIENCE
        while is_armed and time.monotonic() < end:
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.001)

    signal.signal(signal.SIGUSR1, strike)
    return ring
