"""Tasks with the real client on the embedded broker: nothing is fetched in vain, and nothing is lost or seen twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE

from kadence import Broker, Producer
from kadence.records import arrow
from kadence_spark.pool import Pool
from kadence_spark.source.clients import ConsumerRecords, executor_client
from kadence_spark.source.executor import ReadSettings, read_ranges
from kadence_spark.source.planning import OffsetRange

NAMES = ("partition", "offset", "value")
PARTITIONS = 8
RECORDS = 2_000
Row = tuple[int, int]


def fill(broker: Broker, topic: str, partitions: int, records: int, **settings: Any) -> None:
    broker.create_topic(topic, partitions)
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1_000, **settings) as producer:
        sent = [
            producer.send(topic, b"%0100d" % number, partition=number % partitions)
            for number in range(records * partitions)
        ]
    # What could not be written is told here, and not by a reader that waits for it.
    for future in sent:
        future.result(PATIENCE)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Topic ``small`` in batches of about 130 records, topic ``big`` in batches of about 1,300."""
    with Broker() as running:
        fill(running, "small", PARTITIONS, RECORDS, batch_size=16_384)
        fill(running, "big", PARTITIONS, RECORDS, batch_size=163_840)
        yield running


def connect(broker: Broker, **settings: str) -> ConsumerRecords:
    client = {"bootstrap.servers": broker.bootstrap_servers}
    client |= {name.replace("_", "."): value for name, value in settings.items()}
    return executor_client(client, "test", NAMES)


def task(topic: str, start: int, end: int, partitions: int = PARTITIONS) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(topic, partition, start, end) for partition in range(partitions))


def batches(client: ConsumerRecords, ranges: tuple[OffsetRange, ...]) -> Iterator[pa.RecordBatch]:
    return read_ranges(
        ranges, client, ReadSettings(NAMES, poll_timeout_ms=int(PATIENCE * 1_000)), arrow.schema(NAMES)
    )


def rows(batch: pa.RecordBatch) -> list[Row]:
    return list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))


def wanted(start: int, end: int, partitions: int = PARTITIONS) -> list[Row]:
    return [(partition, offset) for partition in range(partitions) for offset in range(start, end)]


def bytes_fetched(client: ConsumerRecords) -> float:
    return client._consumer._shared_state.measures.fetches.bytes.total


@pytest.mark.parametrize("topic", ["small", "big"])
def test_what_lies_beyond_an_end_serves_the_next_micro_batch(broker: Broker, topic: str) -> None:
    """20 micro-batches on one worker cost the broker hardly more bytes than one batch of everything."""
    at_once = connect(broker)
    assert sum(batch.num_rows for batch in batches(at_once, task(topic, 0, RECORDS))) == PARTITIONS * RECORDS
    needed = bytes_fetched(at_once)
    at_once.close()
    pool = Pool[ConsumerRecords]()
    client = connect(broker)
    seen: list[Row] = []
    step = RECORDS // 20
    for start in range(0, RECORDS, step):
        with pool.borrow("key", lambda: client) as borrowed:
            assert borrowed is client
            for batch in batches(client, task(topic, start, start + step)):
                seen += rows(batch)
    assert sorted(seen) == wanted(0, RECORDS)
    fetched = bytes_fetched(client)
    pool.close()
    assert fetched <= 1.5 * needed


def test_64_partitions_in_one_task_with_a_buffer_that_is_always_full(broker: Broker) -> None:
    """4 MB, of which 1 MiB may be held at a time."""
    fill(broker, "wide", 64, 500, batch_size=16_384)
    client = connect(broker, buffer_memory="1048576", max_partition_fetch_bytes="65536")
    seen = [row for batch in batches(client, task("wide", 5, 495, 64)) for row in rows(batch)]
    client.close()
    assert sorted(seen) == wanted(5, 495, 64)


def test_connections_that_break_in_the_midst_of_a_task(broker: Broker) -> None:
    client = connect(broker, max_partition_fetch_bytes="20000", fetch_max_bytes="50000")
    seen: list[Row] = []
    for number, batch in enumerate(batches(client, task("small", 10, 1_500))):
        seen += rows(batch)
        if number in (1, 4):
            broker.disconnect_clients()
    client.close()
    assert sorted(seen) == wanted(10, 1_500)


def test_a_task_that_is_tried_again_and_one_that_runs_twice(broker: Broker) -> None:
    """Spark ends a task in its midst and runs its range again, or runs it on two workers and takes the faster one."""
    pool = Pool[ConsumerRecords]()
    ended = connect(broker)
    ranges = task("big", 300, 1_700)

    def lost() -> None:
        with pool.borrow("key", lambda: ended) as client:
            assert client is ended
            next(batches(ended, ranges))
            raise RuntimeError("the executor was lost")

    with pytest.raises(RuntimeError, match="was lost"):
        lost()
    assert len(pool) == 0
    clients = connect(broker), connect(broker)
    turns = {number: batches(client, ranges) for number, client in enumerate(clients)}
    seen: list[list[Row]] = [[], []]
    while turns:
        for number, turn in list(turns.items()):
            batch = next(turn, None)
            if batch is None:
                del turns[number]
            else:
                seen[number] += rows(batch)
    for client in clients:
        client.close()
    assert sorted(seen[0]) == sorted(seen[1]) == wanted(300, 1_700)
