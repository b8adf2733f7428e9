"""Queues end to end: on the embedded broker, and the stories that Kafka decides on Kafka, too (KIP-932)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.configs import set_configs

from kadence import (
    AcknowledgeType,
    Admin,
    AsyncShareConsumer,
    Broker,
    Consumer,
    Producer,
    ProducerRecord,
    QueueTotals,
    Record,
    Retry,
    ShareConsumer,
    TopicPartition,
)
from kadence.admin import ConfigResource
from kadence.errors import IllegalStateError


class Queue:
    """A topic and a share group of one test, which begins at the oldest record."""

    def __init__(self, servers: str, partitions: int = 1) -> None:
        self.servers = servers
        self.topic = f"jobs-{uuid.uuid4()}"
        self.group = f"queue-{uuid.uuid4()}"
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({self.topic: partitions})
            set_configs(admin, ConfigResource("group", self.group), {"share.auto.offset.reset": "earliest"})

    def write(self, *values: bytes) -> None:
        partitions = self.partitions
        with Producer(bootstrap_servers=self.servers) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic, value, partition=number % partitions)

    @property
    def partitions(self) -> int:
        with Admin(bootstrap_servers=self.servers) as admin:
            return len(admin.describe_topics([self.topic])[self.topic].partitions)

    def settings(self, **settings: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, "group.id": self.group, **settings}

    def member(self, **settings: Any) -> ShareConsumer[Any, Any]:
        consumer: ShareConsumer[Any, Any] = ShareConsumer(self.settings(**settings))
        consumer.subscribe(self.topic)
        return consumer


@pytest.fixture(params=["embedded", "kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    """A broker of each kind."""
    made: Any = request.getfixturevalue("broker" if request.param == "embedded" else "kafka")
    return str(made.bootstrap_servers)


@pytest.fixture
def queue(servers: str) -> Queue:
    return Queue(servers)


@pytest.fixture
def embedded(broker: Broker) -> Queue:
    """For what needs no second opinion."""
    return Queue(broker.bootstrap_servers)


def taken(consumer: ShareConsumer[Any, Any], count: int) -> list[Record[Any, Any]]:
    """So many records, in one or several polls; of an explicit consumer each poll but the last accepts."""
    records: list[Record[Any, Any]] = []
    while len(records) < count:
        more = consumer.poll(30, max_records=count - len(records))
        assert more, "nothing came for 30 s"
        records += more
    return records


def test_records_come_once_and_what_was_released_comes_again_with_a_higher_count(queue: Queue) -> None:
    queue.write(b"good", b"later", b"broken")
    mode = {"share.acknowledgement.mode": "explicit"}
    with queue.member(**mode) as consumer:
        good, later, broken = taken(consumer, 3)
        assert [each.delivery_count for each in (good, later, broken)] == [1, 1, 1]
        consumer.acknowledge(good)
        consumer.acknowledge(later, AcknowledgeType.RELEASE)
        consumer.acknowledge(broken, AcknowledgeType.REJECT)
        assert consumer.commit() == {TopicPartition(queue.topic, 0): None}
        [again] = taken(consumer, 1)
        assert (again.value, again.delivery_count) == (b"later", 2)
        with pytest.raises(IllegalStateError, match="acknowledge"):
            consumer.poll()
        assert consumer.lock_timeout is not None
    # It left without a word on it.
    with queue.member(**mode) as consumer:
        [once_more] = taken(consumer, 1)
        assert (once_more.value, once_more.delivery_count) == (b"later", 3)
        consumer.acknowledge(once_more)
        consumer.commit()
        assert not consumer.poll(0.5)


def test_leaving_releases_what_the_last_poll_returned_and_a_commit_accepts_it(queue: Queue) -> None:
    queue.write(b"1", b"2", b"3")
    with queue.member() as consumer:
        taken(consumer, 1)
        taken(consumer, 1)
    with queue.member() as consumer:
        records = taken(consumer, 2)
        assert [each.value for each in records] == [b"2", b"3"]
        assert records[0].delivery_count == 2
        consumer.commit()
        assert not consumer.poll(0.5)


def test_q3_a_member_that_releases_its_record_and_leaves_adds_one_delivery(queue: Queue) -> None:
    queue.write(b"once more")
    mode = {"share.acknowledgement.mode": "explicit"}
    for deliveries in (1, 2):
        with queue.member(**mode) as consumer:
            [record] = taken(consumer, 1)
            assert record.delivery_count == deliveries
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
            consumer.commit()


def test_q3_members_that_take_one_record_each_leave_the_others_as_they_were(queue: Queue) -> None:
    """Kafka's limit is five deliveries: after that many restarts records that nobody saw would be archived."""
    with Producer(bootstrap_servers=queue.servers) as producer:
        for number in range(4):
            # A batch each.
            producer.send(queue.topic, b"%d" % number).result(30)
    seen: list[Record[Any, Any]] = []
    for _ in range(3):
        with queue.member() as consumer:
            seen.append(next(iter(consumer)))
            consumer.commit()
    with queue.member() as consumer:
        seen += taken(consumer, 1)
        consumer.commit()
    assert [(each.value, each.delivery_count) for each in seen] == [
        (b"%d" % number, 1) for number in range(4)
    ]


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_q3_whoever_fails_and_leaves_has_the_rest_of_a_batch_counted_but_with_record_limit(
    embedded: Queue, mode: str
) -> None:
    with Producer(bootstrap_servers=embedded.servers, linger_ms=60_000) as producer:
        # One batch.
        for value in (b"bad", b"2", b"3"):
            producer.send(embedded.topic, value)
    settings = {"share.acquire.mode": mode, "max.poll.records": 1}
    with contextlib.suppress(ZeroDivisionError), embedded.member(**settings) as consumer:
        next(iter(consumer))
        raise ZeroDivisionError
    with embedded.member() as consumer:
        counts = [each.delivery_count for each in taken(consumer, 3)]
        consumer.commit()
    assert counts == ([2, 2, 2] if mode == "batch_optimized" else [2, 1, 1])


