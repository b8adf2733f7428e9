"""A response as a list of buffers: small ones are joined, record batches stay where the log keeps them.

A fetch answer of megabytes is then written by `sendmsg` straight from the log's segments.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from kadence.protocol import registry
from kadence.wire import Writer
from kadence.wire.reader import Buffer

__all__ = ["Chunks", "Encoded", "encode_scattered"]

_SMALL: Final = 4096
"""Below this, copying is cheaper than one more entry in the scatter list."""
_INT32: Final = struct.Struct(">i")


class Chunks:
    """The value of a records field that lies in several places."""

    __slots__ = ("size", "views")

    def __init__(self, views: Sequence[memoryview]) -> None:
        self.views = views
        self.size = sum(len(view) for view in views)

    def __len__(self) -> int:
        return self.size


class _ScatterWriter(Writer):
    __slots__ = ()

    def nullable_bytes(self, value: Any) -> None:
        if isinstance(value, Chunks):
            self.put(_INT32.pack(value.size))
            self._parts.extend(value.views)
        else:
            super().nullable_bytes(value)

    def compact_bytes(self, value: Any) -> None:
        if isinstance(value, Chunks):
            self.uvarint(value.size + 1)
            self._parts.extend(value.views)
        else:
            super().compact_bytes(value)

    def compact_nullable_bytes(self, value: Any) -> None:
        if isinstance(value, Chunks):
            self.compact_bytes(value)
        else:
            super().compact_nullable_bytes(value)

    def frame(self) -> list[Buffer]:
        """Everything in order behind its length, with neighbours that are small joined."""
        size = sum(map(len, self._parts))
        length = _INT32.pack(size)
        if size < _SMALL:  # as most answers
            return [b"".join((length, *self._parts))]
        joined: list[Buffer] = []
        small: list[Buffer] = [length]
        for part in self._parts:
            if len(part) < _SMALL:
                small.append(part)
                continue
            if small:
                joined.append(b"".join(small))
                small = []
            joined.append(part)
        if small:
            joined.append(b"".join(small))
        return joined


class Encoded:
    """One element of an answer's array, already encoded, so that its objects need not be kept."""

    __slots__ = ("data",)

    def __init__(self, element: Any, version: int) -> None:
        writer = _ScatterWriter()
        element.write(writer, version)
        self.data = writer.getvalue()

    def write(self, w: Writer, _version: int) -> None:
        """Puts the bytes where the element would have been written."""
        w.put(self.data)


def encode_scattered(response: Any, version: int, correlation_id: int) -> list[Buffer]:
    """A response with its header and length prefix, ready to be sent; `Chunks` are allowed as records."""
    writer = _ScatterWriter()
    header_version = registry.response_header_version(response.API_KEY, version)
    writer.put(_INT32.pack(correlation_id))
    if header_version >= 1:
        writer.put(b"\x00")
    response.write(writer, version)
    return writer.frame()
