"""Shared by both halves of the decoder: the errors for bad records, and a record's repr and pickle.

Imports neither half, so both can import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kadence.records._records_py import Record

__all__ = [
    "DATA_LIMIT",
    "FIELDS",
    "MOST_HEADERS",
    "REASONS",
    "SMALLEST_RECORD",
    "RecordFormatError",
    "describe",
    "rebuild_record",
    "replace",
]

FIELDS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)
"""A record's fields in the order of the constructor, of the pickle and of the text."""

SMALLEST_RECORD: Final = 7
"""Bytes of the smallest record there can be (every field one byte); bounds what a batch may claim to hold."""

MOST_HEADERS: Final = 5_000
"""A record with more headers is refused. As an object a header takes 80 bytes and more; compressed, millions of empty
ones take a few kB."""

DATA_LIMIT: Final = 2**31 - 1
"""Arrow's 32-bit offsets address this many bytes of one column."""

REASONS: Final = (
    "",
    "a variable-length number is cut off or longer than it may be",
    "a record's length runs past the end of its batch",
    "a key or value runs past the end of its record",
    "a header runs past the end of its record",
    "a record does not end where its length says",
    "a record's offset is not above the one before it, or outside its batch",
    "a record's timestamp does not fit 64 bits",
    "bytes are left over after the last record of the batch",
    "the batch claims more records than its bytes can hold",
    f"a record has more than {MOST_HEADERS:,} headers",
)
"""Why a record cannot be read. The halves share the numbers, so that the parity tests can compare them."""

_CONTENT: Final = ("key", "value", "headers")


class RecordFormatError(ValueError):
    """Bytes that are no record. `FetchedRecords` adds topic, partition and advice and raises `CorruptRecordError`."""

    def __init__(self, reason: int) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason


def _size(value: object) -> str:
    """How large a key or value is, and never what it is: reprs go into logs and to reporters of errors."""
    if value is None:
        return "None"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, str):
        return f"<{len(value)} characters>"
    return f"<{type(value).__name__}>"


def describe(record: Record[Any, Any]) -> str:
    """The text of a record, ``Record(topic='t', partition=0, ...)``, with sizes of keys, values and headers only."""
    shown = {name: repr(getattr(record, name)) for name in FIELDS if name not in _CONTENT}
    shown |= {"key": _size(record.key), "value": _size(record.value), "headers": f"<{len(record.headers)}>"}
    return f"Record({', '.join(f'{name}={shown[name]}' for name in FIELDS)})"


def replace(record: Record[Any, Any], changes: dict[str, Any]) -> Record[Any, Any]:
    """A copy of a record with some fields changed."""
    fields = {name: getattr(record, name) for name in FIELDS}
    for name in changes:
        if name not in fields:
            raise TypeError(f"a record has no field {name!r}; it has {', '.join(FIELDS)}")
    fields.update(changes)
    return type(record)(**fields)


def rebuild_record(*fields: Any) -> Record[Any, Any]:
    """Unpickle a record, as the type that this process uses: pickles cross between compiled and plain."""
    from kadence.records import Record as Loaded

    return Loaded(*fields)
