"""Checks the arguments of ``send()`` and converts them to bytes and numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kadence.errors import SerializationError
from kadence.producer.accumulator import Header
from kadence.producer.serializing import checked_bytes
from kadence.records import MOST_HEADERS
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "Bytes",
    "Headers",
    "checked_group",
    "checked_headers",
    "checked_offsets",
    "checked_partition",
    "checked_timestamp",
    "checked_topic",
]

Bytes = bytes | bytearray | memoryview
Headers = Iterable[tuple[str, Bytes | None]] | Mapping[str, Bytes] | Mapping[str, Bytes | None]


def checked_topic(topic: Any) -> str:
    """Check that a topic's name is a str; the broker checks the rest."""
    if isinstance(topic, str):
        return topic
    raise TypeError(f"topic must be a name (str), not {type(topic).__name__}")


def checked_partition(partition: Any) -> int:
    """A partition number, of Python's or of another library's integer type; its range is checked later."""
    try:
        return operator.index(partition)
    except TypeError:
        raise TypeError(f"partition must be a whole number or None, not {partition!r}") from None


def checked_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit; a number is one without metadata.

    Anything else is refused here, on the caller's line: on the network thread it would be a bug that ends the producer.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets are a mapping from partitions to offsets, such as records.next_offsets(), not {offsets!r}"
        )
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for given, at in offsets.items():
        if not (
            isinstance(given, tuple)
            and len(given) == 2
            and isinstance(given[0], str)
            and isinstance(given[1], int)
        ):
            raise TypeError(f"a partition is TopicPartition(topic, number) or (topic, number), not {given!r}")
        offset = at.offset if isinstance(at, OffsetAndMetadata) else at
        if not isinstance(offset, int):
            raise TypeError(f"an offset is a whole number or OffsetAndMetadata, not {at!r}")
        if not 0 <= offset < 2**63:
            raise ValueError(f"an offset to commit must be >= 0, not {offset}")
        if isinstance(at, OffsetAndMetadata):
            _check_text(at.metadata)
        found[TopicPartition(*given)] = at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(offset)
    return found


def _check_text(metadata: str) -> None:
    try:
        metadata.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the metadata of an offset cannot be encoded as UTF-8: {metadata!r} ({error.reason})"
        ) from None


def checked_group(group: Any) -> GroupMetadata:
    """The consumer group whose offsets are committed."""
    if isinstance(group, GroupMetadata):
        return group
    raise TypeError(f"group_metadata must be the result of consumer.group_metadata(), not {group!r}")


def checked_timestamp(timestamp: int) -> int:
    """A timestamp that fits 64 bits. Negative ones are refused: in a log they mean "no timestamp"."""
    try:
        number = operator.index(timestamp)
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise SerializationError(
            f"timestamp must be ms since 1970, an int from 0 to 2**63 - 1, or None for now, not {timestamp!r}"
        )
    return number


def checked_headers(headers: Headers) -> Sequence[Header]:
    """Pairs of a name and bytes."""
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[Header] = []
    for pair in map(tuple, pairs):
        if len(pair) != 2 or not isinstance(pair[0], str):
            kinds = ", ".join(type(part).__name__ for part in pair)
            raise SerializationError(f"a header is a pair of name (str) and bytes or None, not ({kinds})")
        name, data = pair
        if not name.isascii() and any("\ud800" <= char <= "\udfff" for char in name):
            raise SerializationError(
                f"the name of a header must be Unicode text, not {name!r}: a lone surrogate"
            )
        # Batches take str alone, not its subclasses.
        checked.append((str.__str__(name), None if data is None else checked_bytes(f"header {name!r}", data)))
    if len(checked) > MOST_HEADERS:
        raise SerializationError(
            f"a record with {len(checked):,} headers: consumers refuse more than {MOST_HEADERS:,}"
        )
    return checked
