"""Ranges (C11): `assign({partition: (start, end)})` reads exactly that, and the broker hardly sends more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.consumer.support import Cluster, Shell
from tests.patience import PATIENCE

from kadence import AsyncConsumer, Broker, Consumer, Producer, TopicPartition
from kadence.admin import Admin
from kadence.errors import OffsetOutOfRangeError

COUNT, SIZE = 20_000, 100
PARTS = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture(scope="module")
def filled() -> Iterator[Broker]:
    """Four partitions with so many records each, in batches of some hundred."""
    with Broker(topics={"t": len(PARTS)}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
            for number in range(COUNT * len(PARTS)):
                producer.send("t", b"%0100d" % (number // len(PARTS)), partition=number % len(PARTS))
        yield broker


def reader(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)


def fetched(consumer: Consumer | AsyncConsumer) -> float:
    return next(
        value
        for name, value in consumer.metrics().items()
        if name.name == "bytes-consumed-total" and "topic" not in name.tags
    )


def test_c11_a_range_gives_its_records_and_iteration_ends(filled: Broker) -> None:
    with reader(filled) as consumer:
        consumer.assign({PARTS[0]: (100, 1_100), PARTS[1]: (0, 0), PARTS[2]: (COUNT - 5, COUNT)})
        offsets: dict[int, list[int]] = {}
        for record in consumer:
            offsets.setdefault(record.partition, []).append(record.offset)
        assert offsets == {0: list(range(100, 1_100)), 2: list(range(COUNT - 5, COUNT))}
        assert consumer.finished() == consumer.assignment() == frozenset(PARTS[:3])
        assert not consumer.poll(60), "at once: nothing more can come"
        assert list(consumer.records()) == []


def test_c11_polls_and_columns_end_where_iteration_does(filled: Broker) -> None:
    with reader(filled, max_poll_records=300) as consumer:
        consumer.assign({PARTS[0]: (0, 1_000), PARTS[1]: (10, 20)})
        count = 0
        while consumer.finished() != frozenset(PARTS[:2]):
            count += len(consumer.poll(10))
        assert count == 1_010
    pytest.importorskip("pyarrow")
    with reader(filled) as consumer:
        consumer.assign({PARTS[0]: (0, 1_000), PARTS[1]: (10, 20)})
        offsets: list[int] = []
        while consumer.finished() != frozenset(PARTS[:2]):
            offsets += consumer.poll_arrow(10)["offset"].to_pylist()
        assert sorted(offsets) == sorted([*range(1_000), *range(10, 20)])


def test_c11_asyncio_ends_too(filled: Broker) -> None:
    async def main() -> list[int]:
        async with AsyncConsumer(bootstrap_servers=filled.bootstrap_servers) as consumer:
            await consumer.assign({PARTS[0]: (5, 10)})
            found = [record.offset async for record in consumer]
            assert consumer.finished() == {PARTS[0]}
            return found

    assert asyncio.run(main()) == list(range(5, 10))


def test_c11_ranges_that_follow_each_other_fetch_nothing_twice(filled: Broker) -> None:
    with reader(filled) as consumer:
        given: list[int] = []
        for start in range(0, COUNT, 1_000):
            consumer.assign(dict.fromkeys(PARTS, (start, start + 1_000)))
            records = [record for record in consumer if record.partition == 0]
            given += [record.offset for record in records]
        assert given == list(range(COUNT))
        all_there_is = COUNT * len(PARTS) * SIZE
        assert fetched(consumer) < 1.2 * all_there_is


def test_c11_a_range_without_an_end_is_read_on(filled: Broker) -> None:
    with reader(filled) as consumer:
        consumer.assign({PARTS[0]: (0, 10)})
        assert len(list(consumer)) == 10
        consumer.assign({PARTS[0]: 10})
        assert next(consumer).offset == 10
        assert consumer.finished() == frozenset()
        consumer.assign({PARTS[0]: (11, 20)})
        consumer.incremental_assign({PARTS[1]: (0, 3)})
        assert len(list(consumer)) == 12, "what was assigned before keeps its end"


def test_c11_a_range_that_ends_before_it_begins_is_refused(filled: Broker) -> None:
    with reader(filled) as consumer, pytest.raises(ValueError, match="must not end before it starts"):
        consumer.assign({PARTS[0]: (5, 4)})


def test_c11_a_range_outrun_by_retention_gives_the_records_that_are_left(broker: Broker) -> None:
    """With ``latest``, the default: the end of the log is no place to go on where a range is to be read."""
    cluster = Cluster("embedded", broker.bootstrap_servers, broker=broker)
    topic = cluster.topic(1)
    partition = TopicPartition(topic, 0)
    cluster.produce(topic, 30, partitions=1)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({partition: 20})
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign({partition: (10, 25)})
        assert [record.offset for record in consumer] == [20, 21, 22, 23, 24]
        assert consumer.finished() == {partition}


@pytest.mark.needs("reading")
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.brokers("embedded")
def test_c11_a_range_that_begins_beyond_the_end_of_the_log_gives_no_other_records(
    cluster: Cluster, shell: Shell, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is raised by each poll, whatever auto.offset.reset says, until there is another range or a seek."""
    caplog.set_level("INFO", "kadence.consumer")
    topic = cluster.topic(1)
    partition = TopicPartition(topic, 0)
    cluster.produce(topic, 10, partitions=1)
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset=policy)
    shell.do(lambda: consumer.assign({partition: (50, 60)}))
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=topic):
            shell.do(lambda: consumer.poll(PATIENCE))
    assert "applying auto.offset.reset" not in caplog.text
    cluster.produce(topic, 43, partitions=1)
    shell.do(lambda: consumer.seek(partition, 50))
    offsets: list[int] = []
    while len(offsets) < 3:
        offsets += [record.offset for record in shell.do(lambda: consumer.poll(PATIENCE))]
    assert offsets == [50, 51, 52]
    shell.do(lambda: consumer.assign({partition: (90, 90)}))
    assert not shell.do(lambda: consumer.poll(PATIENCE))
    assert consumer.finished() == {partition}, "of an empty range nothing is asked"
    shell.do(lambda: consumer.assign({partition: (40, 60)}))
    shell.do(lambda: consumer.seek_to_beginning([partition]))
    (record,) = shell.do(lambda: consumer.poll(PATIENCE, max_records=1))
    assert record.offset == 0, "which asks for these"
    shell.do(consumer.close)
