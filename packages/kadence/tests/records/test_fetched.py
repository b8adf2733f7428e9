"""FetchedRecords: what comes out of one partition's bytes, in which order, and where the position stands."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from collections.abc import Collection

import pytest
from tests.records.batches import Row, batch, from_rows, marker, record, varint

from kadence._native.records import Cursor
from kadence.errors import (
    ClosedError,
    ConcurrentAccessError,
    CorruptRecordError,
    RecordTooLargeError,
    UnsupportedRecordFormatError,
)
from kadence.records import ALL_COLUMNS, MOST_HEADERS, OWN_COLUMNS, FetchedRecords, Record, encode_batch
from kadence.records.codecs import compress

T0 = 1_700_000_000_000


def rows(first: int, count: int, **fields: object) -> list[Row]:
    return [Row(first + i, T0 + i, b"k%d" % i, b"v%d" % i, **fields) for i in range(count)]  # type: ignore[arg-type]


def fetched(data: bytes, offset: int = 0, **options: object) -> FetchedRecords:
    return FetchedRecords(data, "topic", 1, offset, **options)  # type: ignore[arg-type]


def offsets(reader: FetchedRecords, limit: int = -1) -> list[int]:
    return [record.offset for record in reader.take(limit)]


def test_every_field_arrives() -> None:
    row = Row(40, T0 + 5, b"key", b"value", ((b"trace", b"\x00\xff"), (b"none", None), (b"", b"")))
    [got] = fetched(from_rows([row], leader_epoch=7), 40).take()
    assert (got.topic, got.partition, got.offset, got.timestamp, got.timestamp_type) == (
        "topic",
        1,
        40,
        T0 + 5,
        0,
    )
    assert (got.key, got.value, got.leader_epoch) == (b"key", b"value", 7)
    assert got.headers == (("trace", b"\x00\xff"), ("none", None), ("", b""))


def test_null_and_empty_stay_apart() -> None:
    got = fetched(from_rows([Row(0, T0, None, b""), Row(1, T0, b"", None)])).take()
    assert [(one.key, one.value) for one in got] == [(None, b""), (b"", None)]
    assert got[0].leader_epoch is None
    assert got[0].headers == ()


def test_take_cuts_and_goes_on_over_batches() -> None:
    reader = fetched(from_rows(rows(0, 5)) + from_rows(rows(5, 3)))
    assert offsets(reader, 2) == [0, 1]
    assert reader.next_offset == 2
    assert offsets(reader, 5) == [2, 3, 4, 5, 6]
    assert (reader.exhausted, reader.next_offset) == (False, 7)
    assert offsets(reader, 0) == []
    assert offsets(reader, 5) == [7]
    assert (reader.exhausted, reader.next_offset) == (True, 8)
    assert offsets(reader) == []


def test_records_below_the_fetch_offset_are_stepped_over() -> None:
    reader = fetched(from_rows(rows(0, 5)) + from_rows(rows(5, 5)), 7)
    assert reader.next_offset == 7
    assert offsets(reader) == [7, 8, 9]


def test_a_fetch_offset_in_a_hole_begins_at_the_next_record() -> None:
    reader = fetched(from_rows([Row(0), Row(9)]), 4)
    assert offsets(reader, 1) == [9]


def test_compacted_tail_moves_the_offset_to_the_batch_end() -> None:
    reader = fetched(from_rows([Row(10), Row(12)], last_delta=9), 10)
    assert offsets(reader, 1) == [10]
    assert reader.next_offset == 11
    assert offsets(reader, 1) == [12]
    assert reader.next_offset == 20
    assert reader.exhausted


def test_an_empty_batch_that_compaction_left_is_stepped_over() -> None:
    reader = fetched(batch(b"", 0, base_offset=3, last_delta=4) + from_rows(rows(8, 1)), 3)
    assert reader.next_offset == 8
    assert offsets(reader) == [8]


def test_an_empty_batch_among_others_is_stepped_over() -> None:
    data = from_rows(rows(0, 3)) + batch(b"", 0, base_offset=3, last_delta=4) + from_rows(rows(8, 1))
    assert offsets(fetched(data)) == [0, 1, 2, 8]
    assert sum(len(part) for part in fetched(data).take_columns()) == 4
    reader = fetched(data[: -len(from_rows(rows(8, 1)))])
    assert (offsets(reader), offsets(reader), reader.next_offset) == ([0, 1, 2], [], 8)


def test_a_batch_wholly_below_the_wanted_offset_yields_nothing() -> None:
    reader = fetched(from_rows(rows(0, 3)), 3)
    assert reader.exhausted
    assert reader.next_offset == 3


def test_log_append_time_rules_over_the_records_own() -> None:
    [got, _] = fetched(from_rows(rows(0, 2), attributes=0x08, max_timestamp=42)).take()
    assert (got.timestamp, got.timestamp_type) == (42, 1)


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63), 2**62])
def test_timestamps_at_the_edge_of_64_bits(base: int) -> None:
    assert [one.timestamp for one in fetched(from_rows([Row(0, base)])).take()] == [base]
    body = record(0, 2**62 if base > 0 else -(2**62), None, None)
    reader = fetched(batch(body, 1, base_timestamp=base))
    with pytest.raises(CorruptRecordError, match="does not fit 64 bits"):
        reader.take()


def test_control_batches_never_come_out_but_move_the_offset() -> None:
    reader = fetched(from_rows(rows(0, 2)) + marker(2, 9, commit=True) + from_rows(rows(3, 1)))
    assert offsets(reader, 2) == [0, 1]
    assert reader.next_offset == 3
    assert offsets(reader) == [3]


def test_kip320_the_epoch_is_that_of_the_last_batch_below_the_position_though_it_gave_nothing() -> None:
    """A transaction's marker that a later leader wrote: its offset is not one of the epoch before it."""
    data = encode_batch([(0, None, b"v", ())], leader_epoch=1)
    marker = encode_batch(
        [(0, bytes(4), bytes(6), ())], base_offset=1, control=True, producer_id=7, leader_epoch=2
    )
    fetched = FetchedRecords(data + marker, "t", 0, 0)
    (record,) = fetched.take()
    assert record.leader_epoch == 1
    assert (fetched.next_offset, fetched.leader_epoch) == (2, 2)
    old = FetchedRecords(data + marker, "t", 0, 2)
    assert (old.next_offset, old.leader_epoch) == (2, None), "nothing was read, so nothing is known"


