"""One partition: what it takes in, how far its readers see, and what its producers and transactions left."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.protocol import error_codes as codes
from kadence.records import MOST_HEADERS, BatchHeader, FetchedRecords, Record, crc32c, encode_batch
from kadence_broker.cluster import Topic
from kadence_broker.storage import BatchError, Isolation, LogConfig, Origin, Partition

NOW = 1_700_000_000_000
HOUR = 3_600_000


def partition(**config: str) -> Partition:
    topic = Topic("t", b"t" * 16)
    topic.log_config = LogConfig().changed_by(
        {name.replace("_", "."): value for name, value in config.items()}
    )
    return Partition(topic, 0, leader_id=1)


def batch(values: int = 1, *, timestamp: int = NOW, key: bytes | None = None, **options: Any) -> memoryview:
    return memoryview(encode_batch([(timestamp + n, key, b"v%d" % n, ()) for n in range(values)], **options))


def changed(layout: str, at: int, value: int, *, seal: bool = True, **options: Any) -> memoryview:
    data = bytearray(batch(2, **options))
    struct.pack_into(layout, data, at, value)
    if seal:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return memoryview(data)


def counted(count: int) -> memoryview:
    data = bytearray(changed(">i", 57, count))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return memoryview(data)


def stored(of: Partition, offset: int = 0) -> list[Record]:
    data = b"".join(of.read(offset, 1 << 30, Isolation.LOG_END))
    return FetchedRecords(data, "t", 0, offset).take()


def damaged_header() -> memoryview:
    """Key, value and the record's length are true: who reads those alone sees nothing."""
    data = bytearray(encode_batch([(NOW, b"k", b"v", (("name", b"x"),))]))
    data[data.index(b"name") - 1] = 0x7E
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return memoryview(data)


REFUSED: dict[str, tuple[bytes | memoryview, int]] = {
    "none": (b"", codes.INVALID_RECORD),
    "junk": (b"junk", codes.INVALID_RECORD),
    "cut off": (bytes(batch())[:-3], codes.INVALID_RECORD),
    "longer than a request": (changed(">i", 8, 2**31 - 1), codes.INVALID_RECORD),
    "negative length": (changed(">i", 8, -5), codes.CORRUPT_MESSAGE),
    "shorter than a header": (changed(">i", 8, 30), codes.CORRUPT_MESSAGE),
    "magic 0": (changed(">b", 16, 0, seal=False), codes.INVALID_RECORD),
    "magic 3": (changed(">b", 16, 3, seal=False), codes.CORRUPT_MESSAGE),
    "checksum": (changed(">i", 17, 1, seal=False), codes.CORRUPT_MESSAGE),
    "two batches": (bytes(batch()) * 2, codes.INVALID_RECORD),
    "zeros behind it": (bytes(batch()) + bytes(20), codes.CORRUPT_MESSAGE),
    "base offset": (changed(">q", 0, 5, seal=False), codes.INVALID_RECORD),
    "count above the offsets": (changed(">i", 57, 3), codes.INVALID_RECORD),
    "count below the offsets": (changed(">i", 57, 1), codes.INVALID_RECORD),
    "a record too many": (counted(3), codes.INVALID_RECORD),
    "a record too few": (counted(1), codes.INVALID_RECORD),
    "empty": (counted(0), codes.INVALID_RECORD),
    "control": (changed(">b", 22, 0x20), codes.INVALID_RECORD),
    "unknown codec": (changed(">b", 22, 5), codes.INVALID_RECORD),
    "not gzip": (changed(">b", 22, 1), codes.INVALID_RECORD),
    "producer without sequence": (batch(producer_id=7, producer_epoch=0), codes.INVALID_RECORD),
    "transactional": (changed(">b", 22, 0x10), codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "a header that runs past its record": (damaged_header(), codes.INVALID_RECORD),
    "too large": (batch(1, key=bytes(1_100_000)), codes.MESSAGE_TOO_LARGE),
    "from the future": (batch(timestamp=NOW + HOUR + 1), codes.INVALID_TIMESTAMP),
}


def test_a_record_that_no_consumer_reads_is_refused() -> None:
    """Kafka appends it; here whoever wrote it is told, and not whoever reads it."""
    log = partition()
    for count in (MOST_HEADERS, MOST_HEADERS + 1):
        data = memoryview(encode_batch([(NOW, None, b"v", (("h", None),) * count)]))
        if count == MOST_HEADERS:
            log.append(NOW, data)
        else:
            with pytest.raises(BatchError, match="more than 5,000 headers") as caught:
                log.append(NOW, data)
            assert codes.name(caught.value.code) == "INVALID_RECORD"


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_that_kafka_refuses_is_refused_with_its_code(name: str) -> None:
    data, code = REFUSED[name]
    log = partition()
    with pytest.raises(BatchError) as caught:
        log.append(NOW, memoryview(data))
    assert codes.name(caught.value.code) == codes.name(code)
    assert caught.value.message
    assert (log.end_offset, log.append(NOW, batch()).base_offset) == (0, 0)


ACCEPTED: dict[str, bytes | memoryview] = {
    "bytes that begin another batch": bytes(batch(2)) + b"tail",
    "an hour ahead": batch(2, timestamp=NOW + HOUR - 1),
    "from 1970": batch(2, timestamp=5),
    "without dates": encode_batch([(-1, None, b"v0", ()), (-1, None, b"v1", ())]),
    "a sequence without a producer": batch(2, base_sequence=3),
    "a leader epoch": changed(">i", 12, 9, seal=False),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_batch_that_kafka_takes_is_taken(name: str) -> None:
    log = partition()
    assert log.append(NOW, memoryview(ACCEPTED[name])) == (0, -1, 0, False)
    assert [each.value for each in stored(log)] == [b"v0", b"v1"]


def test_the_largest_timestamp_is_the_records_whatever_the_header_says() -> None:
    log = partition()
    log.append(NOW, changed(">q", 35, 5))
    found = log.offset_of_newest()
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW + 1)


def test_each_record_out_of_range_is_told() -> None:
    log = partition(message_timestamp_before_max_ms="1000")
    with pytest.raises(BatchError) as caught:
        log.append(NOW, batch(3, timestamp=NOW - 1001))
    assert caught.value.code == codes.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.records] == [0]


