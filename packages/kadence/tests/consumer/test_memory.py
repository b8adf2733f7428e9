"""`buffer.memory` is a hard cap on bytes held (A3, KIP-81), whatever the backlog and however it is packed."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
from tests.consumer.support import read
from tests.patience import PATIENCE, until

from kadence import Broker, Consumer, NotFetchedReason, Producer, TopicPartition
from kadence.consumer.shared_state import SharedState
from kadence.net.arena import Arena, ArenaPool
from kadence.records import FetchedRecords, codecs

MIB = 1 << 20
KIB = 1 << 10


class Held:
    """The most bytes that one consumer held at once: looked at whenever there may be more of them.

    A batch that is decompressed and used up within one poll never shows in the books; here it is counted, too.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.most = self.most_mapped = 0
        self.pool: ArenaPool | None = None
        self.shared_state: SharedState | None = None
        lend, decompress, make = ArenaPool.lend, codecs.decompress, SharedState.__init__

        def lent(pool: ArenaPool, length: int) -> Arena:
            arena = lend(pool, length)
            self.pool = pool
            self.look()
            self.most_mapped = max(self.most_mapped, pool.in_use + pool.spare)
            return arena

        def decompressed(codec: int, data: memoryview, limit: int) -> Any:
            result = decompress(codec, data, limit)
            self.look(memoryview(result).nbytes)
            return result

        def made(shared_state: SharedState, *args: Any, **kwargs: Any) -> None:
            make(shared_state, *args, **kwargs)
            self.shared_state = shared_state

        patch.setattr(ArenaPool, "lend", lent)
        patch.setattr(f"{FetchedRecords.__module__}.decompress", decompressed)
        patch.setattr(SharedState, "__init__", made)

    def look(self, more: int = 0) -> None:
        if self.pool is not None and self.shared_state is not None:
            shared_state = self.shared_state
            now = self.pool.held() + shared_state.decompressed_bytes + shared_state.copied_bytes + more
            self.most = max(self.most, now)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def parts(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def fill(broker: Broker, count: int, size: int, partitions: int, **settings: Any) -> None:
    """``count`` records of ``size`` bytes, round robin."""
    broker.create_topic("t", partitions)
    value = os.urandom(size // 4) * 4
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20, **settings) as producer:
        for number in range(count):
            producer.send("t", value, partition=number % partitions)


def reader(broker: Broker, cap: int, partitions: int, **settings: Any) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        buffer_memory=cap,
        **settings,
    )
    consumer.assign(parts(partitions))
    return consumer


@pytest.mark.parametrize("cap", [2 * MIB, 5 * MIB])
def test_a3_no_more_is_held_than_a_small_cap(broker: Broker, held: Held, cap: int) -> None:
    fill(broker, 64 * 16, 64 * KIB, 8)
    with reader(broker, cap, 8, max_poll_records=3) as consumer:
        assert len(read(consumer, 64 * 16)) == 64 * 16
    assert held.most <= cap


def test_a3_a_gibibyte_goes_through_32_mebibytes(broker: Broker, held: Held) -> None:
    fill(broker, 16 * KIB, 64 * KIB, 8, batch_size=MIB, buffer_memory=64 * MIB)
    next_offsets = [0] * 8
    with reader(broker, 32 * MIB, 8) as consumer:
        while sum(next_offsets) < 16 * KIB:
            records = consumer.poll(PATIENCE)
            assert records
            for record in records:
                assert record.offset == next_offsets[record.partition]
                next_offsets[record.partition] += 1
    assert next_offsets == [2 * KIB] * 8
    assert 4 * MIB < held.most <= 32 * MIB
    assert held.most_mapped <= 32 * MIB, "what is kept for the next fetches is of the same memory"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a3_what_is_decompressed_counts(broker: Broker, held: Held, compression: str) -> None:
    """Sixteen partitions, each left in the middle of a batch: together they would be 16 MiB."""
    fill(broker, 16 * 64, 64 * KIB, 16, compression_type=compression, batch_size=MIB)
    with reader(broker, 8 * MIB, 16, max_poll_records=3) as consumer:
        assert len(read(consumer, 16 * 64)) == 16 * 64
    assert MIB <= held.most <= 8 * MIB


def test_a3_data_that_decompresses_to_a_thousand_times_its_size(broker: Broker, held: Held) -> None:
    """1 GiB once it is read, less than 1 MiB in the log."""
    broker.create_topic("t", 8)
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=20, compression_type="zstd", batch_size=4 * MIB
    ) as producer:
        for number in range(1024):
            producer.send("t", bytes(MIB - 200), partition=number % 8)
    count = 0
    with reader(broker, 32 * MIB, 8, max_poll_records=1) as consumer:
        while count < 1024:
            records = consumer.poll(PATIENCE)
            assert records
            count += len(records)
    assert held.most <= 32 * MIB


def test_a3_one_batch_above_the_cap_is_let_in_alone() -> None:
    with Broker(topics={"t": 2}, config={"message.max.bytes": 4 * MIB}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=4 * MIB) as producer:
            for partition in (0, 1):
                producer.send("t", bytes(3 * MIB), partition=partition).result(PATIENCE)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", buffer_memory=MIB
        ) as consumer:
            consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
            sizes = [len(record.value or b"") for record in read(consumer, 2)]
    assert sizes == [3 * MIB, 3 * MIB]