def test_only_a_control_batch() -> None:
    reader = fetched(marker(6, 9, commit=False), 6)
    assert (reader.exhausted, reader.next_offset, reader.take()) == (True, 7, [])


def test_read_committed_leaves_out_aborted_transactions() -> None:
    data = (
        from_rows(rows(0, 2), producer_id=7, attributes=0x10)
        + from_rows(rows(2, 1), producer_id=8, attributes=0x10)
        + marker(3, 7, commit=False)
        + from_rows(rows(4, 1), producer_id=7, attributes=0x10)
        + marker(5, 8, commit=True)
        + marker(6, 7, commit=True)
        + from_rows(rows(7, 1), producer_id=7)
    )
    reader = fetched(data, aborted=[(7, 0)])
    assert offsets(reader) == [2, 4, 7]
    assert reader.next_offset == 8
    assert offsets(fetched(data)) == [0, 1, 2, 4, 7]
    assert offsets(fetched(data, aborted=[])) == [0, 1, 2, 4, 7]


def test_a_producer_may_abort_twice_and_write_outside_transactions_between() -> None:
    data = (
        from_rows(rows(0, 1), producer_id=7, attributes=0x10)
        + marker(1, 7, commit=False)
        + from_rows(rows(2, 1), producer_id=7)
        + from_rows(rows(3, 1), producer_id=7, attributes=0x10)
        + marker(4, 7, commit=False)
    )
    reader = fetched(data, aborted=[(7, 3), (7, 0)])
    assert offsets(reader, 1) == [2]
    assert (reader.next_offset, reader.exhausted) == (5, True)


def test_a_damaged_control_batch_matters_only_when_its_word_does() -> None:
    data = from_rows(rows(0, 1)) + marker(1, 7, commit=False, crc=1) + from_rows(rows(2, 1))
    assert offsets(fetched(data)) == [0, 2]
    reader = fetched(data, aborted=[])
    assert offsets(reader) == [0]
    with pytest.raises(CorruptRecordError, match="checksum"):
        reader.take()


