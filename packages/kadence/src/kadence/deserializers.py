"""Deserialisers turn bytes into keys and values: the built-in ones, and the types of your own.

A deserialiser is a callable that gets the bytes, such as `json.loads` or one of the functions below; or, if it
needs the topic or the headers, an object with ``deserialize(topic, headers, data)``, as in Java. It never gets
None: a record without a key or value (a tombstone) keeps its None. If it raises, ``deserialization.errors`` decides
what happens to the record.

In the configuration a name does as well: that of a function below, or of Java's class. So
``{"value.deserializer": "long"}`` reads what Java's LongSerializer wrote.
"""

from __future__ import annotations

import json as _json
import struct
import uuid as _uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from kadence.forked import free_lock
from kadence.types import T_co

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
    """A deserialiser that also gets the topic and the headers. ``Deserializer[Order]`` returns values of that type."""

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T_co:
        """Return the key or value; raise any exception when the bytes cannot be read."""
        ...


class ReadyName(Protocol[T_contra]):
    """The name of a built-in deserialiser. It makes type checkers infer Any for what that deserialiser returns.

    Every str fits this protocol. With a plain ``str`` in `DeserializerLike` type checkers would infer bytes
    instead.
    """

    def __mod__(self, value: T_contra, /) -> str:
        """As that of str."""
        ...


DeserializerLike = Callable[[bytes], T] | Deserializer[T] | type[Deserializer[T]] | ReadyName[T]
"""Everything that is accepted as a deserialiser of a type ``T``.

A callable that gets the bytes, an object with ``deserialize`` (`Deserializer`), a class of such objects whose
constructor takes no arguments, or the name of a built-in one.
"""


def string(data: bytes) -> str:
    """UTF-8. It raises if the bytes are not UTF-8; Java's deserialiser puts U+FFFD in their place."""
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
    """The built-in deserialiser with this name, ours or Java's class name. None returns the bytes as they are.

    Raises:
        ValueError: there is none with this name; the message lists the names.
    """
    return _find(
        name,
        _READY,
        java="Deserializer",
        called="deserialiser",
        otherwise="a callable that gets the bytes, an object with deserialize(topic, headers, data)",
    )


_JAVA: Final = "org.apache.kafka.common.serialization."
_JAVA_NAMES: Final = {
    "ByteArray": "bytes",
    "ByteBuffer": "bytes",
    "Bytes": "bytes",
    "String": "string",
    "Short": "short",
    "Integer": "integer",
    "Long": "long",
    "Float": "float32",
    "Double": "double",
    "Boolean": "boolean",
    "UUID": "uuid",
}


def _find(name: str, ready: Mapping[str, T], *, java: str, called: str, otherwise: str) -> T:
    """The ready one of a name.

    Args:
        java: how Java's class names end. called: what the error calls a ready one. otherwise: what the error says may
            be given instead.

    Raises:
        ValueError: there is none; the message says what there is.
    """
    ours = _JAVA_NAMES.get(name.removeprefix(_JAVA).removesuffix(java), name)
    if ours in ready:
        return ready[ours]
    is_java = name.startswith(_JAVA) or ("." in name and name.endswith(java))
    reason = "a Java class cannot run here" if is_java else f"there is no such ready {called}"
    raise ValueError(f"{reason}; give {otherwise}, or one of {', '.join(ready)}")


class OnLoop(Protocol):
    """Who calls serialisers or deserialisers on an event loop."""

    def is_converting(self) -> bool:
        """Whether the caller of this is one of those."""
        ...


_ON_LOOPS: Final[list[weakref.ref[OnLoop]]] = []
_LOCK: Final = free_lock()


def converts_on_loop(caller: OnLoop) -> None:
    """From now on serialisers and deserialisers that this one calls do not wait: see `AnswerPendingError`."""
    with _LOCK:
        _ON_LOOPS[:] = [*(each for each in _ON_LOOPS if each() is not None), weakref.ref(caller)]


def must_not_wait() -> bool:
    """Whether the caller converts a record that an event loop waits for. Asked before a wait, not for each record."""
    return any((caller := each()) is not None and caller.is_converting() for each in tuple(_ON_LOOPS))