def test_a_compacted_topic_wants_keys() -> None:
    log = partition(cleanup_policy="compact")
    with pytest.raises(BatchError) as caught:
        log.append(NOW, batch(2))
    assert (caught.value.code, len(caught.value.records)) == (codes.INVALID_RECORD, 2)
    assert log.append(NOW, batch(2, key=b"k")).base_offset == 0


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", ["none", "zstd"])
def test_compression_type_packs_batches_anew(codec: str, sent: str) -> None:
    log = partition(compression_type=codec)
    log.append(NOW, batch(3, key=b"k", compression=sent, producer_id=7, producer_epoch=2, base_sequence=0))
    header = BatchHeader.parse(b"".join(log.read(0, 1 << 20)))
    kept = {"producer": sent, "uncompressed": "none"}.get(codec, codec)
    assert header.compression == ["none", "gzip", "snappy", "lz4", "zstd"].index(kept)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert [(each.timestamp, each.key, each.value) for each in stored(log)] == [
        (NOW + n, b"k", b"v%d" % n) for n in range(3)
    ]


def test_log_append_time_dates_every_record() -> None:
    log = partition(message_timestamp_type="LogAppendTime")
    assert log.append(NOW, batch(2, timestamp=NOW + 9 * HOUR)).log_append_time == NOW
    assert {(each.timestamp, each.timestamp_type) for each in stored(log)} == {(NOW, 1)}


def test_records_are_found_by_date_though_a_batch_reaches_below_the_log_start() -> None:
    log = partition()
    for timestamps in ((100, 900, 200), (300, 400, 250)):
        records = [(timestamp, None, b"v", ()) for timestamp in timestamps]
        log.append(NOW, memoryview(encode_batch(records)))
    assert log.offset_since(150) == (1, 900, 0)
    assert log.offset_of_newest() == (1, 900, 0)
    log.delete_before(2)
    assert log.offset_since(150) == (2, 200, 0)
    assert log.offset_since(201) == (3, 300, 0)
    assert log.offset_since(401) is None
    assert log.offset_of_newest() == (4, 400, 0)
    log.delete_before(6)
    assert (log.offset_since(0), log.offset_of_newest()) == (None, None)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=12),
    st.integers(0, 40),
    st.integers(0, 55),
)
def test_looking_up_dates_gives_what_a_list_would(batches: list[list[int]], start: int, wanted: int) -> None:
    log = partition()
    for timestamps in batches:
        filler = bytes(3_000)
        log.append(NOW, memoryview(encode_batch([(each, None, filler, ()) for each in timestamps])))
    flat = list(enumerate(timestamp for each in batches for timestamp in each))
    log.delete_before(min(start, len(flat)))
    left = flat[log.start_offset :]
    first = next(((offset, timestamp, 0) for offset, timestamp in left if timestamp >= wanted), None)
    assert log.offset_since(wanted) == first
    newest = max(left, key=lambda each: (each[1], -each[0]), default=None)
    assert log.offset_of_newest() == (None if newest is None else (*newest, 0))


