"""How a key or value names its schema: Confluent's wire format.

Either the name comes before the data: a zero byte and a schema id in four bytes, or a one and a GUID in sixteen; for
Protobuf a message's index path follows. Or a header of the record contains exactly these bytes, and the data is the
whole key or value (Confluent 8). A record that has the header is never read by its first bytes.

The same for whole batches: `kadence_schemas.columns.wire`. Source: Confluent's documentation, "Wire format", and
confluent-kafka, ``dual_schema_id_deserializer``.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from kadence.errors import SerializationError

__all__ = [
    "HEADER",
    "KEY_HEADER",
    "MOST_ID",
    "VALUE_HEADER",
    "Frame",
    "announced",
    "frame_of",
    "head_of",
    "place_of",
    "said_of",
]

HEADER: Final = 5
"""How many bytes a schema id takes, with its leading byte."""

_GUID_HEADER: Final = 17
"""How many bytes a GUID takes, with its leading byte."""

_HEADER: Final = struct.Struct(">BI")

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
"""The headers that name schemas."""

MOST_ID: Final = 2**32 - 1
"""The largest schema id that fits into four bytes."""

MOST_NESTED: Final = 100
"""How deeply a message may be nested: the default of Protobuf's readers."""


class Frame(NamedTuple):
    """The reference of a key or value to its schema.

    Attributes:
        schema: the id, or the text of the GUID. path: indexes of nested messages, outermost first; Protobuf only.
        size: bytes before the data. subject: the subject in which the id is looked up; None: the default context.
    """

    schema: int | str
    path: tuple[int, ...]
    size: int
    subject: str | None = None


def head_of(schema: int | str) -> bytes:
    """The bytes before the data, or in the header, for a schema's id or GUID."""
    if isinstance(schema, int):
        return _HEADER.pack(0, schema)
    return b"\1" + uuid.UUID(schema).bytes


def said_of(schema: int | str) -> str:
    """A schema in the words of errors."""
    return f"schema {'id' if isinstance(schema, int) else 'GUID'} {schema}"


def announced(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """The value of the first header of this name; None: there is none, and the schema is named before the data."""
    for each, content in headers:
        if each == name:
            return content
    return None


def frame_of(
    data: bytes,
    header: bytes | None,
    *,
    with_path: bool = False,
    name: str = VALUE_HEADER,
    subject: str | None = None,
) -> Frame:
    """The reference to the schema of a key or value.

    Args:
        header: the value of its record's header ``name``, if any. with_path: whether a message's index path follows.

    Raises:
        SerializationError: there is none.
    """
    if header is None:
        schema, at = _schema(data)
        path, at = message_place(data, at) if with_path else ((), at)
        return Frame(schema, path, at, subject)
    try:
        schema, at = _schema(header)
        path = message_place(header, at)[0] if with_path else ()
    except SerializationError as problem:
        raise SerializationError(f"the header {name} names no schema: {problem}") from None
    return Frame(schema, path, 0, subject)


def _schema(data: bytes) -> tuple[int | str, int]:
    """The schema that some bytes begin with, and where it ends."""
    magic = data[0] if data else 0
    if magic > 1:
        raise SerializationError("it has no schema id: its first byte is neither 0 nor 1")
    if len(data) < (_GUID_HEADER if magic else HEADER):
        raise SerializationError(f"{len(data)} bytes are too few for a schema {'GUID' if magic else 'id'}")
    if magic:
        return str(uuid.UUID(bytes=bytes(data[1:_GUID_HEADER]))), _GUID_HEADER
    return int(_HEADER.unpack_from(data)[1]), HEADER


def place_of(path: tuple[int, ...]) -> bytes:
    """A message's index path in its file: indexes of nested messages, outermost first, after their number.

    A single byte 0 means the first message, by far the most common one.
    """
    if path == (0,):
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def message_place(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The index path of a message at ``at``, and its end.

    Raises:
        SerializationError: it cannot be read.
    """
    found: list[int] = []
    wanted = 1
    while len(found) < wanted:
        number = shift = 0
        while True:
            if at >= len(data) or shift > 28:
                raise _unreadable()
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        found.append(number)
        if len(found) == 1:
            wanted = 1 + number
            if not 0 <= number <= MOST_NESTED:
                raise _unreadable()
    return tuple(found[1:]) or (0,), at


def _unreadable() -> SerializationError:
    return SerializationError("the index path of its message cannot be read")


def _varint(number: int) -> bytes:
    """Zigzag; indexes are never negative."""
    number <<= 1
    made = bytearray()
    while number > 0x7F:
        made.append((number & 0x7F) | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
