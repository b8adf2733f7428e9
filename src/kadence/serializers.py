"""Keys and values to bytes: the ready serialisers, and what else may be given as one. The way back is `deserializers`.

A serialiser is a callable that gets the key or value and returns bytes, such as one of the functions below; or an
object with ``serialize(topic, headers, data)``, Java's signature, for those that need to know where the record goes. It
never sees None: a record without a key or value (a tombstone) keeps its None. Whatever it raises is the cause of a
`SerializationError`, which names the topic and the field.

In the configuration the names of the functions below do as well, and Java's class names of the same ones, so
``{"value.serializer": "long"}`` writes what Java's LongDeserializer reads.
"""

from __future__ import annotations

import json as _json
import struct
import uuid as _uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kadence.ready_names import find

__all__ = [
    "Serializer",
    "SerializerLike",
    "boolean",
    "double",
    "float32",
    "integer",
    "json",
    "long",
    "named",
    "short",
    "string",
    "uuid",
]

Headers = Sequence[tuple[str, bytes | None]]


class Serializer(Protocol):
    """A serialiser that gets the topic and the headers, too."""

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """Return the bytes; raise any exception when the object cannot be serialised."""


SerializerLike = Callable[[Any], bytes] | Serializer | type[Serializer] | str
"""What may be given as a serialiser: a callable that returns bytes, an object with ``serialize`` (`Serializer`), a
class of such objects that is made without arguments, or the name of a ready one."""


def string(value: str) -> bytes:
    """UTF-8."""
    return value.encode()


def json(value: Any) -> bytes:
    """A JSON document, UTF-8, without spaces between its parts. NaN and infinities, which JSON has not, are refused."""
    return _json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def short(value: int) -> bytes:
    """Two bytes, signed, big-endian."""
    return _SHORT.pack(value)


def integer(value: int) -> bytes:
    """Four bytes, signed, big-endian."""
    return _INTEGER.pack(value)


def long(value: int) -> bytes:
    """Eight bytes, signed, big-endian."""
    return _LONG.pack(value)


def float32(value: float) -> bytes:
    """Four bytes of IEEE 754, big-endian: Java's float."""
    return _FLOAT.pack(value)


def double(value: float) -> bytes:
    """Eight bytes of IEEE 754, big-endian."""
    return _DOUBLE.pack(value)


def boolean(value: bool) -> bytes:
    """One byte: 0 or 1."""
    if not isinstance(value, bool):
        raise TypeError(f"a boolean is True or False, not {value!r}")
    return b"\1" if value else b"\0"


def uuid(value: _uuid.UUID) -> bytes:
    """The 36 characters of a UUID, as Java's UUIDSerializer writes them."""
    if not isinstance(value, _uuid.UUID):
        raise TypeError(f"a uuid is a uuid.UUID, not {type(value).__name__}")
    return str(value).encode()


_SHORT, _INTEGER, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_FLOAT, _DOUBLE = struct.Struct(">f"), struct.Struct(">d")

_READY: Final[dict[str, Callable[[Any], bytes] | None]] = {
    "bytes": None,
    "string": string,
    "json": json,
    "short": short,
    "integer": integer,
    "long": long,
    "float32": float32,
    "double": double,
    "boolean": boolean,
    "uuid": uuid,
}


def named(name: str) -> Callable[[Any], bytes] | None:
    """The ready one of a name, ours or Java's class name; None takes bytes as they are.

    Raises:
        ValueError: there is none; the message says what there is.
    """
    return find(
        name,
        _READY,
        java="Serializer",
        called="serialiser",
        otherwise="a callable that returns bytes, an object with serialize(topic, headers, data)",
    )