# Producers


def idempotent(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, **options: Any
) -> memoryview:
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)


def refusal(log: Partition, data: memoryview, transactional_id: str | None = None) -> int:
    with pytest.raises(BatchError) as caught:
        log.append(NOW, data, transactional_id=transactional_id)
    return caught.value.code


def test_kip_98_a_repetition_gets_the_offset_of_its_first_appearance() -> None:
    log = partition()
    log.append(NOW, idempotent(0, 2))
    log.append(NOW, idempotent(2))
    again = log.append(NOW, idempotent(0, 2))
    assert (again.base_offset, again.log_start_offset, again.duplicate) == (0, 0, True)
    # As Kafka: the largest date of what is there.
    assert again.log_append_time == NOW + 1
    assert refusal(log, idempotent(5)) == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 3


def test_a_transactional_producer_that_adds_by_writing_begins_with_sequence_0() -> None:
    log = partition()
    with pytest.raises(BatchError) as caught:
        log.append(NOW, idempotent(1, transactional=True), transactional_id="x", from_zero=True)
    assert caught.value.code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(NOW, idempotent(1), from_zero=True).base_offset == 0, "outside of transactions any does"


def test_an_unclean_election_keeps_the_sequences_of_what_is_left() -> None:
    log = partition()
    for sequence in range(4):
        log.append(NOW, idempotent(sequence))
    log.append(NOW, idempotent(0, producer=8))
    log.truncate(2, NOW)
    assert log.append(NOW, idempotent(1)).duplicate
    assert refusal(log, idempotent(4)) == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(NOW, idempotent(2)) == (2, -1, 0, False)
    assert log.append(NOW, idempotent(5, producer=8)).base_offset == 3, "nothing is known of it any more"


def test_an_unclean_election_keeps_a_producer_whose_batches_retention_has_let_go() -> None:
    log = partition()
    log.append(NOW, idempotent(0))
    log.append(NOW, batch())
    log.append(NOW, batch())
    log.delete_before(2)
    log.truncate(2, NOW)
    assert log.append(NOW, idempotent(0)).duplicate
    assert refusal(log, idempotent(7)) == codes.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_that_went_away_are_forgotten_but_not_their_open_transactions() -> None:
    log = partition()
    log.append(NOW, idempotent(0, producer=7))
    log.append(NOW + 50, idempotent(0, producer=8))
    log.append(NOW, idempotent(0, producer=9, transactional=True), transactional_id="x")
    assert log.producers.expire(NOW + 49) == 1
    assert sorted(log.producers.known) == [8, 9]
    assert log.append(NOW + 60, idempotent(77, producer=7)).base_offset == 3


# Transactions


def transactional(log: Partition, sequence: int, producer: int = 7, epoch: int = 0) -> int:
    data = idempotent(sequence, producer=producer, epoch=epoch, transactional=True)
    return log.append(NOW, data, transactional_id="x").base_offset


def end(log: Partition, producer: int = 7, epoch: int = 0, *, committed: bool, coordinator: int = 0) -> int:
    return log.append_marker(NOW, producer, epoch, coordinator, committed=committed).base_offset


def test_readers_of_committed_records_stop_at_the_oldest_open_transaction() -> None:
    log = partition()
    log.append(NOW, batch())
    transactional(log, 0, producer=7)
    transactional(log, 0, producer=8)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    end(log, 7, committed=True)
    assert (log.last_stable_offset, log.high_watermark) == (2, 4)
    assert log.available(2, 1 << 20, Isolation.COMMITTED) == 0
    assert log.available(2, 1 << 20) > 0
    views = log.read(0, 1 << 20, Isolation.COMMITTED)
    assert [each.offset for each in FetchedRecords(b"".join(views), "t", 0, 0).take()] == [0, 1]
    end(log, 8, committed=False)
    assert log.last_stable_offset == log.high_watermark == 5


