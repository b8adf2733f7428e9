"""What several threads do at once to objects that the interpreter's lock protects elsewhere.

On a free-threaded Python (make test-pythons PYTHONS=3.14t) these tests show what lacks a lock of its own; under
ThreadSanitizer they show it each time. With the interpreter's lock they show that no thread waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.net.test_inbox import framed
from tests.net.test_native_heartbeat import FRAME, Link
from tests.patience import PATIENCE
from tests.records.batches import Row, from_rows

from kadence import Broker, Consumer, Producer, TopicPartition
from kadence._native.columns import ColumnsBuilder
from kadence._native.records import Cursor
from kadence.clock import SystemClock
from kadence.errors import ClosedError, ConcurrentAccessError, WakeupError
from kadence.net import drain, native_heartbeat

is_free = not getattr(sys, "_is_gil_enabled", lambda: True)()
ROUNDS = 2_000
"""Of the shortest things that threads do side by side."""


def at_once(*acts: Callable[[], object]) -> None:
    """Run each on a thread of its own, all from the same moment on; the first error is raised here."""
    errors: list[BaseException] = []
    together = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> None:
        try:
            together.wait(PATIENCE)
            act()
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.skipif(not is_free, reason="this Python has the interpreter's lock")
def test_the_interpreters_lock_stays_off(broker: Broker) -> None:
    """A module that does not say that it can do without brings it back for the whole process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    broker.create_topic("t", 1)
    code = """
        import sys
        from kadence import Consumer, Producer, TopicPartition
        servers = sys.argv[1]
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"a")
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            while not consumer.poll(1):
                pass
        ours = [name for name in sys.modules if name.startswith("kadence._native.")]
        print(len(ours) > 5, sys._is_gil_enabled())
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), broker.bootstrap_servers]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("True False", "")


def test_consumers_and_producers_side_by_side(broker: Broker) -> None:
    """Threads share one producer; each consumer is read by one thread and looked at by others."""
    broker.create_topic("t", 4)
    count, writers, readers = 2_000, 3, 3
    everything = writers * count
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
    }
    found: list[set[bytes]] = [set() for _ in range(readers)]
    is_over = threading.Event()
    consumers = [Consumer(**settings, group_id=f"g{number}") for number in range(readers)]
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1) as producer:

        def write(writer: int) -> None:
            for number in range(count):
                producer.send("t", b"%d-%d" % (writer, number), key=b"%d" % number)

        def read(number: int) -> None:
            values = found[number]
            consumers[number].subscribe(["t"])
            for record in consumers[number]:
                values.add(record.value)
                if len(values) == everything:
                    break

        def look() -> None:
            while not is_over.wait(0.001):
                for consumer in consumers:
                    consumer.metrics()
                    consumer.not_fetched()
                    consumer.assignment()

        looking = threading.Thread(target=look)
        looking.start()
        try:
            at_once(
                *[partial(write, writer) for writer in range(writers)],
                *[partial(read, number) for number in range(readers)],
            )
        finally:
            is_over.set()
            looking.join()
            for consumer in consumers:
                consumer.close()
    assert [len(values) for values in found] == [everything] * readers


def test_tables_beside_records(broker: Broker) -> None:
    """Batches are built from columns and read into columns while other threads do both with records."""
    pa = pytest.importorskip("pyarrow")
    broker.create_topic("t", 2)
    rows, count = 4_000, 2_000
    everything = 2 * (rows + count)
    table = pa.table({"value": [b"%0100d" % number for number in range(rows)]})
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
    }
    partitions = [TopicPartition("t", number) for number in range(2)]
    found = {"records": 0, "rows": 0}
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1) as producer,
        Consumer(**settings) as by_records,
        Consumer(**settings) as by_tables,
    ):
        by_records.assign(partitions)
        by_tables.assign(partitions)

        def write() -> None:
            for number in range(count):
                producer.send("t", b"%d" % number)

        def write_table() -> None:
            producer.send_arrow(table, "t")

        def read() -> None:
            while found["records"] < everything:
                found["records"] += len(by_records.poll(1))

        def read_tables() -> None:
            while found["rows"] < everything:
                found["rows"] += by_tables.poll_arrow(1).num_rows

        at_once(write, write, write_table, write_table, read, read_tables)
    assert found == {"records": everything, "rows": everything}


def test_a_wait_that_ends_beside_records_that_come(broker: Broker) -> None:
    """The network thread passes each on without the interpreter, and looks whether somebody waits for it."""
    broker.create_topic("t", 1)
    count = ROUNDS // 10
    taken = threading.Semaphore(1)
    values: list[bytes] = []
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
        Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])

        def write() -> None:
            for number in range(count):
                assert taken.acquire(timeout=PATIENCE)
                producer.send("t", b"%d" % number)

        def read() -> None:
            while len(values) < count:
                # Waits as short as this end now and then just when a record comes.
                found = consumer.poll(0.002)
                values.extend(record.value for record in found)
                for _ in found:
                    taken.release()

        at_once(write, read)
    assert values == [b"%d" % number for number in range(count)]


def test_pausing_and_seeking_beside_the_loop(broker: Broker) -> None:
    """Another thread pauses and resumes what is being iterated over, and at last closes the consumer."""
    broker.create_topic("t", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5_000):
            producer.send("t", b"%d" % number, partition=number % 2)
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", group_id="g"
    )
    consumer.subscribe(["t"])
    enough = threading.Event()
    values: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(ClosedError, WakeupError):
            for record in consumer:
                values.append(record.value)
                if len(values) == 5_000:
                    enough.set()

    def meddle() -> None:
        for _ in range(ROUNDS // 10):
            partitions = consumer.assignment()
            consumer.pause(partitions)
            consumer.resume(partitions)
        assert enough.wait(PATIENCE)
        consumer.close()

    at_once(read, meddle)
    assert sorted(values, key=int) == [b"%d" % number for number in range(5_000)]


@pytest.mark.skipif(not drain.COMPILED, reason="Windows has no poller")
def test_one_cursor_has_one_reader_at_a_time() -> None:
    """The others are refused; what is read is each record once, and nobody frees the bytes that another one reads."""
    count = 500
    data = from_rows([Row(number) for number in range(count)])
    for _ in range(ROUNDS // 100):
        cursor = Cursor("t", 0)
        place = (data, 61, len(data), count, 0, count - 1, 0, 0, 0, 0, -1, len(data), False, True)
        begin = partial(cursor.open_batch, *place)
        begin()
        taken: list[list[Any]] = [[], []]

        def read(into: list[Any], cursor: Any = cursor, taken: list[list[Any]] = taken) -> None:
            while sum(map(len, taken)) < count:
                with contextlib.suppress(ConcurrentAccessError):
                    cursor.read(into, 1)

        at_once(*[partial(read, into) for into in taken])
        assert sorted(record.offset for part in taken for record in part) == [*range(count)]
        with contextlib.suppress(ConcurrentAccessError):
            at_once(cursor.close_batch, begin, partial(cursor.read, [], count))


@pytest.mark.skipif(not drain.COMPILED, reason="Windows has no poller")
def test_columns_are_filled_by_one_reader_at_a_time() -> None:
    """Many bytes are gathered without the interpreter's lock: another reader may come at any moment."""
    count = 4_000
    data = from_rows([Row(number, value=b"v" * 100) for number in range(count)])
    for _ in range(ROUNDS // 100):
        cursor = Cursor("t", 0)
        cursor.open_batch(data, 61, len(data), count, 0, count - 1, 0, 0, 0, 0, -1, len(data), False, True)
        rows = [0, 0]

        def gather(number: int, cursor: Any = cursor, rows: list[int] = rows) -> None:
            builder = ColumnsBuilder()
            is_over = False
            while not is_over:
                with contextlib.suppress(ConcurrentAccessError):
                    builder.gather(cursor, count // 4, len(data))
                    is_over = builder.rows == rows[number]
                    rows[number] = builder.rows

        at_once(partial(gather, 0), partial(gather, 1))
        assert sum(rows) == count


@pytest.mark.skipif(not drain.COMPILED, reason="Windows has no poller")
def test_wakes_beside_the_end_of_what_they_wake() -> None:
    """A descriptor that was closed may be another file's a moment later: nobody writes to it."""
    for _ in range(ROUNDS // 10):
        wake = drain.drain.Wake()
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        places: list[int] = []

        def close(wake: Any = wake, places: list[int] = places) -> None:
            wake.close()
            places.extend(os.pipe())

        at_once(wake.wake, wake.wake, close)
        os.set_blocking(places[0], False)
        with pytest.raises(BlockingIOError):
            os.read(places[0], 8)
        for place in (ours, theirs, *places):
            os.close(place)


@pytest.mark.skipif(not native_heartbeat.AVAILABLE, reason="Windows has no native heartbeat")
def test_the_native_heartbeat_and_two_network_threads() -> None:
    """Each arms its own heartbeat over and over, reads what the native thread sent, and looks at when it did."""
    now = SystemClock().now_ms()

    def beat() -> None:
        link = Link()
        try:
            for _ in range(50):
                assert link.arm(due=now, interval=1)
                link.read(len(FRAME))
                assert link.heartbeat.sent_at >= now
                link.heartbeat.disarm()
                while link.heartbeat.count_sent():
                    pass
                link.stream.write_now([memoryview(framed(b"of the network thread"))])
        finally:
            link.close()

    at_once(beat, beat)
