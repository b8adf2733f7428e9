"""Serialisers turn keys and values into bytes: the built-in ones, and the types of your own.

A serialiser is a callable that gets the key or value and returns bytes, such as one of the functions below; or, if
it needs the topic or the headers, an object with ``serialize(topic, headers, data)``, as in Java. It never gets
None: a record without a key or value (a tombstone) keeps its None. If it raises, its exception becomes the cause of
a `SerializationError`, which names the topic and the field.

In the configuration a name does as well: that of a function below, or of Java's class. So
``{"value.serializer": "long"}`` writes what Java's LongDeserializer reads.
"""

from __future__ import annotations

import json as _json
import struct
import uuid as _uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kadence.deserializers import _find

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
    """A serialiser that also gets the topic and the headers."""

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """Return the bytes; raise any exception when the object cannot be serialised."""


SerializerLike = Callable[[Any], bytes] | Serializer | type[Serializer] | str
"""Everything that is accepted as a serialiser.

A callable that returns bytes, an object with ``serialize`` (`Serializer`), a class of such objects whose
constructor takes no arguments, or the name of a built-in one.
"""


def string(value: str) -> bytes:
    """UTF-8."""
    return value.encode()


def json(value: Any) -> bytes:
    """A JSON document, UTF-8, without spaces between its parts.

    It refuses NaN and infinities, which JSON does not have.
    """
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
        raise TypeError(f"a boolean is True or False, not {type(value).__name__}")
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
    """The built-in serialiser with this name, ours or Java's class name. None takes bytes as they are.

    Raises:
        ValueError: there is none with this name; the message lists the names.
    """
    return _find(
        name,
        _READY,
        java="Serializer",
        called="serialiser",
        otherwise="a callable that returns bytes, an object with serialize(topic, headers, data)",
    )
