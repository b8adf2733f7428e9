"""Bytes ⇄ Kafka's primitive types. Knows no message, no broker, no socket; imports nothing of kadence.

Any thread may use it; a `Reader` or `Writer` belongs to whoever made it.

`Structure`, the base of all generated message classes, has their equality and repr. They are not dataclasses: a hundred
of those cost 75 ms of every import, because each compiles its methods anew; methods that are spelt out come from the
.pyc in 12.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kadence.wire.reader import ZERO_UUID, Buffer, Reader, VersionError, WireError
from kadence.wire.writer import Writer

__all__ = ["FRESH", "ZERO_UUID", "Buffer", "Reader", "Structure", "VersionError", "WireError", "Writer"]


FRESH: Final[Any] = object()
"""Default of a parameter whose real default is a new list, dict or structure of the object's own."""


class Structure:
    """A mutable struct of the protocol; `__slots__` are its fields in order."""

    __slots__: tuple[str, ...] = ()
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, so equality comes without a hash

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        shown = ", ".join(
            f"{name}={_shown(name, value)}" for name, value in fields if name != "unknown_tags" or value
        )
        return f"{type(self).__name__}({shown})"


def _shown(name: str, value: object) -> str:
    # Bytes are shown by their size: records are too long to read, and a SASL token is nobody's business.
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex() if name.endswith("_id") else f"<{len(value)} bytes>"
    return repr(value)
