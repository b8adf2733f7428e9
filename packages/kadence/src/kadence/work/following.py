"""Follows the positions of a consumer: a record counts only for the stretch of reading in which it was read (C19).

A stretch ends with a seek, a reset, a truncated log, or a recreated topic. Then:

    another topic of the same name   the records read so far do not count, and waiting ones are dropped
    the position moved forward       the records read so far count, and the skipped ones need no work
    the position moved back          records are read again from the lowest one that is not done

So a partition that is lost and assigned again, or whose topic is recreated, gets a new frontier. The first offset of a
stretch is committed, too, unless it is the committed offset: otherwise a restart would begin elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kadence.errors import IllegalStateError
from kadence.logs import in_short, logger
from kadence.printable import plural
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.desk import Desk
from kadence.work.frontier import Run, Stretch, decode
from kadence.work.positions import Reading
from kadence.work.steps import Seek, Steps

__all__ = ["Following", "TransactionalFollowing"]

log = logger("kadence.work")


class Returned(Protocol):
    """The records of a poll."""

    def by_partition(self) -> dict[TopicPartition, list[Any]]: ...
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]: ...


class Following:
    """Keeps a frontier for each stretch of reading.

    Attributes:
        committed: the offset committed last of each partition, in its present stretch.
    """

    def __init__(self, desk: Desk, reading: Reading) -> None:
        self.committed: dict[TopicPartition, ReadOffset] = {}
        self._desk = desk
        self._reading = reading
        self._kept: dict[TopicPartition, list[Run]] = {}
        """The done offsets of partitions that are about to be read again from an earlier offset."""

    def assign(self, partitions: Iterable[TopicPartition]) -> Steps:
        """These partitions are assigned from now on. Records that polls returned of them before do not count."""
        with self._desk.lock:
            for partition in partitions:
                self._kept.pop(partition, None)
                self.committed.pop(partition, None)
                self._desk.scheduler.assign(partition)
        yield from self._follow(from_here=True)

    def take_in(self, records: Returned, now: int) -> Steps:
        """Take in the records of a poll, and follow the positions that have changed."""
        brought, passed = records.by_partition(), records.next_offsets()
        under = self._reading.returned_under(passed) if passed else {}
        self._add(brought, passed, under, now)
        if self._reading.has_moved():
            yield from self._follow()
            self._add(brought, passed, under, now)
        if brought:
            log.info(
                "records dropped, because their partitions' positions have changed: %s", in_short(brought)
            )

    def standing_still(self) -> frozenset[TopicPartition]:
        """Partitions that no transaction may commit now: their position is lost or unknown, or their topic is gone."""
        epochs = self._reading.fetch_epochs_of_known()
        with self._desk.lock:
            works = self._desk.scheduler.partitions.items()
            return frozenset(
                p for p, work in works if work.stretch is None or work.stretch.fetch_epoch != epochs.get(p)
            )

    def _add(
        self,
        brought: dict[TopicPartition, list[Any]],
        passed: dict[TopicPartition, OffsetAndMetadata],
        under: Mapping[TopicPartition, int],
        now: int,
    ) -> None:
        """Move the records and positions of known stretches from ``brought`` and ``passed`` to the scheduler."""
        scheduler = self._desk.scheduler
        with self._desk.lock:
            for partition in tuple(passed):
                work = scheduler.partitions.get(partition)
                if work is None or work.stretch is None or work.stretch.fetch_epoch != under.get(partition):
                    continue
                if work.frontier.has_claims and (end := self._end(partition)) is not None:
                    work.frontier.log_ends(end)
                if several := brought.pop(partition, None):
                    scheduler.add(partition, several, now)
                at = passed.pop(partition)
                work.frontier.passed(at.offset, at.leader_epoch)

    def _follow(self, *, from_here: bool = False) -> Steps:
        scheduler, reading = self._desk.scheduler, self._reading
        is_lost = False
        for partition, stretch in reading.stretches(from_here=from_here).items():
            back = None
            with self._desk.lock:
                work = scheduler.partitions.get(partition)
                if work is None:
                    if not reading.is_manual:
                        continue
                    work = scheduler.assign(partition)
                before, frontier = work.stretch, work.frontier
                if before is None:
                    self._begin(partition, stretch)
                elif before.fetch_epoch == stretch.fetch_epoch:
                    work.stretch = stretch
                elif not stretch.goes_on(before):
                    self._has_another_topic(partition, scheduler.begin_anew(partition))
                    self._begin(partition, stretch)
                    is_lost = True
                elif stretch.offset >= (frontier.position or 0):
                    scheduler.go_on(partition, stretch)
                else:
                    back = self._goes_back(partition, stretch)
                    is_lost = True
            if back is not None:
                with contextlib.suppress(IllegalStateError):
                    yield back
        if reading.is_manual:
            assigned = reading.fetch_epochs()
            with self._desk.lock:
                scheduler.forget([p for p in scheduler.partitions if p not in assigned])
        if is_lost:
            self._desk.tell_lost()

    # ------------------------------------------------------------ under the lock

    def _begin(self, partition: TopicPartition, stretch: Stretch) -> None:
        scheduler = self._desk.scheduler
        known = self._known(partition, stretch)
        kept = self._kept.pop(partition, None)
        scheduler.read_from(partition, stretch, self._done_by(known) if kept is None else kept)
        read = scheduler.frontiers((partition,))[partition]
        if known is not None and known.offset == read.at.offset:
            self.committed[partition] = read
        else:
            self.committed.pop(partition, None)

    def _has_another_topic(self, partition: TopicPartition, left: int) -> None:
        """The topic was recreated. ``left``: how many records of the deleted one were not done."""
        self._forget(partition)
        log.warning(
            "topic %r was deleted and created again: dropped %s of %s that had been read from the deleted topic",
            partition.topic,
            plural(left, "record"),
            partition,
        )

    def _goes_back(self, partition: TopicPartition, stretch: Stretch) -> Seek | None:
        """The position moved back. Returns a seek if an even earlier record is not done."""
        scheduler = self._desk.scheduler
        frontier = scheduler.partitions[partition].frontier
        lowest, done = frontier.offset, frontier.below(stretch.offset)
        scheduler.begin_anew(partition)
        self._forget(partition)
        if lowest is None or lowest >= stretch.offset:
            self._begin(partition, stretch)
            return None
        self._kept[partition] = done
        return Seek(partition, OffsetAndMetadata(lowest), is_committed=False)

    def _known(self, partition: TopicPartition, stretch: Stretch) -> OffsetAndMetadata | None:
        """The committed offset that applies to this stretch; None if a policy or the program has chosen its start."""
        del partition
        return stretch.committed

    def _done_by(self, known: OffsetAndMetadata | None) -> list[Run]:
        """The done offsets of a commit's metadata."""
        return [] if known is None else decode(known.offset, known.metadata)

    def _end(self, partition: TopicPartition) -> int | None:
        """The log end offset, if known. Committed runs behind it are not of this log."""
        return self._reading.log_end(partition)

    def _forget(self, partition: TopicPartition) -> None:
        """Earlier commits do not apply to the next stretch."""
        self._kept.pop(partition, None)
        self.committed.pop(partition, None)


