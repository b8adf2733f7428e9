"""Follows where a consumer reads: what was read counts only for the stretch of reading that it is of (C19).

A stretch ends with a seek, a reset, a truncated log, or a topic that is made anew. What happens then:

    the topic is another one        nothing that was read counts any more, and what waits is dropped
    reading goes on further ahead   what was read still counts, and what lies between needs no work
    reading goes back               what was read is read again, from the lowest record on that is not done

So where a partition is lost and comes back, or its topic does, its frontier begins anew. Where a stretch begins is
committed, too, unless it is the committed offset: without that a restart would begin elsewhere.
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
    """What a poll returns."""

    def by_partition(self) -> dict[TopicPartition, list[Any]]: ...
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]: ...


class Following:
    """Begins frontiers where reading begins.

    Attributes:
        committed: what was committed last of each partition, of the stretch that is read.
    """

    def __init__(self, desk: Desk, reading: Reading) -> None:
        self.committed: dict[TopicPartition, ReadOffset] = {}
        self._desk = desk
        self._reading = reading
        self._kept: dict[TopicPartition, list[Run]] = {}
        """What is done of partitions that are about to be read again from an earlier place."""

    def assign(self, partitions: Iterable[TopicPartition]) -> Steps:
        """These are this member's from now on. What polls have returned of them before is none of ours."""
        with self._desk.lock:
            for partition in partitions:
                self._kept.pop(partition, None)
                self.committed.pop(partition, None)
                self._desk.scheduler.assign(partition)
        yield from self._follow(from_here=True)

    def take_in(self, records: Returned, now: int) -> Steps:
        """What a poll has returned, and where partitions are read since."""
        brought, passed = records.by_partition(), records.next_offsets()
        under = self._reading.returned_under(passed) if passed else {}
        self._add(brought, passed, under, now)
        if self._reading.has_moved():
            yield from self._follow()
            self._add(brought, passed, under, now)
        if brought:
            log.info("not handled, the positions from which these were read are lost: %s", in_short(brought))

    def standing_still(self) -> frozenset[TopicPartition]:
        """Those of which no transaction may commit now: their position is lost or not known, or their topic is gone."""
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
        """Take what is of the stretches that are known out of these."""
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
        """``left``: how many records of the deleted one had not ended."""
        self._forget(partition)
        log.warning(
            "topic %r was deleted and created again: %s of the deleted one, read and not done, are given up in %s",
            partition.topic,
            plural(left, "record"),
            partition,
        )

    def _goes_back(self, partition: TopicPartition, stretch: Stretch) -> Seek | None:
        """What lies before the stretch and is not done is read again as well."""
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
        """What is committed, and counts for what is read from there on. Where the program has begun, all is meant."""
        del partition
        return stretch.committed

    def _done_by(self, known: OffsetAndMetadata | None) -> list[Run]:
        """What is done, as a commit says."""
        return [] if known is None else decode(known.offset, known.metadata)

    def _end(self, partition: TopicPartition) -> int | None:
        """Where the log ends, if that is known. What is committed of records behind that says nothing."""
        return self._reading.log_end(partition)

    def _forget(self, partition: TopicPartition) -> None:
        """What was committed says nothing of what is read from now on."""
        self._kept.pop(partition, None)
        self.committed.pop(partition, None)


class TransactionalFollowing(Following):
    """With transactions what the group has committed is not handled again, wherever the program begins.

    Attributes:
        found: what was committed when partitions were assigned, while that is true of what is read.
    """

    def __init__(self, desk: Desk, reading: Reading) -> None:
        super().__init__(desk, reading)
        self.found: dict[TopicPartition, OffsetAndMetadata] = {}

    def _known(self, partition: TopicPartition, stretch: Stretch) -> OffsetAndMetadata | None:
        # Where a policy begins, the committed offset was out of range. Behind it: retention has passed it, and what is
        # done above it still is. Before it: it is not of this log.
        known = self.found.get(partition)
        is_of_this_log = known is None or not stretch.is_by_policy or known.offset <= stretch.offset
        return known if is_of_this_log else None

    def _done_by(self, known: OffsetAndMetadata | None) -> list[Run]:
        # Below it, too: whoever was interrupted does not know what its last transaction did.
        return [] if known is None else [(0, known.offset), *super()._done_by(known)]

    def _end(self, partition: TopicPartition) -> int | None:
        """Not known: a leader that has just begun may tell too low an end, and what is done must not be repeated."""
        del partition
        return None

    def _forget(self, partition: TopicPartition) -> None:
        super()._forget(partition)
        self.found.pop(partition, None)
