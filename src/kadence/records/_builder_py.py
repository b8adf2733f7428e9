"""The plain half of the encoder: the same interface as `_builder_c`, in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kadence.errors import IllegalStateError, RecordTooLargeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["RecordEncoder"]

_HEADER = 61
_LIMIT = 2**31 - 1
_INT64 = 2**63
_BYTE = [bytes((value,)) for value in range(128)]


def _varint(number: int) -> bytes:
    """Zig-zag, seven bits at a time; 32 and 64 bits look the same."""
    raw = number << 1 if number >= 0 else ~(number << 1)
    if raw < 0x80:
        return _BYTE[raw]
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_NULL = _varint(-1)


def _sized(value: Buffer | None) -> bytes:
    """A key or value with its length before it."""
    if value is None:
        return _NULL
    data = value if isinstance(value, bytes) else bytes(memoryview(value))
    return _varint(len(data)) + data


class RecordEncoder:
    """Records of one batch under construction, uncompressed.

    Attributes:
        count: records so far.
        base_timestamp: timestamp of the first record (ms), -1 before it.
        max_timestamp: the latest timestamp (ms), -1 before the first record.
    """

    def __init__(self) -> None:
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._data = bytearray()
        self._is_sealed = False

    @property
    def size(self) -> int:
        """Bytes of the batch if it were sealed now without compression, header included."""
        return _HEADER + len(self._data)

    def reserve(self, size: int) -> None:
        """Make room for so many bytes at once, where as many are to be expected: here memory grows by itself."""

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> int:
        """Add a record and return the new `size`.

        Args:
            timestamp: milliseconds since 1970 UTC.
            key: bytes-like or None. value: bytes-like or None.
            headers: pairs of (str, bytes-like or None).

        Raises:
            RecordTooLargeError: the batch would pass 2 GiB.
            IllegalStateError: `seal_in_place` was called.
            TypeError: a key, value or header of another type.
        """
        if self._is_sealed:
            raise IllegalStateError("a batch that was sealed in place takes no more records")
        if not -_INT64 <= timestamp < _INT64:
            raise OverflowError("a timestamp must fit 64 bits")
        # A difference that does not fit 64 bits wraps, here as in every reader that adds it back.
        delta = timestamp - (self.base_timestamp if self.count else timestamp)
        if not -_INT64 <= delta < _INT64:
            delta = (delta + _INT64) % (2 * _INT64) - _INT64
        body = b"\0" + _varint(delta) + _varint(self.count) + _sized(key) + _sized(value)
        pairs = tuple(headers) if headers else ()
        if pairs:
            parts = [body, _varint(len(pairs))]
            for name, content in pairs:
                if type(name) is not str:
                    raise TypeError(f"a header's key must be str, not {type(name).__name__}")
                parts.append(_sized(name.encode()))
                parts.append(_sized(content))
            body = b"".join(parts)
        else:
            body += b"\0"
        if len(self._data) + len(body) + 5 + _HEADER > _LIMIT:
            raise RecordTooLargeError(
                f"a batch of {len(self._data) + len(body)} bytes; Kafka's format ends at 2 GiB"
            )
        self._data += _varint(len(body)) + body
        if self.count == 0 or timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if self.count == 0:
            self.base_timestamp = timestamp
        self.count += 1
        return _HEADER + len(self._data)

    def extend(
        self,
        records: Iterable[tuple[int, Buffer | None, Buffer | None, Iterable[tuple[str, Buffer | None]]]],
    ) -> None:
        """Add many records, each (timestamp, key, value, headers)."""
        append = self.append
        for timestamp, key, value, headers in records:
            append(timestamp, key, value, headers)

    def records(self) -> bytes:
        """The records' bytes as they lie in an uncompressed batch."""
        return bytes(self._data)

    def seal(self, header: bytes, body: bytes | None) -> bytes:
        """``header`` (61 bytes) and ``body`` (our own records when None) as one batch, with its checksum in place."""
        # Imported here: the checksum's room asks for the implementation, of which this is a part.
        from kadence.records.batch import crc32c

        if len(header) != _HEADER:
            raise ValueError("a batch header has 61 bytes")
        rest = header[21:] + (self._data if body is None else body)
        return header[:17] + crc32c(rest).to_bytes(4, "big") + rest

    def seal_in_place(self, header: bytes) -> memoryview:
        """As `seal`, and the encoder takes no more records. The compiled twin saves a copy by it.

        It may be called again with another header, once nobody uses what an earlier call gave.
        """
        if not self.count:
            raise ValueError("a batch has a header of 61 bytes, and records")
        self._is_sealed = True
        return memoryview(self.seal(header, None))
