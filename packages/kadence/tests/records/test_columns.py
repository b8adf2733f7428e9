"""Columns: the layout, read without pyarrow."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest
from tests.records.batches import Row, batch, from_rows, marker, record

from kadence._native.buffers import scratch
from kadence._native.columns import ColumnsBuilder
from kadence._native.records import Cursor
from kadence.errors import CorruptRecordError
from kadence.records import ALL_COLUMNS, BinaryColumn, Columns, FetchedRecords, encode_batch
from kadence.records import fetched as fetched_module

T0 = 1_700_000_000_000


def reader(data: bytes, offset: int = 0, **options: object) -> FetchedRecords:
    return FetchedRecords(data, "topic", 1, offset, **options)  # type: ignore[arg-type]


def integers(buffer: Any, kind: Literal["i", "q"]) -> list[int]:
    return list(memoryview(buffer).cast("B").cast(kind))


def strings(column: BinaryColumn | None) -> list[bytes | None]:
    assert column is not None
    ends, data = integers(column.ends, "i"), bytes(column.data)
    bits = None if column.validity is None else bytes(column.validity)
    rows: list[bytes | None] = [data[start:end] for start, end in itertools.pairwise(ends)]
    if bits is None:
        assert column.null_count == 0
        return rows
    nulls = [not bits[i >> 3] >> (i & 7) & 1 for i in range(len(rows))]
    assert sum(nulls) == column.null_count
    return [None if null else row for row, null in zip(rows, nulls, strict=True)]


def test_layout() -> None:
    rows = [
        Row(5, T0, b"a", None),
        Row(7, T0 + 1, None, b""),
        Row(8, T0 - 1, b"", b"xyz"),
    ]
    [got] = reader(from_rows(rows), 5).take_columns()
    assert (got.topic, got.partition, got.count, len(got), got.headers) == ("topic", 1, 3, 3, None)
    assert integers(got.offsets, "q") == [5, 7, 8]
    assert integers(got.timestamps, "q") == [T0 * 1000, (T0 + 1) * 1000, (T0 - 1) * 1000]
    assert integers(got.timestamp_types, "i") == [0, 0, 0]
    assert strings(got.key) == [b"a", None, b""]
    assert strings(got.value) == [None, b"", b"xyz"]
    assert got.nbytes == 3 * (8 + 8 + 4) + (16 + 1 + 1) + (16 + 3 + 1)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 1000])
def test_bitmaps_of_every_length(count: int) -> None:
    rows = [Row(i, T0, None if i % 3 else b"k", None if i % 2 else b"v") for i in range(count)]
    [got] = reader(from_rows(rows)).take_columns()
    assert strings(got.key) == [row.key for row in rows]
    assert strings(got.value) == [row.value for row in rows]


def test_batches_are_gathered_into_one() -> None:
    data = (
        from_rows([Row(0, T0)])
        + marker(1, 5, commit=True)
        + from_rows([Row(2, T0)], attributes=0x08, max_timestamp=3)
        + encode_batch([(T0, b"k", b"v", ())], compression="lz4", base_offset=3)
    )
    one = reader(data)
    [got] = one.take_columns(3)
    assert integers(got.offsets, "q") == [0, 2, 3]
    assert integers(got.timestamp_types, "i") == [0, 1, 0]
    assert integers(got.timestamps, "q") == [T0 * 1000, 3000, T0 * 1000]
    assert one.exhausted
    assert one.take_columns() == []


def test_cut_at_the_limit_and_mixed_with_records() -> None:
    one = reader(from_rows([Row(i) for i in range(10)]))
    assert [integers(part.offsets, "q") for part in one.take_columns(4)] == [[0, 1, 2, 3]]
    assert one.next_offset == 4
    assert [got.offset for got in one.take(2)] == [4, 5]
    assert [integers(part.offsets, "q") for part in one.take_columns()] == [[6, 7, 8, 9]]
    assert one.take_columns(0) == []


def test_headers() -> None:
    rows = [
        Row(0, headers=((b"a", b"1"), ("é".encode(), None))),
        Row(1),
        Row(2, headers=((b"\xff", b""),)),
    ]
    [got] = reader(from_rows(rows)).take_columns(columns=ALL_COLUMNS)
    assert got.headers is not None
    assert integers(got.headers.ends, "i") == [0, 2, 2, 3]
    assert (got.headers.count, got.headers.null_count, bytes(got.headers.validity or b"")) == (3, 1, b"\x05")
    assert strings(got.headers.key) == [b"a", "é".encode(), "�".encode()]
    assert strings(got.headers.value) == [b"1", None, b""]


def test_only_the_columns_asked_for_are_made() -> None:
    rows = [Row(5, T0, b"key", b"value", ((b"h", b"1"),)), Row(7, T0 + 1, None, b"")]
    [got] = reader(from_rows(rows), 5).take_columns(columns=("value", "topic"))
    assert (got.key, got.timestamps, got.timestamp_types, got.headers) == (None, None, None, None)
    assert strings(got.value) == [b"value", b""]
    assert got.payload == 8
    [cut] = reader(from_rows(rows), 5).take_columns(columns=("key", "headers"))
    assert (cut.value, integers(cut.offsets, "q")) == (None, [5, 7])
    cut = cut.before(7)
    assert cut.key is not None
    assert cut.headers is not None
    assert (cut.count, cut.key.null_count, cut.headers.null_count) == (1, 0, 0)
    [bare] = reader(from_rows(rows), 5).take_columns(columns=())
    assert (len(bare), bare.nbytes) == (2, 16)


def test_max_bytes_counts_values_that_nobody_wants() -> None:
    one = reader(from_rows([Row(i, key=b"12345", value=b"12345") for i in range(10)]))
    assert [len(part) for part in one.take_columns(columns=("offset",), max_bytes=25)] == [3]


def test_headers_of_nobody() -> None:
    [got] = reader(from_rows([Row(0), Row(1)])).take_columns(columns=ALL_COLUMNS)
    assert got.headers is not None
    assert (got.headers.count, got.headers.null_count, integers(got.headers.ends, "i")) == (0, 2, [0, 0, 0])


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63), 2**60])
def test_timestamps_beyond_microseconds_are_clamped(base: int) -> None:
    [got] = reader(from_rows([Row(0, base)])).take_columns()
    assert integers(got.timestamps, "q") == [2**63 - 1 if base > 0 else -(2**63)]


def test_a_damaged_record_comes_after_the_good_ones() -> None:
    one = reader(batch(record(0, 0, b"k", b"v") + b"\x7e" * 9, 2))
    assert [len(part) for part in one.take_columns()] == [1]
    with pytest.raises(CorruptRecordError, match="at offset 1"):
        one.take_columns()


def test_a_header_that_lies_leaves_no_half_row() -> None:
    good = record(0, 0, b"k", b"v", [(b"h", b"v")])
    bad = record(1, 0, b"k", b"v", [(b"h", b"v"), (b"name", b"value")])[:-6] + b"\x7e" + b"value"
    one = reader(batch(good + bad, 2))
    [got] = one.take_columns(columns=ALL_COLUMNS)
    assert strings(got.key) == [b"k"]
    assert got.headers is not None
    assert strings(got.headers.key) == [b"h"]
    with pytest.raises(CorruptRecordError):
        one.take_columns(columns=ALL_COLUMNS)


def test_max_bytes_stops_after_the_row_that_reaches_it() -> None:
    one = reader(from_rows([Row(i, key=b"12345", value=b"12345") for i in range(10)]))
    sizes = []
    while parts := one.take_columns(max_bytes=25):
        sizes += [len(part) for part in parts]
    assert sizes == [3, 3, 3, 1]
    [only] = reader(from_rows([Row(0, key=bytes(100))])).take_columns(max_bytes=1)
    assert len(only) == 1


def test_max_bytes_bounds_headers_too() -> None:
    """Empty ones count as the two bytes that they have in a batch."""
    rows = [Row(i, key=None, value=b"", headers=((b"", b""),) * 10) for i in range(100)]
    for columns, lengths in ((ALL_COLUMNS, [5] * 20), (("key", "value"), [100])):
        one = reader(from_rows(rows))
        sizes = []
        while parts := one.take_columns(columns=columns, max_bytes=100):
            sizes += [len(part) for part in parts]
        assert sizes == lengths


def test_a_column_that_cannot_address_its_bytes_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_module, "DATA_LIMIT", 100)
    parts = reader(from_rows([Row(i, key=None, value=bytes(40)) for i in range(10)])).take_columns(9)
    assert [len(part) for part in parts] == [3, 3, 3]
    assert [first for part in parts for first in integers(part.offsets, "q")] == list(range(9))


def test_an_empty_builder_makes_empty_columns() -> None:
    got: Columns = ColumnsBuilder(ALL_COLUMNS).finish("t", 0)
    assert len(got) == 0
    assert strings(got.key) == strings(got.value) == []
    assert got.headers is not None
    assert integers(got.headers.ends, "i") == [0]


def test_a_builder_can_be_used_again() -> None:
    builder = ColumnsBuilder()
    cursor = Cursor("t", 0)
    data = record(0, 0, None, b"v")
    for _ in range(2):
        cursor.open_batch(data, 0, len(data), 1, 0, 0, 0, 0, 0, 0, -1, 0, False, True)
        assert builder.gather(cursor, 5, 1000) is False
        assert strings(builder.finish("t", 0).key) == [None]


def test_cursor_refuses_a_range_outside_the_data() -> None:
    cursor = Cursor("t", 0)
    for start, end in ((0, 11), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="outside the data"):
            cursor.open_batch(bytes(10), start, end, 1, 0, 0, 0, 0, 0, 0, -1, 0, False, True)


def test_scratch() -> None:
    block = scratch(10)
    memoryview(block)[:] = b"0123456789"
    assert bytes(block) == b"0123456789"
    assert len(scratch(0)) == 0
    with pytest.raises(ValueError):
        scratch(-1)
