"""Bytes to keys and values: the ready deserialisers, and what else may be given as one.

A deserialiser is a callable that gets the bytes, such as `json.loads` or one of the functions below; or an object with
``deserialize(topic, headers, data)``, Java's signature, for those that need to know where the bytes come from. It never
sees None: a record without a key or value (a tombstone) keeps its None. Whatever it raises makes the record a bad one
(``deserialization.errors``).

In the configuration the names of the functions below do as well, and Java's class names of the same ones, so
``{"value.deserializer": "long"}`` reads what Java's LongSerializer wrote.
"""

from __future__ import annotations

import json as _json
import struct
import uuid as _uuid
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from kadence.ready_names import find
from kadence.typevars import T_co

__all__ = [
    "Deserializer",
    "DeserializerLike",
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

Headers = tuple[tuple[str, bytes | None], ...]


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Deserializer(Protocol[T_co]):
    """A deserialiser that gets the topic and the headers, too. ``Deserializer[Order]`` makes values of that type."""

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T_co:
        """Return the key or value; raise any exception when the bytes cannot be read."""
        ...


class ReadyName(Protocol[T_contra]):
    """Any str. Type checkers cannot know what the deserialiser of a name makes; from this they conclude that it is Any.

    The operator's argument is Any in every str. A plain ``str`` in `DeserializerLike` would say nothing of the type, so
    that they would take bytes for it.
    """

    def __mod__(self, value: T_contra, /) -> str:
        """As that of str."""
        ...


DeserializerLike = Callable[[bytes], T] | Deserializer[T] | type[Deserializer[T]] | ReadyName[T]
"""What may be given as a deserialiser that makes a ``T``.

A callable that gets the bytes, an object with ``deserialize`` (`Deserializer`), a class of such objects that is made
without arguments, or the name of a ready one.
"""


def string(data: bytes) -> str:
    """UTF-8. Unlike Java's, which puts U+FFFD in place of what is wrong, it raises."""
    return data.decode()


def json(data: bytes) -> Any:
    """A JSON document, UTF-8."""
    return _json.loads(data)


def short(data: bytes) -> int:
    """Two bytes, signed, big-endian."""
    return int(_SHORT.unpack(data)[0])


def integer(data: bytes) -> int:
    """Four bytes, signed, big-endian."""
    return int(_INTEGER.unpack(data)[0])


def long(data: bytes) -> int:
    """Eight bytes, signed, big-endian."""
    return int(_LONG.unpack(data)[0])


def float32(data: bytes) -> float:
    """Four bytes of IEEE 754, big-endian: Java's float."""
    return float(_FLOAT.unpack(data)[0])


def double(data: bytes) -> float:
    """Eight bytes of IEEE 754, big-endian."""
    return float(_DOUBLE.unpack(data)[0])


def boolean(data: bytes) -> bool:
    """One byte: 0 or 1."""
    if data not in (b"\0", b"\1"):
        raise ValueError(f"a boolean is one byte, 0 or 1; these are {len(data)} bytes")
    return data == b"\1"


def uuid(data: bytes) -> _uuid.UUID:
    """The 36 characters of a UUID, as Java's UUIDSerializer writes them."""
    return _uuid.UUID(data.decode())


_SHORT, _INTEGER, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_FLOAT, _DOUBLE = struct.Struct(">f"), struct.Struct(">d")

_READY: Final[dict[str, Callable[[bytes], Any] | None]] = {
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


def named(name: str) -> Callable[[bytes], Any] | None:
    """The ready one of a name, ours or Java's class name; None leaves bytes as they are.

    Raises:
        ValueError: there is none; the message says what there is.
    """
    return find(
        name,
        _READY,
        java="Deserializer",
        called="deserialiser",
        otherwise="a callable that gets the bytes, an object with deserialize(topic, headers, data)",
    )