def test_two_members_share_a_partition_and_each_record_is_done_once(embedded: Queue) -> None:
    embedded.write(*(b"%d" % number for number in range(200)))
    seen: list[bytes] = []
    with embedded.member() as first, embedded.member() as second:
        while len(seen) < 200:
            for consumer in (first, second):
                seen += [each.value for each in consumer.poll(0.2, max_records=10)]
        first.commit()
        second.commit()
    assert Counter(seen) == Counter(b"%d" % number for number in range(200))


def test_an_iteration_accepts_step_by_step(embedded: Queue) -> None:
    embedded.write(b"1", b"2", b"3")
    with embedded.member() as consumer:
        for record in consumer:
            if record.value == b"2":
                break
    with embedded.member() as consumer:
        assert [each.value for each in taken(consumer, 2)] == [b"2", b"3"]
        consumer.commit()


def test_steps_of_an_iteration_accept_what_they_have_passed_and_the_rest_comes_again(queue: Queue) -> None:
    queue.write(*(b"%d" % number for number in range(3_000)))
    with queue.member() as consumer:
        for record in consumer:
            if record.value == b"1999":
                break
        assert consumer._core.polls.begun < 1_000
    with queue.member() as consumer:
        records = taken(consumer, 1_001)
        assert [int(each.value) for each in records] == list(range(1_999, 3_000))
        assert records[0].delivery_count == 2
        consumer.commit()
        assert not consumer.poll(0.5)


def test_tables_are_accepted_by_the_next_poll_or_a_commit(queue: Queue) -> None:
    pytest.importorskip("pyarrow")
    queue.write(*(b"%d" % number for number in range(3_000)))
    values: list[int] = []
    with queue.member() as consumer:
        while len(values) < 3_000:
            table = consumer.poll_arrow(30, max_records=min(700, 3_000 - len(values)))
            values += map(int, table.column("value").to_pylist())
        consumer.commit()
    assert values == list(range(3_000))
    with queue.member() as consumer:
        assert not consumer.poll(0.5)


def test_rows_of_a_table_are_acknowledged(embedded: Queue) -> None:
    pytest.importorskip("pyarrow")
    embedded.write(b"1", b"2")
    with embedded.member(**{"share.acknowledgement.mode": "explicit"}) as consumer:
        rows = 0
        while rows < 2:
            table = consumer.poll_arrow(30)
            assert set(table.column("deliveryCount").to_pylist()) == {1}
            consumer.acknowledge(table)
            rows += table.num_rows
        assert consumer.commit() == {TopicPartition(embedded.topic, 0): None}


def test_the_calls_are_awaited_for_asyncio(embedded: Queue) -> None:
    embedded.write(b"1", b"2")

    async def program() -> list[bytes]:
        seen = []
        async with AsyncShareConsumer(embedded.settings()) as consumer:
            await consumer.subscribe(embedded.topic)
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 2:
                    await consumer.commit()
                    consumer.stop()
        return seen

    assert asyncio.run(program()) == [b"1", b"2"]


