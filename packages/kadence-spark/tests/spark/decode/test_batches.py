"""From batches of Kafka's columns to those of the query, without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from kadence.errors import SerializationError
from kadence_spark.decode.batches import SourceDecoding
from kadence_spark.decode.layout import Layout
from kadence_spark.decode.options import Mode, parse

KAFKA: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
ROWS: list[tuple[Any, ...]] = [
    (b"k0", b'{"id":0}', "t", 3, 10),
    (b"\xff", b'{"id":"a secret","more":1}', "t", 3, 12),
    (None, None, "t", 3, 13),
    (b"k3", b'{"id":3}', "t", 3, 14),
]


def decode(
    sources: tuple[str, ...], schema: dict[str, pa.DataType], mode: Mode, **options: str
) -> pa.RecordBatch:
    """The rows above through a decoder that has travelled."""
    given = parse(
        {"value.format": "json", **{name.replace("_", "."): text for name, text in options.items()}}
    )
    assert given is not None
    decoding = SourceDecoding(given, Layout(sources, tuple(KAFKA), mode))
    arrow = pa.schema(list(schema.items()))
    arrays = [
        pa.array(values, kind) for values, kind in zip(zip(*ROWS, strict=True), KAFKA.values(), strict=True)
    ]
    batch = pickle.loads(pickle.dumps(decoding)).decoder(arrow)(
        pa.RecordBatch.from_arrays(arrays, names=list(KAFKA))
    )
    assert batch.schema.equals(arrow)
    return batch


def test_permissive_puts_reason_and_bytes_beside_nulls() -> None:
    batch = decode(
        (":error", ".id", "offset", ":raw", ":key"),
        {
            "_error": pa.string(),
            "id": pa.int32(),
            "offset": pa.int64(),
            "_raw": pa.binary(),
            "key": pa.string(),
        },
        Mode.PERMISSIVE,
        key_format="string",
    )
    assert batch.column("id").to_pylist() == [0, None, None, 3]
    assert batch.column("key").to_pylist() == ["k0", None, None, "k3"]
    assert batch.column("offset").to_pylist() == [10, 12, 13, 14]
    reason = "value: field id: a text where int32 is expected; key: not UTF-8: byte 0"
    assert batch.column("_error").to_pylist() == [None, reason, None, None]
    assert batch.column("_raw").to_pylist() == [None, ROWS[1][1], None, None]


def test_dropmalformed_leaves_out_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    batch = decode((":value",), {"value": pa.struct([("id", pa.int64())])}, Mode.DROP)
    assert batch.column("value").to_pylist() == [{"id": 0}, None, {"id": 3}]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "dropped 1 records that cannot be decoded (1 in this task so far); the first: record t-3@12"
    )
    assert '{"id' not in line, "no part of a record (S3)"


def test_failfast_says_which_record_and_why() -> None:
    with pytest.raises(
        SerializationError, match="record t-3@12 cannot be decoded: value: field id: a text"
    ) as caught:
        decode((".id",), {"id": pa.int64()}, Mode.FAIL)
    assert '{"id' not in str(caught.value), "no part of a record (S3)"
    assert "mode=permissive" in str(caught.value)


def test_nothing_is_decoded_that_nobody_asks_for() -> None:
    batch = decode(("offset", ":error"), {"offset": pa.int64(), "_error": pa.string()}, Mode.FAIL)
    assert batch.column("_error").null_count == 4