class TransactionalFollowing(Following):
    """With transactions, records that the group has committed are not handled again, wherever reading begins.

    Attributes:
        found: the offsets that were committed when partitions were assigned, while they apply to the topic.
    """

    def __init__(self, desk: Desk, reading: Reading) -> None:
        super().__init__(desk, reading)
        self.found: dict[TopicPartition, OffsetAndMetadata] = {}

    def _known(self, partition: TopicPartition, stretch: Stretch) -> OffsetAndMetadata | None:
        # A policy applies if the committed offset was out of range. If it is below the new position, retention has
        # passed it, and the runs above it still apply. If it is above, it is not of this log.
        known = self.found.get(partition)
        is_of_this_log = known is None or not stretch.is_by_policy or known.offset <= stretch.offset
        return known if is_of_this_log else None

    def _done_by(self, known: OffsetAndMetadata | None) -> list[Run]:
        # Offsets below it, too: an interrupted member does not know the outcome of its last transaction.
        return [] if known is None else [(0, known.offset), *super()._done_by(known)]

    def _end(self, partition: TopicPartition) -> int | None:
        """Not used: a new leader may report too low an end, and done records must not be handled again."""
        del partition
        return None

    def _forget(self, partition: TopicPartition) -> None:
        super()._forget(partition)
        self.found.pop(partition, None)
