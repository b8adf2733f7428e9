"""Protobuf: what Google's runtime reads, and what Kadence's records, columns and Spark decoding read."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from tests.registry.parity.avro import decoded
from tests.registry.parity.counted import Counted, Difference
from tests.registry.parity.plain import REFUSED
from tests.registry.parity.random_protobuf import Definitions, class_of, text_of
from tests.registry.parity.registered import Registered

from kadence.errors import ConfigError, SerializationError
from kadence_schemas import ProtobufDeserializer
from kadence_spark.decode.formats import arrow_of_side, decoder_of
from kadence_spark.decode.options import Format, SideOptions

__all__ = ["run"]

VALUES: Final = 5
_WRAPPERS: Final = ("Int64Value", "StringValue", "BoolValue", "DoubleValue")


def run(registered: Registered, chance: Random, documents: int, counted: Counted, directory: Path) -> None:
    """Compare until so many documents have been read.

    Args:
        directory: for descriptor sets.
    """
    last = counted.documents + documents
    while counted.documents < last:
        definitions = Definitions(chance)
        writer = definitions.new()
        of_writer = class_of(writer)
        written = registered.protobuf(
            writer, of_writer, [definitions.fill(of_writer()) for _ in range(VALUES)]
        )
        for reader in (None, definitions.changed(writer), definitions.changed(definitions.changed(writer))):
            _compare(registered, writer, reader, written.header, written.bodies, counted, directory)


def _compare(
    registered: Registered,
    writer: Any,
    reader: Any,
    header: bytes,
    data: list[bytes],
    counted: Counted,
    directory: Path,
) -> None:
    file = writer if reader is None else reader
    kind = class_of(file)
    expected = [_expected(kind, each) for each in data]
    framed = [header + each for each in data]
    given = None if reader is None else kind
    answers = {
        "records": _records(registered, given, framed),
        "columns": _columns(registered, given, framed),
        "spark": _spark(registered, reader, writer, framed, directory),
    }
    for label, found in answers.items():
        for value, answer, each in zip(expected, found, data, strict=True):
            counted.compare(
                Difference("protobuf", label, value, answer, "", text_of(writer), text_of(file), each.hex())
            )
    counted.documents += len(data)


def _expected(kind: Any, data: bytes) -> Any:
    try:
        return _plain(kind.FromString(data))
    except DecodeError:
        return REFUSED


def _records(registered: Registered, kind: Any, framed: list[bytes]) -> list[Any]:
    made = ProtobufDeserializer(registered.client, kind)

    def read(data: bytes) -> Any:
        try:
            return _plain(made.deserialize("parity", (), data))
        except SerializationError:
            return REFUSED

    return [read(each) for each in framed]


def _columns(registered: Registered, kind: Any, framed: list[bytes]) -> list[Any]:
    try:
        return decoded(ProtobufDeserializer(registered.client, kind).columns().decode, framed)
    except ConfigError as problem:
        return [str(problem)] * len(framed)


def _spark(
    registered: Registered, reader: Any, writer: Any, framed: list[bytes], directory: Path
) -> list[Any]:
    name = directory / "set.bin"
    files = descriptor_pb2.FileDescriptorSet()
    files.file.append(writer if reader is None else reader)
    name.write_bytes(files.SerializeToString())
    of_file = SideOptions("value", Format.PROTOBUF, schema=str(name), message="p.M", framed=True)
    of_registry = SideOptions("value", Format.PROTOBUF, framed=True, registry=registered.options)
    try:
        target = arrow_of_side(of_file, "")
        # A worker keeps decoders by their options, and here one name has many contents.
        made = decoder_of.__wrapped__(of_registry if reader is None else of_file, target)
        return decoded(made.decode, framed)
    except ConfigError as problem:
        return [str(problem)] * len(framed)


# ---------------------------------------------------------------- a message as a row


def _plain(message: Any) -> Any:
    """A message as a column has it."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        item = entry.fields_by_name["value"]
        return {key: _value(item, value[key]) for key in value}
    if field.is_repeated:
        return [_value(field, each) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.message_type is None:
        return "NaN" if isinstance(value, float) and math.isnan(value) else value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return "instant", value.seconds * 1_000_000 + value.nanos // 1_000
    if name == "google.protobuf.Duration":
        return "duration", value.seconds * 1_000_000_000 + value.nanos
    if name.startswith("google.protobuf.") and name.rpartition(".")[2] in _WRAPPERS:
        return _field(value, value.DESCRIPTOR.fields_by_name["value"])
    return _plain(value)
