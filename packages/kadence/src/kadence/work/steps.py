"""The steps of the loop of `process`; a driver (`driver.py`) carries them out on the consumer."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from kadence.lazy_dataclasses import dataclass
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition

__all__ = [
    "Commit",
    "Committed",
    "Hear",
    "Idle",
    "PartitionsOf",
    "Poll",
    "Seek",
    "SeekToStart",
    "Step",
    "Steps",
]


@dataclass(frozen=True, slots=True)
class Poll:
    """Poll for up to so many ms; returns `Records`. It ends early when the desk has changed."""

    ms: int
    max_records: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the offsets whose fetch epoch is still current, and wait; raises the commit's error."""

    offsets: Mapping[TopicPartition, ReadOffset]


@dataclass(frozen=True, slots=True)
class Hear:
    """Take in what became of commits that were not waited for, as each poll does."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Returns the group's committed offsets of these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsOf:
    """Returns the partitions of a topic, none if the cluster does not have it; None if the consumer stops before.

    It waits for brokers that are away, as polls do.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class Seek:
    """Seek to ``at``. ``is_committed``: ``at`` is committed, with this metadata."""

    partition: TopicPartition
    at: OffsetAndMetadata
    is_committed: bool


@dataclass(frozen=True, slots=True)
class SeekToStart:
    """Seek these to the beginning of their logs; raises IllegalStateError if one is not assigned."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Wait until the desk changes, or until ``until`` (absolute ms)."""

    until: int


Step = Poll | Commit | Hear | Committed | PartitionsOf | Seek | SeekToStart | Idle
Steps = Generator[Step, Any, None]
