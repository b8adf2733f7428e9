"""How much one poll_arrow() returns, and when the memory of large columns is given back (A1, A3)."""

from __future__ import annotations

from tests.consumer.fetch.test_fetch_collector import Arena, shared_partition, shared_state
from tests.patience import PATIENCE

from kadence import Broker, Consumer, Producer, TopicPartition
from kadence.config import ConsumerConfig
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.records import OWN_COLUMNS, encode_batch, release_idle, spare_memory
from kadence_testing import FakeClock

ALL = 1 << 31


def put(shared: SharedState, one: SharedPartition, count: int, size: int) -> None:
    data = encode_batch([(0, None, bytes(size), ())] * count)
    shared.put(CompletedFetch(one, 1, 0, memoryview(data), Arena(), None))


def rows(collector: FetchCollector, max_bytes: int | None, limit: int = ALL) -> list[tuple[int, int]]:
    """(partition, rows) in the order served."""
    collector.mark_processed()
    taken = collector.take_columns(limit, columns=OWN_COLUMNS, max_bytes=max_bytes)
    return [(partition.partition, sum(part.count for part in parts)) for partition, parts in taken]


def test_a1_bytes_bound_the_columns_of_all_partitions_together() -> None:
    shared = shared_state()
    for number in range(3):
        put(shared, shared_partition(number), 10, 100)
    subject = FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 20)
    assert rows(subject, 1_500) == [(0, 10), (1, 5)]
    assert rows(subject, 1_500) == [(2, 10), (1, 5)]
    assert rows(subject, 1_500) == []


def test_a1_no_partition_is_begun_for_the_last_quarter_of_the_bytes() -> None:
    shared = shared_state()
    for number in range(3):
        put(shared, shared_partition(number), 10, 100)
    subject = FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 20)
    assert rows(subject, 1_200) == [(0, 10)]
    assert rows(subject, 1_400) == [(1, 10), (2, 4)]
    assert rows(subject, 1) == [(2, 1)]


def test_a1_rows_bound_them_too_and_a_record_above_the_bytes_comes_alone() -> None:
    shared = shared_state()
    put(shared, shared_partition(0), 3, 5_000)
    put(shared, shared_partition(1), 10, 10)
    subject = FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 20)
    assert rows(subject, 1_000) == [(0, 1)]
    assert rows(subject, 1_000, limit=4) == [(1, 4)]
    assert rows(subject, None, limit=4) == [(0, 2), (1, 2)]


def test_c7_columns_that_were_put_back_come_again_after_a_fetch() -> None:
    shared, one = shared_state(), shared_partition(0)
    shared.shared_partitions = {one.partition: one}
    put(shared, one, 10, 100)
    subject = FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 20)
    assert rows(subject, 300) == [(0, 3)]
    assert rows(subject, 300) == [(0, 3)]
    subject.put_back()
    at = one.current()
    assert at is not None
    assert at.offset == 3


def config(**settings: object) -> ConsumerConfig:
    return ConsumerConfig.parse(bootstrap_servers="a:1", **settings)


def test_a1_records_bound_a_table_only_where_the_user_said_so() -> None:
    assert config().arrow_rows == -1
    assert config(max_poll_records=100).arrow_rows == 100


def test_a1_a_table_is_as_large_as_its_bytes_and_a_call_may_say_otherwise(broker: Broker) -> None:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
        for _ in range(3_000):
            producer.send("t", bytes(100))
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", max_poll_arrow_bytes=100_000
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.poll_arrow(PATIENCE).num_rows == 1_000
        assert consumer.poll_arrow(PATIENCE, max_records=7).num_rows == 7
        assert consumer.poll_arrow(PATIENCE, max_records=-1).num_rows > 1_000


def test_a3_memory_of_columns_is_given_back_by_time_and_not_by_a_poll_without_rows() -> None:
    release_idle(everything=True)
    clock = FakeClock()
    shared = shared_state()
    put(shared, shared_partition(0), 2, 1 << 20)
    subject = FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 23, clock=clock)
    assert rows(subject, None) == [(0, 2)]
    kept = spare_memory()
    assert kept >= 2 << 20
    for _ in range(3):
        assert rows(subject, None) == []
    assert spare_memory() == kept, "the next records may come at once"
    for _ in range(2):
        clock.advance(5_000)
        assert rows(subject, None) == []
    assert spare_memory() == 0
