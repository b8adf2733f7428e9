"""What callers give, checked and made uniform. Application side, pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kadence.errors import InvalidTopicError
from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = ["NO_CAP", "Offsets", "cap", "partitions_of", "to_offsets", "topic_names"]

NO_CAP = 2**31 - 1

Offsets = (
    Mapping[TopicPartition, OffsetAndMetadata] | Mapping[TopicPartition, int] | Record | Iterable[Record]
)
"""What commit() takes: next offsets by partition, or records that are done."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def cap(max_records: int | None, default: int) -> int:
    """The most records of one poll; −1 is no cap (A1)."""
    chosen = default if max_records is None else max_records
    if chosen == -1:
        return NO_CAP
    if chosen < 1:
        raise ValueError(f"max_records must be at least 1, or -1 for no cap, not {chosen}")
    return chosen


def topic_names(topics: str | Iterable[str]) -> frozenset[str]:
    """Names that Kafka allows.

    Raises:
        InvalidTopicError: one of them is not.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidTopicError(
                f"{name!r} is no topic name: 1 to 249 of letters, digits, '.', '_' and '-' (not '.' or '..')"
            )
    return frozenset(names)


def partitions_of(partitions: Iterable[TopicPartition | tuple[str, int]]) -> tuple[TopicPartition, ...]:
    """Partitions without repetition, in the order given."""
    return tuple(dict.fromkeys(TopicPartition(*partition) for partition in partitions))


def to_offsets(offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Offsets to commit; of records the one after the last of each partition."""
    if offsets is None:
        return None
    if isinstance(offsets, Mapping):
        return {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in offsets.items()
        }
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in [offsets] if isinstance(offsets, Record) else offsets:
        partition = TopicPartition(record.topic, record.partition)
        if partition not in found or found[partition].offset <= record.offset:
            found[partition] = OffsetAndMetadata(record.offset + 1, record.leader_epoch)
    return found
