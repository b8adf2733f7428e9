"""Asks Spark's ``from_json`` and our decoding about the same documents, and says where they answer differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

from kadence_spark.decode import json_values
from kadence_spark.decode.formats import decoder_of
from kadence_spark.decode.options import parse

__all__ = ["Answers", "Difference", "differences", "spark_answers"]

_BAD = "_corrupt_record"


@dataclass(frozen=True)
class Answers:
    """What was made of some documents.

    Attributes:
        documents: as they were given. kind: Spark's Arrow type of each row.
        rows: with numbers for times and dates, as texts. bad: which ones were bad; None: nobody says.
    """

    documents: list[bytes]
    kind: pa.DataType
    rows: list[str]
    bad: list[bool] | None


@dataclass(frozen=True)
class Difference:
    """A document, and what both made of it."""

    document: bytes
    spark: str
    ours: str


def spark_answers(spark: SparkSession, documents: list[bytes], ddl: str, **options: str) -> Answers:
    """By ``from_json(value.cast("string"), ddl)`` in its mode PERMISSIVE, in the session's zone."""
    is_struct = not ddl.startswith(("map<", "array<"))
    frame = spark.createDataFrame(list(enumerate(map(bytearray, documents))), "n int, v binary")
    schema = f"{ddl}, {_BAD} string" if is_struct else ddl
    asked = from_json(col("v").cast("string"), schema, {"mode": "PERMISSIVE", **options}).alias("j")
    found = frame.select("n", asked).toArrow().sort_by("n").column("j").combine_chunks()
    if not is_struct:
        return Answers(documents, found.type, _shown(found), None)
    bad = pc.and_(found.is_valid(), found.field(_BAD).is_valid()).to_pylist()
    fields = [item for item in found.type if item.name != _BAD]
    column = pa.StructArray.from_arrays(
        [found.field(item.name) for item in fields], fields=fields, mask=found.is_null()
    )
    return Answers(documents, column.type, _shown(column), bad)


def differences(expected: Answers, zone: str, *, compiled: bool, **options: str) -> list[Difference]:
    """Where we answer otherwise.

    Args:
        compiled: whether the compiled reader may help.
    """
    given = parse({"value.format": "json", **options})
    assert given is not None
    decoder_of.cache_clear()
    values = pa.array(expected.documents, pa.binary())
    if compiled:
        decoded = decoder_of(given.value, expected.kind, zone).decode(values)
    else:
        with mock.patch.object(json_values, "rows_reader", return_value=None):
            decoded = decoder_of(given.value, expected.kind, zone).decode(values)
    decoder_of.cache_clear()
    decoded.column.validate(full=True)
    ours = _shown(decoded.column)
    return [
        Difference(document, f"{theirs} {is_bad}", f"{mine} {decoded.bad.get(row)}")
        for row, (document, theirs, mine) in enumerate(
            zip(expected.documents, expected.rows, ours, strict=True)
        )
        if (is_bad := expected.bad[row] if expected.bad else row in decoded.bad) != (row in decoded.bad)
        or theirs != mine
    ]


def _shown(column: pa.Array) -> list[str]:
    rows: list[Any] = column.cast(_numbered(column.type)).to_pylist()
    return [repr(row) for row in rows]


def _numbered(kind: pa.DataType) -> pa.DataType:
    """With numbers for times and dates, which Python has of fewer years."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([item.with_type(_numbered(item.type)) for item in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbered(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_numbered(kind.item_type)))
    if types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if types.is_date(kind) else kind