@pytest.mark.parametrize("body", [b"", b"\x80", record(0, 0, None, None), record(0, 0, b"\0", b"")])
def test_a_control_batch_without_a_readable_marker_ends_no_transaction(body: bytes) -> None:
    odd = batch(body, 1, base_offset=1, producer_id=7, attributes=0x30)
    data = from_rows(rows(0, 1), producer_id=7, attributes=0x10) + odd
    data += from_rows(rows(2, 1), producer_id=7, attributes=0x10) + marker(3, 7, commit=False)
    reader = fetched(data + from_rows(rows(4, 1), producer_id=7, attributes=0x10), aborted=[(7, 0)])
    assert offsets(reader) == [4]


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    whole, tail = from_rows(rows(0, 2)), from_rows(rows(2, 2))
    for cut in range(len(tail)):
        reader = fetched(whole + tail[:cut])
        assert offsets(reader) == [0, 1]
        assert reader.exhausted
        assert (reader.next_offset, reader.after) == (2, len(whole))


def test_only_the_beginning_of_a_batch() -> None:
    data = from_rows(rows(0, 2))
    for cut in range(len(data)):
        reader = fetched(data[:cut])
        assert (reader.take(), reader.after, reader.exhausted) == ([], 0, True)


def test_wrong_checksum_says_where_and_what_to_do_after_the_records_before() -> None:
    reader = fetched(from_rows(rows(0, 2)) + from_rows(rows(2, 2), crc=5) + from_rows(rows(4, 1)))
    assert offsets(reader) == [0, 1]
    assert reader.next_offset == 2
    assert not reader.exhausted
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"topic-1 at offset 2: .*checksum.* seek to 4"):
            reader.take()
    assert reader.next_offset == 2


def test_checksums_can_be_left_unchecked() -> None:
    assert offsets(fetched(from_rows(rows(0, 2), crc=5), check_crcs=False)) == [0, 1]


@pytest.mark.parametrize("magic", [0, 1, 3, 255 - 256])
def test_other_message_formats_are_named(magic: int) -> None:
    reader = fetched(from_rows(rows(0, 1), magic=magic))
    with pytest.raises(UnsupportedRecordFormatError, match=r"topic-1 at offset 0: .*(format|magic)"):
        reader.take()


def test_an_old_message_shorter_than_our_header_is_named_too() -> None:
    with pytest.raises(UnsupportedRecordFormatError, match="older client"):
        fetched(from_rows(rows(0, 1), magic=1)[:34]).take()


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedRecordFormatError, match="codec 6"):
        fetched(from_rows(rows(0, 1), attributes=6)).take()


@pytest.mark.parametrize(
    "header",
    [
        {"length": 48},
        {"length": -1},
        {"length": -(2**31)},
        {"last_delta": -1},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
    ],
)
def test_headers_that_cannot_be_true(header: dict[str, int]) -> None:
    body = b"".join(record(i, 0, b"k", b"v") for i in range(2))
    reader = fetched(from_rows(rows(0, 1)) + batch(body, 2, **{"base_offset": 1, **header}))
    assert offsets(reader) == [0]
    with pytest.raises(CorruptRecordError, match="at offset 1"):
        reader.take()


@pytest.mark.parametrize("count", [3, 1000, 2**31 - 1])
def test_a_count_beyond_the_bytes_takes_no_memory(count: int) -> None:
    body = b"".join(record(i, 0, None, None) for i in range(2))
    reader = fetched(batch(body, count, last_delta=2**31 - 1))
    with pytest.raises(CorruptRecordError, match="more records than its bytes"):
        reader.take()
    assert reader.next_offset == 0


def test_a_negative_count() -> None:
    with pytest.raises(CorruptRecordError, match="-5 records"):
        fetched(batch(b"", -5, last_delta=0)).take()


