"""Confluent's wire format of one key or value: a zero byte, a schema id in four bytes, in Protobuf a message's place.

The same for whole batches: `kadence.registry.columns.wire`. Source: Confluent's documentation, "Wire format".
"""

from __future__ import annotations

import struct
from typing import Final

from kadence.errors import SerializationError

__all__ = ["HEADER", "MOST_ID", "header_of", "id_of", "message_place", "place_of"]

HEADER: Final = 5

_HEADER: Final = struct.Struct(">BI")

MOST_ID: Final = 2**32 - 1
"""The largest schema id that has room in four bytes."""

MOST_NESTED: Final = 100
"""So deep a message may stand in others: as deep as Protobuf's readers go by default."""


def header_of(schema_id: int) -> bytes:
    """What comes before the data."""
    return _HEADER.pack(0, schema_id)


def id_of(data: bytes) -> int:
    """The schema id of a key or value.

    Raises:
        SerializationError: it has none.
    """
    if len(data) < HEADER:
        raise SerializationError(f"{len(data)} bytes are too few for a schema id")
    magic, schema_id = _HEADER.unpack_from(data)
    if magic:
        raise SerializationError(f"it begins with byte {magic} where a schema id is announced by 0")
    return int(schema_id)


def place_of(path: tuple[int, ...]) -> bytes:
    """A message's place in its file: indexes of nested messages, outermost first, their number before them.

    One byte 0 stands for the first message, which is nearly always meant.
    """
    if path == (0,):
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def message_place(data: bytes) -> tuple[tuple[int, ...], int]:
    """A message's place, and where the data begins.

    Raises:
        SerializationError: it cannot be read.
    """
    at = HEADER
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
    return SerializationError("the place of the message in its file cannot be read")


def _varint(number: int) -> bytes:
    """Zigzag; indexes are never negative."""
    number <<= 1
    made = bytearray()
    while number > 0x7F:
        made.append((number & 0x7F) | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