def test_aborted_transactions_are_told_to_readers_that_meet_their_records() -> None:
    log = partition()
    transactional(log, 0, producer=7)
    transactional(log, 0, producer=8)
    end(log, 7, committed=False)
    assert [each.producer_id for each in log.aborted(0)] == [7], "what lies above is not stable yet"
    end(log, 8, committed=False)
    transactional(log, 1, producer=7)
    end(log, 7, committed=True)
    told = [(each.producer_id, each.first_offset) for each in log.aborted(0)]
    assert told == [(7, 0), (8, 1)]
    assert [each.producer_id for each in log.aborted(3)] == [8]
    assert log.aborted(4) == []
    data = b"".join(log.read(0, 1 << 20, Isolation.COMMITTED))
    assert [each.offset for each in FetchedRecords(data, "t", 0, 0, aborted=told).take()] == [4]
    log.delete_before(4)
    assert log.producers.aborted.entries == []


def test_what_is_stable_never_ends_below_the_log_start() -> None:
    """Retention may take the beginning of an open transaction."""
    log = partition()
    transactional(log, 0)
    log.append(NOW, batch())
    log.delete_before(1)
    assert (log.start_offset, log.last_stable_offset, log.high_watermark) == (1, 1, 2)
    end(log, committed=True)
    assert log.last_stable_offset == 3


def test_the_markers_bytes_are_kafkas() -> None:
    log = partition()
    end(log, committed=True, coordinator=5)
    data = bytearray(b"".join(log.read(0, 1 << 20)))
    header = BatchHeader.parse(data)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    data[22] &= ~0x20
    (record,) = FetchedRecords(data, "t", 0, 0, check_crcs=False).take()
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\5")


def test_old_epochs_end_no_transaction_and_an_open_one_takes_no_other_batch() -> None:
    log = partition()
    transactional(log, 0, epoch=3)
    assert refusal(log, idempotent(1, epoch=3)) == codes.INVALID_TXN_STATE
    with pytest.raises(BatchError) as old:
        end(log, epoch=2, committed=True)
    assert old.value.code == codes.INVALID_PRODUCER_EPOCH
    end(log, epoch=3, committed=True, coordinator=4)
    with pytest.raises(BatchError) as fenced:
        end(log, epoch=3, committed=True, coordinator=3)
    assert fenced.value.code == codes.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_a_new_epoch_begins_its_sequences_at_0() -> None:
    log = partition()
    transactional(log, 0)
    end(log, epoch=1, committed=False)
    assert refusal(log, idempotent(1, epoch=0), "x") == codes.INVALID_PRODUCER_EPOCH
    assert refusal(log, idempotent(1, epoch=1), "x") == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert transactional(log, 0, epoch=1) == 2


steps = st.lists(
    st.tuples(
        st.sampled_from(["data", "transactional", "commit", "abort"]), st.integers(1, 3), st.integers(0, 1)
    ),
    max_size=25,
)


@given(steps)
def test_what_is_known_of_producers_follows_from_the_log(steps: list[tuple[str, int, int]]) -> None:
    log = partition()
    for what, producer, bump in steps:
        known = log.producers.known.get(producer)
        epoch = (known.epoch if known else 0) + bump
        sequence = known.last_sequence + 1 if known and not bump else 0
        try:
            if what in ("commit", "abort"):
                end(log, producer, epoch, committed=what == "commit")
            elif what == "data":
                log.append(NOW, idempotent(sequence, producer=producer, epoch=epoch))
            else:
                transactional(log, sequence, producer, epoch)
        except BatchError:
            continue
    before = log.producers
    log.truncate(log.end_offset, NOW)
    assert log.producers is not before
    assert log.producers.known == before.known
    assert log.producers.first_open == before.first_open


# News


class Reader:
    """Waits for the partition; its answer may do more, as an answer of the broker does."""

    def __init__(self, log: Partition, then: Any = None) -> None:
        self.log = log
        self.then = then
        self.answers = 0
        log.waiting[self] = None

    def try_answer(self, partition: Partition) -> None:
        assert partition is self.log
        self.answers += 1
        self.log.waiting.pop(self, None)
        if self.then is not None:
            self.then()


def test_a_waiter_that_another_answer_woke_is_not_answered_twice() -> None:
    log = partition()
    readers = [Reader(log, log.wake) for _ in range(4)]
    log.wake()
    assert [each.answers for each in readers] == [1, 1, 1, 1]


def test_news_are_told_once_for_each_change() -> None:
    log = partition()
    told: list[Partition] = []
    log.on_readable = told.append
    log.append(NOW, batch())
    log.append(NOW, batch(), origin=Origin.COORDINATOR)
    end(log, committed=True)
    log.delete_before(1)
    log.lead(-1)
    assert told == [log] * 5
    assert (log.leader_id, log.replica_id, log.leader_epoch) == (-1, 1, 1)
