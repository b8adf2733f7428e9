"""Bytes to primitive types, and what is wrong with bytes that are none.

Whatever comes from a socket is untrusted. `Reader` bounds memory by the bytes that came. An element of two bytes
becomes an object of some two hundred, so a frame of 100 MB of empty names would still become gigabytes:
`BoundedReader` also limits how many objects a message may become. A broker reads requests with it, a client answers.

The errors are two classes only: this room knows bytes, not brokers. The connection room turns them into
`kadence.errors` at its edge.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

__all__ = ["MAX_ELEMENTS", "ZERO_UUID", "BoundedReader", "Buffer", "Reader", "VersionError", "WireError"]

MAX_ARRAY: Final = 1_000_000
"""Elements of one array, as in Kafka since 4.4."""

MAX_TAGS: Final = 10_000
"""Tagged fields of one struct, as in Kafka since 4.4."""


class WireError(ValueError):
    """Bytes that are no Kafka message (truncated, lying lengths, no UTF-8), or a value that does not fit its type."""


class VersionError(WireError):
    """A version that is not spoken here, or a field set to something which the chosen version cannot carry."""


Buffer: TypeAlias = bytes | bytearray | memoryview
"""What can be read from, and what a records field may hold. Views must be of bytes, one-dimensional.

What else can be indexed, sliced without a copy and read as a buffer goes for a view (`_native.buffers.MemorySlice`).
"""

ZERO_UUID: Final = bytes(16)
"""Kafka's way to say "no id" in a uuid field."""

MAX_STRING: Final = 32767
"""Bytes of UTF-8 in a string; compact strings could say more, but Kafka refuses them."""

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")
_INT32S: Final = tuple(Struct(f">{count}i") for count in range(16))
"""Layouts of short int32 arrays by length: replica lists and the partitions of an assignment are short."""

Bytes: TypeAlias = bytes
"""`bytes` where a method of that name hides the type."""


