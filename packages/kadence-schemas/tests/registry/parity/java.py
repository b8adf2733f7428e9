"""Avro for Java, of the jars that come with PySpark."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime
from typing import Any

from tests.registry.parity.plain import REFUSED, of_python

__all__ = ["Java"]

_CONVERSIONS = (
    "Date",
    "TimeMillis",
    "TimeMicros",
    "TimestampMillis",
    "TimestampMicros",
    "LocalTimestampMillis",
    "LocalTimestampMicros",
)


class Java:
    """Reads and writes with ``GenericData``.

    Args:
        jvm: of a Spark session.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._avro = avro = jvm.org.apache.avro
        self._raw = avro.generic.GenericData()
        self._data = avro.generic.GenericData()
        self._utc = jvm.java.time.ZoneOffset.UTC
        for name in _CONVERSIONS:
            self._data.addLogicalTypeConversion(getattr(avro.data, f"TimeConversions${name}Conversion")())
        for name in ("Decimal", "UUID"):
            self._data.addLogicalTypeConversion(getattr(avro, f"Conversions${name}Conversion")())
        self._decoders = avro.io.DecoderFactory.get()
        self._encoders = avro.io.EncoderFactory()
        self._encoders.configureBlockSize(64)

    def schema(self, schema: Any) -> Any:
        """A schema as Java has it; it checks names and defaults."""
        return self._avro.Schema.Parser().parse(json.dumps(schema))

    def read(self, writer: Any, reader: Any, data: bytes) -> Any:
        """A value in the form of `plain`, with the reader's logical types; it raises what Java raises.

        Args:
            writer, reader: of `schema`.
        """
        decoder = self._decoders.binaryDecoder(data, None)
        made = self._avro.generic.GenericDatumReader(writer, reader, self._data).read(None, decoder)
        return self._plain(made)

    def try_read(self, writer: Any, reader: Any, data: bytes) -> tuple[Any, str]:
        """The same, or `REFUSED` and why."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return self.read(writer, reader, data), ""
        except Py4JJavaError as problem:
            return REFUSED, str(problem.java_exception.toString())
        except PySparkException as problem:
            # PySpark makes its own of some of Java's.
            return REFUSED, str(problem)

    def place(self, union: Any, value: Any) -> int:
        """The place of the type of a union, of `schema`, as which Java writes a value.

        Args:
            value: one of Python; a whole number of 32 bits is an Integer, a larger one a Long.
        """
        if isinstance(value, bytes):
            value = self._jvm.java.nio.ByteBuffer.wrap(value)
        elif isinstance(value, datetime):
            kind = self._jvm.java.time.LocalDateTime if value.tzinfo is None else self._jvm.java.time.Instant
            value = kind.parse(value.isoformat().replace("+00:00", "Z"))
        elif isinstance(value, date):
            value = self._jvm.java.time.LocalDate.parse(value.isoformat())
        return int(self._data.resolveUnion(union, value))

    def written(self, schema: Any, data: bytes) -> bytes:
        """What Java writes for the same value: arrays and maps in many blocks, each with its size."""
        decoder = self._decoders.binaryDecoder(data, None)
        made = self._avro.generic.GenericDatumReader(schema, schema, self._raw).read(None, decoder)
        if not hasattr(made, "getClass"):
            # Python has it as a number or text of its own, which Java may take for another type of a union.
            return data
        out = self._jvm.java.io.ByteArrayOutputStream()
        encoder = self._encoders.blockingBinaryEncoder(out, None)
        self._avro.generic.GenericDatumWriter(schema, self._raw).write(made, encoder)
        encoder.flush()
        return bytes(out.toByteArray())

    def _plain(self, value: Any) -> Any:
        if value is None or not hasattr(value, "getClass"):
            return of_python(bytes(value) if isinstance(value, bytearray) else value)
        kind = value.getClass().getName()
        name = kind.rpartition(".")[2]
        if name == "GenericData$Record":
            names = value.getSchema().getFields()
            return {field.name(): self._plain(value.get(field.pos())) for field in names}
        if name.endswith("Array"):
            return [self._plain(value.get(place)) for place in range(value.size())]
        if name.endswith("Map"):
            return {str(each.getKey()): self._plain(each.getValue()) for each in value.entrySet()}
        if name == "GenericData$Fixed":
            return bytes(value.bytes())
        if name.endswith("ByteBuffer"):
            return bytes(value.array())[value.position() : value.limit()]
        if name == "Instant":
            return "instant", value.getEpochSecond() * 1_000_000 + value.getNano() // 1_000
        if name == "LocalDateTime":
            return "local", value.toEpochSecond(self._utc) * 1_000_000 + value.getNano() // 1_000
        if name == "LocalDate":
            return "day", value.toEpochDay()
        if name == "LocalTime":
            return "clock", value.toNanoOfDay() // 1_000
        if name == "UUID":
            return "uuid", str(value.toString())
        assert name in ("Utf8", "GenericData$EnumSymbol"), kind
        return str(value.toString())


def single(number: float) -> float:
    """The float of 32 bits that is nearest: Py4J gives a Float by its shortest text."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return number
