"""Bytes ⇄ Kafka's primitive types. Knows no message, no broker, no socket; imports nothing of kadence.

Any thread may use it; a `Reader` or `Writer` belongs to whoever made it.

`Structure`, the base of all generated message classes, has their equality and repr. They are not dataclasses: a hundred
of those cost 75 ms of every import, because each compiles its methods anew; methods that are spelt out come from the
.pyc in 12.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

from kadence.wire.reader import ZERO_UUID, Buffer, Reader, VersionError, WireError
from kadence.wire.writer import Writer

__all__ = [
    "FRESH",
    "ZERO_UUID",
    "Buffer",
    "Reader",
    "Structure",
    "VersionError",
    "WireError",
    "Writer",
    "parser",
    "unreadable",
]

P = ParamSpec("P")
R = TypeVar("R")


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


def unreadable(error: Exception) -> str:
    """How messages name what a parser raised."""
    return str(error) if isinstance(error, WireError) else f"{type(error).__name__}: {error}"


def parser(read: Callable[P, R]) -> Callable[P, R]:
    """A function that reads another's bytes, and raises `WireError` alone.

    Readers check what they read. What they do not foresee (recursion, memory, a key that is not there) must not end the
    thread that reads for everybody.
    """

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except WireError:
            raise
        except Exception as error:
            raise WireError(unreadable(error)) from error

    return reading