class Reader:
    """A cursor over one buffer.

    Args:
        buf: the bytes; they must not change while views of them are in use.
        pos: where to begin.
    """

    __slots__ = ("buf", "pos")

    def __init__(self, buf: Buffer, pos: int = 0) -> None:
        self.buf = buf
        self.pos = pos

    def __repr__(self) -> str:
        return f"<Reader at {self.pos} of {len(self.buf)}>"

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self.buf) - self.pos

    def _truncated(self, wanted: str) -> WireError:
        return WireError(f"truncated: {wanted} at byte {self.pos} of {len(self.buf)}")

    # Fixed size

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """The values of a run of fixed-size fields."""
        pos = self.pos
        try:
            values = layout.unpack_from(self.buf, pos)
        except struct.error:
            raise self._truncated(f"{layout.size} bytes wanted") from None
        self.pos = pos + layout.size
        return values

    def bool(self) -> bool:
        """One byte; anything but zero is true."""
        return self.int8() != 0

    def int8(self) -> int:
        """Signed, one byte."""
        value: int
        (value,) = self.unpack(_INT8)
        return value

    def int16(self) -> int:
        """Signed, two bytes."""
        value: int
        (value,) = self.unpack(_INT16)
        return value

    def uint16(self) -> int:
        """Unsigned, two bytes."""
        value: int
        (value,) = self.unpack(_UINT16)
        return value

    def int32(self) -> int:
        """Signed, four bytes."""
        value: int
        (value,) = self.unpack(_INT32)
        return value

    def uint32(self) -> int:
        """Unsigned, four bytes."""
        value: int
        (value,) = self.unpack(_UINT32)
        return value

    def int64(self) -> int:
        """Signed, eight bytes."""
        value: int
        (value,) = self.unpack(_INT64)
        return value

    def float64(self) -> float:
        """IEEE 754 double."""
        value: float
        (value,) = self.unpack(_FLOAT64)
        return value

    def uuid(self) -> bytes:
        """Sixteen bytes as they are."""
        return self._copy(16)

    def uvarint(self) -> int:
        """Unsigned, seven bits a byte, at most five bytes and 32 bits."""
        try:
            value = self.buf[self.pos]
        except IndexError:
            raise self._truncated("a varint wanted") from None
        if value < 0x80:
            self.pos += 1
            return value
        return self._long_uvarint()

    def _long_uvarint(self) -> int:
        pos = self.pos
        value = shift = 0
        for byte in self.buf[pos : pos + 5]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value > 0xFFFF_FFFF:
                    raise WireError(f"varint of more than 32 bits at byte {pos}")
                self.pos = pos + shift // 7
                return value
        if shift < 35:
            raise self._truncated("a varint wanted")
        raise WireError(f"varint of more than five bytes at byte {pos}")

    # Lengths. Null is -1 in the classic form and 0 in the compact one, which stores length + 1.

    def _copy(self, size: int) -> Bytes:
        pos = self.pos
        end = pos + size
        if end > len(self.buf):
            raise self._truncated(f"{size} bytes wanted")
        self.pos = end
        return bytes(self.buf[pos:end])

    def _view(self, size: int) -> memoryview:
        pos = self.pos
        end = pos + size
        if end > len(self.buf):
            raise self._truncated(f"{size} bytes of records wanted")
        self.pos = end
        buf = self.buf
        # Of the same kind, where it is a view: not every kind may be shared by threads.
        return (memoryview(buf) if isinstance(buf, bytes | bytearray) else buf)[pos:end]

    def _text(self, size: int) -> str:
        pos = self.pos
        end = pos + size
        if end > len(self.buf):
            raise self._truncated(f"a string of {size} bytes wanted")
        self.pos = end
        try:
            return str(self.buf[pos:end], "utf-8")
        except UnicodeDecodeError:
            raise WireError(f"the string at byte {pos} is not UTF-8") from None

    def _length(self, read: Callable[[], int]) -> int:
        size = read()
        if size < -1:
            raise self._negative(size)
        return size

    def _negative(self, size: int) -> WireError:
        return WireError(f"negative length {size} before byte {self.pos}")

    def _null(self, what: str) -> WireError:
        return WireError(f"null {what} before byte {self.pos}, where the protocol allows none")

    # Strings

    def string(self) -> str:
        """UTF-8 after an int16 length."""
        size = self._length(self.int16)
        if size < 0:
            raise self._null("string")
        return self._text(size)

    def compact_string(self) -> str:
        """UTF-8 after a varint of length + 1."""
        buf = self.buf
        pos = self.pos
        # Nearly every string is shorter than 127 bytes; those are read without a further call.
        if pos < len(buf) and 0 < (size := buf[pos]) < 0x80 and pos + size <= len(buf):
            self.pos = pos + size
            try:
                return str(buf[pos + 1 : pos + size], "utf-8")
            except UnicodeDecodeError:
                raise WireError(f"the string at byte {pos + 1} is not UTF-8") from None
        value = self.compact_nullable_string()
        if value is None:
            raise self._null("string")
        return value

    def nullable_string(self) -> str | None:
        """Like `string`, or None."""
        size: int
        (size,) = self.unpack(_INT16)
        if size < -1:
            raise self._negative(size)
        return None if size < 0 else self._text(size)

    def compact_nullable_string(self) -> str | None:
        """Like `compact_string`, or None."""
        if self.pos < len(self.buf) and self.buf[self.pos] == 0:  # as most that may be null
            self.pos += 1
            return None
        size = self.uvarint()
        if size == 0:
            return None
        if size > MAX_STRING + 1:
            raise WireError(
                f"a string of {size - 1} bytes before byte {self.pos}; Kafka's limit is {MAX_STRING}"
            )
        return self._text(size - 1)

    # Bytes

    def bytes(self) -> Bytes:
        """A copy of bytes after an int32 length."""
        size = self._length(self.int32)
        if size < 0:
            raise self._null("bytes")
        return self._copy(size)

    def compact_bytes(self) -> Bytes:
        """A copy of bytes after a varint of length + 1."""
        size = self.uvarint()
        if size == 0:
            raise self._null("bytes")
        return self._copy(size - 1)

    def nullable_bytes(self) -> Bytes | None:
        """Like `bytes`, or None."""
        size = self._length(self.int32)
        return None if size < 0 else self._copy(size)

    def compact_nullable_bytes(self) -> Bytes | None:
        """Like `compact_bytes`, or None."""
        size = self.uvarint()
        return None if size == 0 else self._copy(size - 1)

    def records(self) -> memoryview | None:
        """A view of record batches after an int32 length, or None. Valid as long as the buffer is."""
        size = self._length(self.int32)
        return None if size < 0 else self._view(size)

    def compact_records(self) -> memoryview | None:
        """A view of record batches after a varint of length + 1, or None."""
        size = self.uvarint()
        return None if size == 0 else self._view(size - 1)

    # Arrays. No element is shorter than one byte, so a count above the bytes left is a lie.

    def nullable_count(self) -> int:
        """The int32 length of an array; -1 is the null array."""
        return self._plausible(self._length(self.int32))

    def compact_nullable_count(self) -> int:
        """The varint length of an array; -1 is the null array."""
        return self._plausible(self.uvarint() - 1)

    def count(self) -> int:
        """The int32 length of an array."""
        count = self.nullable_count()
        if count < 0:
            raise self._null("array")
        return count

    def compact_count(self) -> int:
        """The varint length of an array."""
        buf, pos = self.buf, self.pos
        # Nearly every array is shorter than 127 elements; their length is read without a further call.
        if pos < len(buf) and 0 < (size := buf[pos]) < 0x80 and pos + size <= len(buf):
            self.pos = pos + 1
            return size - 1
        count = self._plausible(self.uvarint() - 1)
        if count < 0:
            raise self._null("array")
        return count

    def _plausible(self, count: int) -> int:
        if count > len(self.buf) - self.pos:
            raise WireError(f"an array of {count} elements in {self.remaining} bytes at byte {self.pos}")
        if count > MAX_ARRAY:
            raise WireError(f"an array of {count} elements at byte {self.pos}: {MAX_ARRAY} is the most")
        return count

    def int32s(self) -> list[int]:
        """A whole array of int32."""
        return self._int32s(self.count())

    def compact_int32s(self) -> list[int]:
        """A whole compact array of int32."""
        buf = self.buf
        pos = self.pos
        # A short array costs one call, because a Metadata answer has three for each partition.
        if pos < len(buf) and 0 < (size := buf[pos]) <= len(_INT32S):
            layout = _INT32S[size - 1]
            if pos + layout.size < len(buf):
                self.pos = pos + 1 + layout.size
                return list(layout.unpack_from(buf, pos + 1))
        return self._int32s(self.compact_count())

    def nullable_int32s(self) -> list[int] | None:
        """Like `int32s`, or None."""
        count = self.nullable_count()
        return None if count < 0 else self._int32s(count)

    def compact_nullable_int32s(self) -> list[int] | None:
        """Like `compact_int32s`, or None."""
        count = self.compact_nullable_count()
        return None if count < 0 else self._int32s(count)

    def _int32s(self, count: int) -> list[int]:
        return list(self.unpack(Struct(f">{count}i")))

    # Tagged fields: a count, then (tag, size, bytes) each

    def tag(self) -> tuple[int, int]:
        """The next tagged field: its tag and the position where it ends."""
        tag = self.uvarint()
        size = self.uvarint()
        end = self.pos + size
        if end > len(self.buf):
            raise self._truncated(f"tagged field {tag} of {size} bytes wanted")
        return tag, end

    def until(self, end: int) -> Bytes:
        """A copy of the bytes up to a position `tag` gave."""
        return self._copy(end - self.pos)

    def at(self, end: int) -> None:
        """Checks that a tagged field was as long as it said.

        Raises:
            WireError: it was not.
        """
        if self.pos != end:
            raise WireError(f"a tagged field said it ends at byte {end} but ends at byte {self.pos}")

    def tag_count(self) -> int:
        """The number of a struct's tagged fields."""
        buf, pos = self.buf, self.pos
        if pos < len(buf) and buf[pos] == 0:  # as good as always
            self.pos = pos + 1
            return 0
        count = self.uvarint()
        if count > MAX_TAGS:
            raise WireError(f"{count} tagged fields at byte {pos}: {MAX_TAGS} is the most")
        return count

    def unknown_tags(self) -> dict[int, Bytes]:
        """The tagged fields of a struct that knows none of its own."""
        tags: dict[int, Bytes] = {}
        pos = self.pos
        if pos < len(self.buf) and self.buf[pos] == 0:  # as good as always
            self.pos = pos + 1
            return tags
        for _ in range(self.tag_count()):
            tag, end = self.tag()
            tags[tag] = self.until(end)
        return tags

    def finish(self) -> None:
        """Checks that nothing is left.

        Raises:
            WireError: bytes follow the message.
        """
        if self.pos != len(self.buf):
            raise WireError(f"{self.remaining} bytes after the end of the message at byte {self.pos}")


MAX_ELEMENTS: Final = 250_000
"""Elements of all arrays of one request together; more than any client of a broker of this size can mean."""


class BoundedReader(Reader):
    """A `Reader` whose arrays have ``most`` elements in all. As Kafka it ignores what follows a message."""

    __slots__ = ("_left", "_most")

    def __init__(self, buf: Buffer, pos: int = 0, most: int = MAX_ELEMENTS) -> None:
        self.buf = buf  # what `Reader` does, without a call for each request
        self.pos = pos
        self._left = self._most = most

    def _plausible(self, count: int) -> int:
        self._spend(count)
        return super()._plausible(count)

    def compact_count(self) -> int:
        count = self._plausible(self.uvarint() - 1)
        if count < 0:
            raise self._null("array")
        return count

    def tag_count(self) -> int:
        count = super().tag_count()
        self._spend(count)
        return count

    def finish(self) -> None:
        return

    def _spend(self, count: int) -> None:
        if count > 0:
            self._left -= count
            if self._left < 0:
                raise WireError(f"the arrays of one message have more than {self._most} elements")
