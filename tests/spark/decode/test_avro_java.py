"""The expected values of tests/registry/test_avro_resolution.py are those of Avro for Java, which Spark has."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.registry.test_avro_resolution import DEFAULTS, FIELDS, record, written

pytestmark = pytest.mark.shared_spark


class Java:
    """Avro for Java with its conversions of logical types on."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._avro = jvm.org.apache.avro
        self._data = self._avro.generic.GenericData()
        for name in ("Date", "TimestampMillis", "TimestampMicros", "LocalTimestampMillis"):
            made = getattr(self._avro.data, f"TimeConversions${name}Conversion")()
            self._data.addLogicalTypeConversion(made)
        self._data.addLogicalTypeConversion(getattr(self._avro, "Conversions$DecimalConversion")())

    def read(self, writer: Any, reader: Any, data: bytes) -> Any:
        theirs, ours = (self._avro.Schema.Parser().parse(json.dumps(each)) for each in (writer, reader))
        decoder = self._avro.io.DecoderFactory.get().binaryDecoder(data, None)
        made = self._avro.generic.GenericDatumReader(theirs, ours, self._data).read(None, decoder)
        return self._plain(made)

    def _plain(self, value: Any) -> Any:
        """Times as Java writes them, all else as Python's."""
        if value is None or isinstance(value, bool | int | float | str | bytes | Decimal):
            return value
        kind = value.getClass().getName()
        if kind.endswith("GenericData$Record"):
            return {
                field.name(): self._plain(value.get(field.name())) for field in value.getSchema().getFields()
            }
        if kind.endswith("GenericData$Array"):
            return [self._plain(value.get(place)) for place in range(value.size())]
        if kind.endswith("GenericData$Fixed"):
            return bytes(value.bytes())
        if kind.endswith("ByteBuffer"):
            return bytes(value.array())[value.position() : value.limit()]
        return str(value.toString())


def shown(value: Any) -> Any:
    """A value of Python's as `Java` gives it."""
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(shown, value))
    if isinstance(value, datetime):
        micros = value.microsecond
        digits = "" if not micros else f".{micros // 1000:03}" if micros % 1000 == 0 else f".{micros:06}"
        time = f"{value:%Y-%m-%dT%H:%M}" + (
            f":{value:%S}{digits}" if value.second or micros or value.tzinfo else ""
        )
        return time + ("" if value.tzinfo is None else "Z")
    return value.isoformat() if isinstance(value, date) else value


@pytest.fixture
def java(spark: SparkSession) -> Java:
    return Java(spark._jvm)


def test_fields(java: Java) -> None:
    for writer, value, reader, expected in FIELDS:
        theirs = record(writer)
        found = java.read(theirs, theirs if reader is None else record(reader), written(theirs, {"v": value}))
        assert found["v"] == shown(expected), (writer, reader)


def test_defaults(java: Java) -> None:
    data = written(record("int"), {"v": 5})
    for kind, default, expected in DEFAULTS:
        reader = record("int", {"name": "more", "type": kind, "default": default})
        assert java.read(record("int"), reader, data) == {"v": 5, "more": shown(expected)}, kind
