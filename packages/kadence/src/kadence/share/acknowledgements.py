"""What is said of acquired records (KIP-932): acknowledge types, ranges of them, and whose they are. Both sides."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kadence.records import Record
from kadence.types import TopicPartition

__all__ = ["GAP", "AcknowledgeType", "Acknowledged", "Acquired", "TopicIdPartition", "joined", "runs"]


class AcknowledgeType(enum.IntEnum):
    """What becomes of a record of a queue, see `ShareConsumer.acknowledge`. The numbers are the protocol's."""

    ACCEPT = 1
    """It is processed, and never delivered again."""
    RELEASE = 2
    """It is given back: delivered again, unless it was delivered as often as the group allows."""
    REJECT = 3
    """It cannot be processed: never delivered again; the group's dead letter topic gets it, if it has one."""
    RENEW = 4
    """It is still being processed: its lock begins anew (KIP-1222)."""


GAP: Final = 0
"""The type of acquired offsets that have no record. No application says this."""


class TopicIdPartition(NamedTuple):
    """One partition of one topic, which the id tells from an earlier or later topic of the same name."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The same without the id."""
        return TopicPartition(self.topic, self.partition)


class Acquired(NamedTuple):
    """Neighbouring offsets that one answer acquired, ``last`` included, and how often each was delivered by then."""

    first: int
    last: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """Neighbouring offsets, ``last`` included, and what is said of each: an `AcknowledgeType`, or `GAP`."""

    first: int
    last: int
    type: int


def joined(ranges: Iterable[Acknowledged]) -> list[Acknowledged]:
    """The same in order of offsets, neighbours of one type as one range. No two of them may overlap."""
    done: list[Acknowledged] = []
    for each in sorted(ranges):
        if done and done[-1].type == each.type and done[-1].last + 1 == each.first:
            done[-1] = Acknowledged(done[-1].first, each.last, each.type)
        else:
            done.append(each)
    return done


def runs(records: Sequence[Record[Any, Any]], kind: int) -> list[Acknowledged]:
    """The offsets of these as ranges."""
    if not records:
        return []
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return [Acknowledged(first, last, kind)]
    return joined(Acknowledged(each.offset, each.offset, kind) for each in records)
