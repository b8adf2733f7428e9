"""Consumers that are alive and read nothing, or little, or hold too much."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from tests.consumer.support import poll_until, read
from tests.patience import until
from tests.weaknesses.conftest import Served

from kadence import NotFetchedReason, TopicPartition
from kadence.protocol import error_codes
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kadence.records import FetchedRecords, encode_batch

PARTITION = TopicPartition("t", 0)
MIB = 1 << 20


@pytest.mark.parametrize("served", [(3, 1)], indirect=True)
def test_a_partition_that_is_not_fetched_says_why(served: Served) -> None:
    """Consumers that are alive and consume nothing, nobody knows why (RDK #2933, #1605, CK #371, #629, AIO #983)."""
    served.produce(4_000, partitions=1, size=1_000)
    consumer = served.consumer(max_poll_records=3)
    full, paused, missing = PARTITION, TopicPartition("t", 1), TopicPartition("no-such-topic", 0)
    wanted = {
        full: NotFetchedReason.BUFFERED,
        paused: NotFetchedReason.PAUSED,
        missing: NotFetchedReason.UNKNOWN_TOPIC,
    }
    consumer.assign(list(wanted))
    consumer.pause([paused])

    def told() -> bool:
        return {partition: each.reason for partition, each in consumer.not_fetched().items()} == wanted

    until(told, what=consumer.not_fetched)
    assert all(each.since >= 0 for each in consumer.not_fetched().values())


@pytest.mark.parametrize("served", [(3, 3)], indirect=True)
def test_no_partition_stalls_when_leaders_move_and_answers_are_lost(served: Served) -> None:
    """kafka-python stalled after one batch while it awaited the validation of an epoch (KP #3106)."""
    consumer = served.consumer(metadata_max_age_ms=200, request_timeout_ms=1_000)
    consumer.assign([TopicPartition("t", number) for number in range(3)])
    nodes = served.broker.node_ids
    for turn in range(3):
        served.produce(30, start=30 * turn, partitions=3)
        assert {record.partition for record in read(consumer, 30)} == {0, 1, 2}
        with served.faults.drop(OffsetForLeaderEpochRequest, times=1):
            for partition in range(3):
                served.broker.move_leader("t", partition, nodes[(partition + turn + 1) % 3])
            poll_until(consumer, lambda: True)
            served.produce(3, start=1_000 + 3 * turn, partitions=3)
            assert {record.partition for record in read(consumer, 3)} == {0, 1, 2}


def test_a_full_buffer_costs_no_second(served: Served) -> None:
    """librdkafka sleeps a second when a queue is full: a cliff of throughput (RDK #3662, #2879, #1377, #4284)."""
    served.produce(24 * 16, size=MIB // 16)
    consumer = served.consumer(buffer_memory=MIB, max_partition_fetch_bytes=MIB // 2, max_poll_records=4)
    consumer.assign([PARTITION])
    count, waited = 0, 0.0
    while count < 24 * 16:
        started = time.monotonic()
        count += len(consumer.poll(20))
        waited += time.monotonic() - started
    # The buffer was full two dozen times at least.
    assert waited < 12


def test_bytes_are_copied_once_on_their_way_to_the_record(served: Served) -> None:
    """kafka-python copies every byte seven or eight times (KP #290, #1508, #2437)."""
    served.produce(8, size=MIB // 2)
    consumer = served.consumer(max_partition_fetch_bytes=8 * MIB)
    consumer.assign([PARTITION])
    tracemalloc.start()  # the broker is in this process as well: what it copies is counted
    try:
        held = read(consumer, 8)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(record.value) for record in held) == 4 * MIB
    assert most < 4 * 4 * MIB


def test_checking_the_checksum_costs_little_as_installed() -> None:
    """kafka-python's default install computes it in Python: 104 µs per 1 KiB record instead of 6 (KP #1888, #290)."""
    batch = encode_batch([(0, None, bytes(1_024), ())] * 2_000)

    def best(check: bool) -> float:
        times = []
        for _ in range(7):
            started = time.thread_time()
            assert len(FetchedRecords(batch, "t", 0, 0, check_crcs=check).take(2_000)) == 2_000
            times.append(time.thread_time() - started)
        return min(times)

    # Seventeenfold with kafka-python. Time of the processor, so that other work on the machine does not count.
    assert best(check=True) < 4 * best(check=False)


def test_lag_and_rates_are_numbers_and_cost_no_request(served: Served) -> None:
    """People build lag monitors by hand, or parse a JSON text (AIO #1177, #38, #562)."""
    served.produce(100)
    consumer = served.consumer(group_id="g", max_poll_records=10)
    consumer.assign([PARTITION])
    read(consumer, 10)
    with served.faults.observe(ListOffsetsRequest) as lists, served.faults.observe(MetadataRequest) as asked:
        assert consumer.current_lag(PARTITION) == 90
        values = {
            (name.name, name.tags.get("partition")): value for name, value in consumer.metrics().items()
        }
    assert values["records-lag", "0"] == 90
    assert values["records-consumed-total", None] == 10
    assert len(lists) + len(asked) == 0


def test_an_error_of_a_fetch_is_waited_out_and_nothing_is_skipped(served: Served) -> None:
    """Fetching stood still after errors of a broker (KP #2605, #1435, RDK #1605)."""
    served.produce(10)
    consumer = served.consumer()
    with served.faults.error(FetchRequest, error_codes.UNKNOWN_SERVER_ERROR, times=3) as refused:
        consumer.assign([PARTITION])
        assert [record.offset for record in read(consumer, 10)] == list(range(10))
        assert refused.hits == 3
