"""What the loop of `process` asks of its consumer, step by step; a driver (`driver.py`) carries them out."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition

__all__ = ["Commit", "Committed", "Idle", "PartitionsOf", "Poll", "Seek", "SeekToStart", "Step", "Steps"]


@dataclass(frozen=True, slots=True)
class Poll:
    """Poll for up to so many ms; gives `Records`. It ends early when the desk has changed."""

    ms: int
    max_records: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit what is still read from there, and wait; raises what the commit raises."""

    offsets: Mapping[TopicPartition, ReadOffset]


@dataclass(frozen=True, slots=True)
class Committed:
    """Gives what the group has committed for these."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsOf:
    """Gives the partitions of a topic, none where the cluster does not have it; None if the consumer stops before.

    Brokers that are away are waited for as long as polls would wait for them.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class Seek:
    """Read the partition from there on. ``is_committed``: that is committed, with this metadata."""

    partition: TopicPartition
    at: OffsetAndMetadata
    is_committed: bool


@dataclass(frozen=True, slots=True)
class SeekToStart:
    """Read these from the beginning of their logs on; raises IllegalStateError if one is not assigned."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Wait until the desk changes, or until then (absolute ms)."""

    until: int


Step = Poll | Commit | Committed | PartitionsOf | Seek | SeekToStart | Idle
Steps = Generator[Step, Any, None]