# ------------------------------------------------------------ process


class Handler:
    """A handler that notes each attempt: the value, its number, and the delivery count."""

    def __init__(self, work: Callable[[Record[Any, Any], Any], Any]) -> None:
        self.work = work
        self.attempts: list[tuple[bytes, int, int | None]] = []

    def __call__(self, record: Record[Any, Any], context: Any) -> Any:
        self.attempts.append((record.value, context.attempt, context.delivery_count))
        return self.work(record, context)


def fails(record: Record[Any, Any], context: Any) -> None:
    if record.value == b"bad" or (record.value == b"once" and context.attempt == 1):
        raise ValueError("of the handler")


def stops_when_empty(consumer: Any, queue: Queue) -> None:
    """Stop it from another thread once the queue has nothing left."""
    with Admin(bootstrap_servers=queue.servers) as admin:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = admin.list_share_group_offsets(queue.group)
            if found and all(each.lag == 0 for each in found.values()):
                break
            time.sleep(0.01)
    consumer.stop()


def processed(
    queue: Queue, work: Callable[[Record[Any, Any], Any], Any], **more: Any
) -> tuple[QueueTotals, Handler]:
    """Process until nothing is left."""
    handler = Handler(work)
    with queue.member() as consumer:
        watcher = threading.Thread(target=stops_when_empty, args=(consumer, queue))
        watcher.start()
        totals = consumer.process(handler, workers=4, **more)
        watcher.join()
    return totals, handler


def read_all(queue: Queue, topic: str) -> list[Record[Any, Any]]:
    """What a topic of one partition has."""
    with Consumer(bootstrap_servers=queue.servers) as consumer:
        consumer.assign_topics(topic, start="earliest", end="latest")
        return list(consumer)


def test_process_accepts_retries_in_place_and_rejects_after_the_last_attempt(queue: Queue) -> None:
    queue.write(b"good", b"once", b"bad")
    totals, handler = processed(queue, fails, retry=Retry(attempts=2, backoff=0.01))
    assert sorted(handler.attempts) == [
        (b"bad", 1, 1),
        (b"bad", 2, 1),
        (b"good", 1, 1),
        (b"once", 1, 1),
        (b"once", 2, 1),
    ]
    assert (totals.done, totals.failed, totals.rejected) == (3, 3, 1)


def test_process_writes_a_dead_letter_before_it_accepts(embedded: Queue) -> None:
    letters = f"letters-{uuid.uuid4()}"
    with Admin(bootstrap_servers=embedded.servers) as admin:
        admin.create_topics({letters: 1})
    embedded.write(b"bad")
    totals, _ = processed(embedded, fails, dead_letter=letters)
    assert (totals.done, totals.dead_lettered, totals.rejected) == (1, 1, 0)
    [letter] = read_all(embedded, letters)
    assert letter.value == b"bad"
    assert dict(letter.headers)["kadence.error.topic"] == embedded.topic.encode()


def test_process_sends_what_handlers_return_and_runs_on_an_event_loop(embedded: Queue) -> None:
    outputs = f"outputs-{uuid.uuid4()}"
    with Admin(bootstrap_servers=embedded.servers) as admin:
        admin.create_topics({outputs: 1})
    embedded.write(b"1", b"2")

    async def program() -> Any:
        async with AsyncShareConsumer(embedded.settings()) as consumer:
            await consumer.subscribe(embedded.topic)
            seen: list[bytes] = []

            async def handle(record: Record[Any, Any]) -> ProducerRecord:
                seen.append(record.value)
                if len(seen) == 2:
                    consumer.stop()
                return ProducerRecord(outputs, record.value)

            return await consumer.process(handle)

    totals = asyncio.run(program())
    assert totals.done == 2
    assert sorted(each.value for each in read_all(embedded, outputs)) == [b"1", b"2"]


def test_what_process_did_not_finish_is_released(embedded: Queue) -> None:
    embedded.write(b"1", b"2", b"3")
    with embedded.member() as consumer:

        def handle(record: Record[Any, Any]) -> None:
            consumer.stop()

        totals = consumer.process(handle, workers=1)
    assert totals.done == 1
    with embedded.member() as consumer:
        assert [each.value for each in taken(consumer, 2)] == [b"2", b"3"]
        consumer.commit()
