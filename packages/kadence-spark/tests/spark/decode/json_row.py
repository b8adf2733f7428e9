"""A row with a column of each kind that the compiled JSON reader knows, and both ways to read it."""

from __future__ import annotations

from datetime import UTC
from typing import Final
from unittest import mock

import pyarrow as pa

from kadence.columns.json_rows import JsonRows
from kadence_spark.decode import json_values
from kadence_spark.decode.json_rows import rows_reader
from kadence_spark.decode.json_shapes import Rules
from kadence_spark.decode.json_values import JsonFormat

__all__ = ["ROW", "RULES", "reader_of", "without_rows"]

RULES: Final = Rules(UTC)
ROW = pa.struct(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("näme", pa.string()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("inner", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
    ]
)


def reader_of(kind: pa.DataType) -> JsonRows:
    """The compiled reader."""
    found = rows_reader(kind, RULES.zone)
    assert found is not None
    return found


def without_rows(kind: pa.DataType) -> JsonFormat:
    """The decoder in Python, which reads what the compiled reader refuses."""
    with mock.patch.object(json_values, "rows_reader", return_value=None):
        return JsonFormat(kind, RULES)