GOOD = record(0, 0, b"k", b"v")
BAD = {
    "length past the end": b"\x7e" + GOOD[1:],
    "negative length": b"\x01" + GOOD[1:],
    "endless number": b"\xff" * 20,
    "key past the end": b"\x10\0\0\2\x7ekv\0\0",
    "key of -2": b"\x10\0\0\2\x03kv\0\0",
    "value past the end": b"\x10\0\0\2\2k\x7ev\0",
    "value of -2": b"\x10\0\0\2\2k\x03v\0",
    "header count past the end": b"\x0e\0\0\2\2k\0\x7e",
    "negative header count": b"\x0e\0\0\2\2k\0\x01",
    "header name past the end": record(1, 0, b"k", b"v", [(b"name", b"v")])[:-7] + b"\x7e" + b"namev1",
    "header name of null": b"\x12\0\0\2\2k\0\2\1\1",
    "bytes after the headers": record(1, 0, b"k", b"v", extra=b"x"),
    "offset not above the last": record(0, 0, b"k", b"v"),
    "negative offset": record(-1, 0, b"k", b"v"),
    "offset outside the batch": record(2, 0, b"k", b"v"),
    "empty record": b"\0" * 8,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_damaged_record_comes_after_the_good_ones(bad: bytes) -> None:
    reader = fetched(batch(GOOD + bad, 2))
    assert offsets(reader) == [0]
    with pytest.raises(CorruptRecordError, match=r"at offset 1: .* seek to 2"):
        reader.take()
    assert not reader.exhausted


def empty_headers(offset_delta: int, count: int) -> bytes:
    body = b"\0\0" + varint(offset_delta) + b"\1\1" + varint(count) + b"\0\0" * count
    return varint(len(body)) + body


@pytest.mark.parametrize("columns", [None, OWN_COLUMNS, ALL_COLUMNS])
def test_more_headers_than_a_record_may_have(columns: Collection[str] | None) -> None:
    """Each empty one costs two bytes on the wire, next to none where it is compressed, and some 80 as an object."""
    count = 1_000_000
    body = empty_headers(0, MOST_HEADERS) + empty_headers(1, count)
    reader = fetched(batch(compress(4, body), 2, attributes=4))

    def read() -> int:
        return len(reader.take()) if columns is None else sum(map(len, reader.take_columns(columns=columns)))

    tracemalloc.start()
    assert read() == 1
    with pytest.raises(
        CorruptRecordError, match=r"at offset 1: a record has more than 5,000 headers\. .* seek to 2"
    ):
        read()
    assert tracemalloc.get_traced_memory()[1] < 10 * count
    tracemalloc.stop()


def test_bytes_after_the_last_record() -> None:
    reader = fetched(batch(GOOD + b"junk", 1))
    assert offsets(reader) == [0]
    with pytest.raises(CorruptRecordError, match="left over"):
        reader.take()


def test_a_header_name_that_is_not_utf8_does_not_block_the_partition() -> None:
    [got] = fetched(from_rows([Row(0, headers=((b"\xffx", b"1"),))])).take()
    assert got.headers == (("�x", b"1"),)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(codec: str) -> None:
    data = encode_batch(((T0 + i, b"k%d" % i, b"v" * 50, ()) for i in range(1000)), compression=codec)
    reader = fetched(data)
    assert reader.retained_bytes == 0
    assert offsets(reader, 10) == list(range(10))
    assert (reader.retained_bytes > 50_000) == (codec != "none")
    assert offsets(reader) == list(range(10, 1000))
    assert reader.retained_bytes == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_bound_on_decompressed_size(codec: str) -> None:
    data = encode_batch([(T0, None, bytes(10**6), ())], compression=codec)
    assert len(fetched(data, max_batch_bytes=10**6 + 100).take()) == 1
    reader = fetched(from_rows(rows(0, 1)) + data, max_batch_bytes=10**6)
    assert offsets(reader) == [0]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_beyond_the_bound(codec: str) -> None:
    data = encode_batch([(T0, None, bytes(10**6), ())], compression=codec, base_offset=5)
    with pytest.raises(
        RecordTooLargeError, match=rf"at offset 5: a {codec} batch .* 1000000 bytes.* seek to 6"
    ):
        fetched(data, 5, max_batch_bytes=10**6).take()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_damaged_compression(codec: int) -> None:
    with pytest.raises(CorruptRecordError, match="at offset 0"):
        fetched(batch(b"no codec writes this", 1, attributes=codec)).take()


def test_close_lets_go_of_the_bytes() -> None:
    data = bytearray(from_rows(rows(0, 3)))
    reader = fetched(data)  # type: ignore[arg-type]
    reader.take(1)
    with pytest.raises(BufferError):
        data.extend(b"x")
    reader.close()
    data.extend(b"x")
    assert reader.exhausted
    with pytest.raises(ClosedError, match="topic-1"):
        reader.take()


def test_the_last_record_lets_go_of_the_bytes() -> None:
    data = bytearray(from_rows(rows(0, 3)))
    reader = fetched(data)  # type: ignore[arg-type]
    got = reader.take()
    data[:] = bytes(len(data))
    data.extend(b"x")
    assert got[2].value == b"v2"


def test_small_batches_in_a_row_keep_what_is_theirs() -> None:
    """The compiled cursor runs on from batch to batch; what differs between them must not stick."""
    data = (
        from_rows([Row(0, T0, b"a", b"1")], leader_epoch=3)
        + from_rows(
            [Row(1, T0 + 5, None, b"2")], leader_epoch=3, attributes=0x08, max_timestamp=9, last_delta=4
        )
        + from_rows([Row(8, T0 + 7, b"c", None)], leader_epoch=4)
        + encode_batch([(T0, b"d", b"4", ())], base_offset=9, compression="gzip", leader_epoch=4)
        + batch(b"", 0, base_offset=10, last_delta=2, leader_epoch=4)
        + from_rows([Row(13, -1)], leader_epoch=4)
        + marker(14, 5, commit=True, leader_epoch=4)
        + from_rows([Row(15, -1)], leader_epoch=-1)
    )
    for step in (1, 2, 3, 100):
        reader = fetched(data)
        got, positions = [], []
        while records := reader.take(step):
            got += records
            positions.append(reader.next_offset)
        assert [
            (one.offset, one.timestamp, one.timestamp_type, one.key, one.leader_epoch) for one in got
        ] == [
            (0, T0, 0, b"a", 3),
            (1, 9, 1, None, 3),
            (8, T0 + 7, 0, b"c", 4),
            (9, T0, 0, b"d", 4),
            (13, -1, 0, None, 4),
            (15, -1, 0, None, None),
        ]
        assert reader.after == len(data)
        if step == 1:
            assert positions == [1, 6, 9, 13, 15, 16]


def test_small_batches_that_go_backwards_yield_nothing_twice() -> None:
    data = from_rows(rows(0, 3)) + from_rows(rows(1, 4)) + from_rows(rows(0, 2)) + from_rows(rows(5, 1))
    assert offsets(fetched(data)) == [0, 1, 2, 3, 4, 5]


def test_trouble_in_a_later_small_batch_names_that_batch() -> None:
    bad = batch(GOOD + b"\x7e" * 9, 2, base_offset=4)
    reader = fetched(from_rows(rows(0, 2)) + from_rows(rows(2, 2)) + bad)
    assert offsets(reader, 3) == [0, 1, 2]
    assert offsets(reader) == [3, 4]
    with pytest.raises(CorruptRecordError, match=r"at offset 5: .* seek to 6"):
        reader.take()


def test_nobody_pulls_the_bytes_away_while_they_are_read() -> None:
    """The collector may run anything in the middle of a take; a finaliser that closes the reader is told off."""
    data = from_rows(rows(0, 5000))
    cursor = Cursor("t", 0)
    cursor.open_batch(data, 61, len(data), 5000, 0, 4999, 0, T0, 0, 0, -1, len(data), False, True)
    got: list[Record] = []
    refused = []

    def meddle(_phase: str, _info: object) -> None:
        try:
            cursor.close_batch()
        except ConcurrentAccessError as error:
            refused.append(error)

    threshold = gc.get_threshold()
    gc.callbacks.append(meddle)
    gc.set_threshold(1)
    try:
        cursor.read(got, 5000)
    finally:
        gc.callbacks.remove(meddle)
        gc.set_threshold(*threshold)
    assert len(got) == 5000
    # From 3.12 on the collector waits until the take is over.
    assert refused or sys.version_info >= (3, 12)


def test_text_tells_the_state() -> None:
    reader = fetched(from_rows(rows(0, 2)))
    assert repr(reader) == f"<FetchedRecords topic-1 next 0, at byte 0 of {len(from_rows(rows(0, 2)))}>"
    reader.close()
    assert "closed" in repr(reader)


def test_bytes_that_a_cursor_in_a_cycle_reads_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner(bytearray): ...

    told: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told_of: told.append(told_of.exc_value))
    cursor = Cursor("t", 0)
    owner = Owner(encode_batch([(0, None, b"v", ())] * 3))
    cursor.open_batch(memoryview(owner), 61, len(owner), 3, 0, 2, 0, 0, 0, 0, 0, len(owner), False, True)
    gone = weakref.ref(owner)
    cycle: list[object] = [cursor]
    cycle.append(cycle)
    del owner, cursor, cycle
    gc.collect()
    assert gone() is None
    assert told == []
