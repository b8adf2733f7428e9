"""From Kafka's primitive types to bytes.

A writer collects pieces and joins them once. Measured against appending to a bytearray: level for small
messages, half the time for a mebibyte of records, because a records field is only referenced until the
join (24 instead of 51 µs). `frame` does not copy long buffers at all. A value that does not fit its type raises
`WireError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final

from kadence.wire.reader import MAX_STRING, Buffer, Bytes, WireError

__all__ = ["Writer"]

_LONG: Final = 16_384
"""From so many bytes on a buffer goes to the socket as it is. To copy a shorter one costs less than one more piece."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))
"""The varints that are one byte: nearly all of them."""
_COMPACT_INT32S: Final = tuple(Struct(f">B{count}i") for count in range(16))
"""Layouts of short int32 arrays together with their varint length."""


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Writer:
    """Collects the bytes of one message.

    Attributes:
        put: appends bytes that are already in Kafka's form; generated code packs its runs of
            fixed-size fields itself and hands them over here.
    """

    __slots__ = ("_parts", "put")

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self.put: Callable[[Buffer], None] = self._parts.append

    def __repr__(self) -> str:
        return f"<Writer of {sum(map(len, self._parts))} bytes>"

    def getvalue(self) -> Bytes:
        """Everything written so far."""
        return b"".join(self._parts)

    def frame(self) -> list[Buffer]:
        """Everything written so far behind its length (int32), in pieces.

        Each long buffer is a piece, as it was given; what is between two of them is joined.
        """
        length = sum(map(len, self._parts))
        prefix = _INT32.pack(length)
        if length < _LONG:
            return [b"".join((prefix, *self._parts))]
        pieces: list[Buffer] = []
        short: list[Buffer] = [prefix]
        for part in self._parts:
            if len(part) < _LONG:
                short.append(part)
                continue
            if short:
                pieces.append(b"".join(short))
                short = []
            pieces.append(part)
        if short:
            pieces.append(b"".join(short))
        return pieces

    def uvarint(self, value: int) -> None:
        """Unsigned, seven bits a byte."""
        self.put(_uvarint(value))

    def uuid(self, value: Bytes) -> None:
        """Sixteen bytes as they are."""
        if len(value) != 16:
            raise WireError(f"a uuid of {len(value)} bytes; it has 16")
        self.put(value)

    # Strings

    def _raw(self, value: str) -> Bytes:
        try:
            raw = value.encode()
        except UnicodeEncodeError as error:
            raise WireError(f"{value!r} has no UTF-8 form") from error
        if len(raw) > MAX_STRING:
            raise WireError(f"a string of {len(raw)} bytes; Kafka's limit is {MAX_STRING}")
        return raw

    def string(self, value: str) -> None:
        """UTF-8 after an int16 length."""
        raw = self._raw(value)
        self.put(_INT16.pack(len(raw)) + raw)

    def compact_string(self, value: str) -> None:
        """UTF-8 after a varint of length + 1."""
        if value.isascii() and (size := len(value) + 1) < 0x80:  # as nearly every string
            self.put(_ONE_BYTE[size] + value.encode())
            return
        raw = self._raw(value)
        size = len(raw) + 1
        self.put((_ONE_BYTE[size] if size < 0x80 else _uvarint(size)) + raw)

    def nullable_string(self, value: str | None) -> None:
        """Like `string`; None is length -1."""
        if value is None:
            self.put(b"\xff\xff")
        else:
            self.string(value)

    def compact_nullable_string(self, value: str | None) -> None:
        """Like `compact_string`; None is 0."""
        if value is None:
            self.put(b"\x00")
        else:
            self.compact_string(value)

    # Bytes and records, written alike: the buffer is referenced, not copied

    def bytes(self, value: Buffer) -> None:
        """Bytes after an int32 length."""
        self.put(_INT32.pack(len(value)))
        self.put(value)

    def compact_bytes(self, value: Buffer) -> None:
        """Bytes after a varint of length + 1."""
        self.put(_uvarint(len(value) + 1))
        self.put(value)

    def nullable_bytes(self, value: Buffer | None) -> None:
        """Like `bytes`; None is length -1."""
        if value is None:
            self.put(b"\xff\xff\xff\xff")
        else:
            self.bytes(value)

    def compact_nullable_bytes(self, value: Buffer | None) -> None:
        """Like `compact_bytes`; None is 0."""
        if value is None:
            self.put(b"\x00")
        else:
            self.compact_bytes(value)

    # Arrays

    def count(self, count: int) -> None:
        """The int32 length of an array; -1 is null."""
        self.put(_INT32.pack(count))

    def compact_count(self, count: int) -> None:
        """The varint length of an array; -1 is null."""
        count += 1
        self.put(_ONE_BYTE[count] if count < 0x80 else _uvarint(count))

    def int32s(self, values: Sequence[int]) -> None:
        """A whole array of int32."""
        self.put(struct.pack(f">i{len(values)}i", len(values), *values))

    def compact_int32s(self, values: Sequence[int]) -> None:
        """A whole compact array of int32."""
        count = len(values)
        if count < len(_COMPACT_INT32S):
            self.put(_COMPACT_INT32S[count].pack(count + 1, *values))
        else:
            self.put(_uvarint(count + 1) + struct.pack(f">{count}i", *values))

    def nullable_int32s(self, values: Sequence[int] | None) -> None:
        """Like `int32s`; None is length -1."""
        if values is None:
            self.count(-1)
        else:
            self.int32s(values)

    def compact_nullable_int32s(self, values: Sequence[int] | None) -> None:
        """Like `compact_int32s`; None is 0."""
        if values is None:
            self.compact_count(-1)
        else:
            self.compact_int32s(values)

    # Tagged fields

    def tags(self, tags: Mapping[int, Bytes]) -> None:
        """A struct's tagged fields, known and unknown, in the order Kafka asks for: ascending."""
        if not tags:
            self.put(b"\x00")
            return
        self.put(_uvarint(len(tags)))
        for tag in sorted(tags):
            value = tags[tag]
            self.put(_uvarint(tag) + _uvarint(len(value)) + value)
