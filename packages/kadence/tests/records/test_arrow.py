"""Columns as pyarrow: schema, values, types that a caller asks for, no copies."""

from __future__ import annotations

import datetime as dt
import sys

import pyarrow as pa
import pytest
from tests.records.batches import Row, from_rows

from kadence.errors import MissingDependencyError
from kadence.records import ALL_COLUMNS, OWN_COLUMNS, FetchedRecords, arrow, encode_batch

T0 = 1_700_000_000_007
ROWS = [
    Row(0, T0, b"k", b"v", ((b"a", b"1"), (b"b", None))),
    Row(1, T0 + 1, None, None),
    Row(2, T0 + 2, b"", b"", ((b"", b""),)),
]


def table(
    *, headers: bool = False, schema: pa.Schema | None = None, rows: list[Row] | None = None
) -> pa.Table:
    data = from_rows(rows or ROWS)
    chosen = ALL_COLUMNS if headers else OWN_COLUMNS
    parts = FetchedRecords(data, "orders", 7, 0).take_columns(columns=chosen)
    got = arrow.to_table(parts, schema, names=chosen)
    got.validate(full=True)
    return got


def moment(timestamp: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(timestamp // 1000, dt.UTC) + dt.timedelta(milliseconds=timestamp % 1000)


def test_the_schema_is_that_of_sparks_connector() -> None:
    assert [(field.name, str(field.type)) for field in arrow.schema(ALL_COLUMNS)] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
    ]
    assert arrow.schema().names == arrow.schema(ALL_COLUMNS).names[:-1]
    assert all(field.nullable for field in arrow.schema(ALL_COLUMNS))


def test_values() -> None:
    got = table(headers=True)
    assert got.schema.equals(arrow.schema(ALL_COLUMNS))
    assert got.to_pylist() == [
        {
            "key": row.key,
            "value": row.value,
            "topic": "orders",
            "partition": 7,
            "offset": row.offset,
            "timestamp": moment(row.timestamp),
            "timestampType": 0,
            "headers": [{"key": key.decode(), "value": value} for key, value in row.headers] or None,
        }
        for row in ROWS
    ]


def test_without_headers() -> None:
    assert table().schema.equals(arrow.schema())


def test_a_record_without_timestamp_is_one_millisecond_before_1970() -> None:
    [first] = table(rows=[Row(0, -1)])["timestamp"].to_pylist()
    assert first == dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC)


def test_several_partitions_are_chunks() -> None:
    parts = [
        part
        for partition, count in ((0, 3), (1, 5), (2, 0))
        for part in FetchedRecords(
            encode_batch([(T0, b"k", b"v", ())] * count) if count else b"", "t", partition, 0
        ).take_columns()
    ]
    got = arrow.to_table(parts)
    assert got["partition"].num_chunks == 2
    assert got["partition"].to_pylist() == [0] * 3 + [1] * 5


def test_nothing_is_an_empty_table() -> None:
    got = arrow.to_table([], names=ALL_COLUMNS)
    assert (got.num_rows, got.schema) == (0, arrow.schema(ALL_COLUMNS))


def test_a_schema_of_the_callers() -> None:
    pair = pa.struct([pa.field("key", pa.large_string(), nullable=False), pa.field("value", pa.binary())])
    schema = pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("value", pa.string()),
            pa.field("timestamp", pa.timestamp("ms", tz="Europe/Paris")),
            pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
            pa.field("headers", pa.list_(pa.field("element", pair))),
        ]
    )
    got = table(headers=True, schema=schema)
    assert got.schema.equals(schema)
    assert got["timestamp"].to_pylist()[0] == moment(T0)
    assert got["headers"].to_pylist()[0] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    plain = pa.schema([("timestamp", pa.timestamp("us"))])
    assert table(schema=plain)["timestamp"].to_pylist()[0] == moment(T0).replace(tzinfo=None)


def test_a_column_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no column 'keys'; there are key, value"):
        table(schema=pa.schema([("keys", pa.binary())]))
    with pytest.raises(ValueError, match="headers, but the columns were taken without it"):
        table(schema=arrow.schema(ALL_COLUMNS))


@pytest.mark.parametrize("count", [1, 2, 500, 8192, 8193, 20_000])
def test_constant_columns_of_every_length(count: int) -> None:
    data = encode_batch([(T0, None, None, ())] * count)
    [part] = FetchedRecords(data, "topic-é", 2**31 - 1, 0).take_columns()
    got = arrow.to_record_batch(part)
    assert got["topic"].to_pylist() == ["topic-é"] * count
    assert got["partition"].to_pylist() == [2**31 - 1] * count


def test_constant_columns_of_a_table_of_1_mib_are_made_once() -> None:
    data = encode_batch([(T0, None, None, ())] * 10_000)
    first, second = (arrow.to_table(FetchedRecords(data, "topic", 0, 0).take_columns()) for _ in range(2))
    for name in ("topic", "partition"):
        one, other = (each[name].chunk(0).buffers()[-1] for each in (first, second))
        assert one.address == other.address, name


def test_buffers_are_wrapped_not_copied() -> None:
    [part] = FetchedRecords(from_rows(ROWS), "t", 0, 0).take_columns()
    got = arrow.to_record_batch(part)
    assert part.value is not None
    assert got["value"].buffers()[2].address == pa.py_buffer(part.value.data).address
    assert got["offset"].buffers()[1].address == pa.py_buffer(part.offsets).address


def test_arrow_outlives_columns_and_bytes() -> None:
    data = bytearray(from_rows(ROWS))
    reader = FetchedRecords(bytes(data), "t", 0, 0)
    got = arrow.to_table(reader.take_columns())
    reader.close()
    del reader
    assert got["value"].to_pylist() == [b"v", None, b""]


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    arrow._pyarrow.cache_clear()
    arrow.schema.cache_clear()
    with pytest.raises(MissingDependencyError, match=r"pip install 'kadence\[arrow\]'"):
        arrow.to_table([])
    monkeypatch.undo()
    arrow._pyarrow.cache_clear()
