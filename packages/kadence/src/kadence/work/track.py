"""The frontier for an application's own loop (H1): `Consumer.track` adds records, `Work.done` marks them as done."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from kadence.errors import ForkedError, IllegalStateError
from kadence.forked import FORKS
from kadence.records import Record
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.frontier import Frontier

__all__ = ["Tracked", "Work"]


class Work:
    """Records that one call of `Consumer.track` was given, until each is done. Any thread may call its methods."""

    def __init__(
        self, lock: threading.Lock, frontiers: Mapping[TopicPartition, Frontier], places: set[Place]
    ) -> None:
        self._lock = lock
        self._fork = FORKS.count
        # The frontiers of this assignment: a partition that is revoked and assigned again gets another one.
        self._frontiers = frontiers
        self._places = places
        self._left = set(places)

    def done(self, record: Record[Any, Any]) -> None:
        """Mark this record as done: handled, skipped, or given up for good. Repeating the call has no effect.

        Raises:
            IllegalStateError: the record is not one of these. ForkedError: it was read before fork(), in the parent.
        """
        if self._fork != FORKS.count:
            raise ForkedError(
                "these records were read before fork(): call done() in the process that has read them"
            )
        place = (record.topic, record.partition, record.offset)
        with self._lock:
            if place in self._left:
                self._left.remove(place)
                self._frontiers[TopicPartition(record.topic, record.partition)].done(record.offset)
            elif place not in self._places:
                raise IllegalStateError(
                    f"{record.topic}-{record.partition}@{record.offset} is not one of the records of this track()"
                )

    @property
    def unfinished(self) -> int:
        """How many of these are not done."""
        return len(self._left)

    def __repr__(self) -> str:
        return f"<Work {len(self._left)} of {len(self._places)} records unfinished>"


Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Tracked:
    """All records that one consumer tracks.

    A seek, a reset, or a new assignment begins another fetch epoch; records read before it are forgotten (C19).
    """

    kind: ClassVar = Work

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frontiers: dict[TopicPartition, tuple[int, Frontier]] = {}

    def add(
        self,
        records: Iterable[Record[Any, Any]],
        passed: Mapping[TopicPartition, OffsetAndMetadata],
        epochs: Mapping[TopicPartition, int],
    ) -> Work:
        """These were read.

        Args:
            passed: the positions after the last poll, past bad and aborted records, too.
            epochs: the fetch epochs of the last poll's records.
        """
        frontiers: dict[TopicPartition, Frontier] = {}
        places: set[Place] = set()
        with self._lock:
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                if partition not in frontiers:
                    frontiers[partition] = self._frontier(partition, epochs)
                frontiers[partition].give(record.offset, record.leader_epoch)
                places.add((record.topic, record.partition, record.offset))
            for partition, at in passed.items():
                if partition in epochs:
                    self._frontier(partition, epochs).passed(at.offset, at.leader_epoch)
        return Work(self._lock, frontiers, places)

    def offsets(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReadOffset]:
        """The offsets to commit: the lowest offset of each assigned partition that is not done.

        Args:
            epochs: the present fetch epochs.
        """
        with self._lock:
            for partition in [p for p, (epoch, _) in self._frontiers.items() if epochs.get(p) != epoch]:
                del self._frontiers[partition]
            return {
                partition: ReadOffset(epoch, OffsetAndMetadata(offset, frontier.epoch))
                for partition, (epoch, frontier) in self._frontiers.items()
                if (offset := frontier.offset) is not None
            }

    def _frontier(self, partition: TopicPartition, epochs: Mapping[TopicPartition, int]) -> Frontier:
        epoch = epochs.get(partition)
        if epoch is None:
            # The partition is gone already. Its records can be marked as done, but are not committed.
            return Frontier()
        known = self._frontiers.get(partition)
        if known is None or known[0] != epoch:
            known = self._frontiers[partition] = (epoch, Frontier())
        return known[1]