@pytest.mark.parametrize(
    ("size", "what"),
    [(100, "a little of each response: copied out"), (64 * KIB, "most of a response: fetched again")],
)
def test_a3_paused_partitions_do_not_stand_in_the_way_of_others(
    broker: Broker, held: Held, size: int, what: str
) -> None:
    """The cap has room for one response; a partition of it is paused before its records are taken."""
    broker.create_topic("t", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
        for _ in range(20):
            producer.send("t", bytes(size), partition=0)
        for _ in range(20 * 16):
            producer.send("t", bytes(64 * KIB), partition=1)
    offsets: dict[int, list[int]] = {0: [], 1: []}

    def take(consumer: Consumer) -> None:
        records = consumer.poll(PATIENCE)
        assert records, f"nothing came any more ({what}): {consumer.not_fetched()}"
        for record in records:
            offsets[record.partition].append(record.offset)

    with reader(broker, 2 * MIB, 2, max_poll_records=1) as consumer:
        while not offsets[0]:
            take(consumer)
        consumer.pause(parts(1))
        before = len(offsets[0])
        while len(offsets[1]) < 20 * 16:
            take(consumer)
        assert len(offsets[0]) == before
        consumer.resume(parts(1))
        while len(offsets[0]) < 20:
            take(consumer)
    assert offsets == {0: list(range(20)), 1: list(range(20 * 16))}
    assert held.most <= 2 * MIB


def test_a3_partitions_paused_while_memory_is_full_starve_no_others(broker: Broker) -> None:
    """18 MiB in 12 partitions, room for 8: each is paused once it gave something, and keeps what was fetched of it."""
    fill(broker, 12 * 24, 64 * KIB, 12)
    seen: set[int] = set()
    with reader(broker, 8 * MIB, 12, max_poll_records=1) as consumer:
        while len(seen) < 12:
            records = consumer.poll(PATIENCE)
            assert records, f"{12 - len(seen)} partitions gave nothing: {consumer.not_fetched()}"
            seen.update(record.partition for record in records)
            consumer.pause({TopicPartition(record.topic, record.partition) for record in records})


@pytest.mark.parametrize("max_poll_records", [1, 500])
def test_a3_the_metrics_tell_that_one_batch_decompressed_to_more_than_the_cap(
    broker: Broker, max_poll_records: int
) -> None:
    """Left in the midst of it, and read whole by one poll: between two turns of the network thread."""
    servers, size = broker.bootstrap_servers, 16 * MIB
    with Producer(
        bootstrap_servers=servers, linger_ms=60_000, compression_type="zstd", batch_size=size
    ) as producer:
        for _ in range(8):
            producer.send("t", bytes(MIB - 200), partition=0)
    with reader(broker, 2 * MIB, 1, max_poll_records=max_poll_records) as consumer:
        assert len(read(consumer, 8)) == 8
        assert own(consumer, "buffer-exceeded-total") == 1
        assert 8 * (MIB - 200) < own(consumer, "buffer-held-bytes-max") < 10 * MIB


def test_a3_many_answers_with_one_small_record_each_hold_about_their_own_bytes(broker: Broker) -> None:
    """Each was read into an arena, of which the smallest takes 16 KiB."""
    broker.create_topic("t", 1)
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
        reader(broker, MIB, 1, max_partition_fetch_bytes=64 * KIB) as consumer,
    ):
        producer.send("t", b"4", partition=0).result(PATIENCE)
        assert len(read(consumer, 1)) == 1
        # Metrics may be 0.5 s behind, so each round takes as long.
        for _ in range(20):
            came = own(consumer, "incoming-byte-total")
            producer.send("t", b"4", partition=0).result(PATIENCE)
            until(partial(has_more, consumer, came), every=0.001)
        assert 10 * 70 < own(consumer, "buffer-held-bytes") < 20 * 500
        assert own(consumer, "buffer-held-bytes-max") < 20 * 500 + 4 * 16 * KIB
        while own(consumer, "buffer-held-bytes"):
            consumer.poll(PATIENCE)


def has_more(consumer: Consumer, came: float) -> bool:
    return own(consumer, "incoming-byte-total") > came


def own(consumer: Consumer, name: str) -> float:
    return next(value for metric, value in consumer.metrics().items() if metric.name == name)


@pytest.mark.parametrize("limit", [None, 20, 1])
def test_a_poll_gives_no_more_than_the_memory_and_one_batch(limit: int | None) -> None:
    """Batches of a few bytes that become a MiB each: 500 of them would be half a GiB."""
    with Broker(topics={"t": 2}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
            for number in range(20):
                producer.send_and_wait("t", bytes(MIB // 2), partition=number % 2)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", buffer_memory=MIB
        ) as consumer:
            consumer.assign_topics("t", start="earliest")
            sizes: list[int] = []
            while sum(sizes) < 10 * MIB:
                records = consumer.poll(PATIENCE, max_records=limit)
                sizes.append(sum(len(record.value or b"") for record in records))
            assert max(sizes) <= 3 * MIB // 2


@pytest.mark.parametrize("partitions", [1, 4])
def test_full_memory_does_not_make_a_busy_consumer_unready(broker: Broker, partitions: int) -> None:
    """The application works on the records of a poll, and what waits for the next one fills `buffer.memory`."""
    fill(broker, 64 * 4, 64 * KIB, partitions)
    with reader(broker, 2 * MIB, partitions, max_poll_records=1) as consumer:
        assert consumer.poll(PATIENCE)
        until(
            lambda: {each.reason for each in consumer.not_fetched().values()} == {NotFetchedReason.MEMORY},
            what=consumer.not_fetched,
        )
        assert consumer.health().ready
