"""Counts and states of `Consumer.process`, for metrics and probes. Any thread may read them, under the desk's lock.

A consumer has one `Meters`, from its first call of `process` on. Totals add up over calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kadence.lazy_dataclasses import dataclass, field
from kadence.records import Record
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.work.desk import Desk

__all__ = ["Meters", "Now", "Totals"]


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of `Consumer.process`.

    Attributes:
        done: records that need no more work: handled, skipped, or written to the retry topic or dead letter topic.
        failed: failed attempts. retried: records written to the retry topic. dead_lettered: records written to the dead
            letter topic.
        already_done: records that were read again and skipped: they had been done before.
    """

    done: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    already_done: int = 0


@dataclass(frozen=True, slots=True)
class Now:
    """The state of `process` at one moment.

    Attributes:
        running, waiting, retrying: records in a handler, waiting for a worker, and waiting for their next attempt.
        oldest_ms: how long the longest-running record has run; 0 if none runs. overdue: how many records have run
            longer than ``timeout``.
        paused: number of paused partitions. frontier_lags: for each partition, the number of records from the lowest
            undone one to the highest one read.
        stuck: for each partition whose lowest undone record is running: that record, and the ms since its first attempt
            began. key_waiting: the most records of one key or partition that are queued behind its first record.
    """

    totals: Totals = Totals()
    running: int = 0
    waiting: int = 0
    retrying: int = 0
    oldest_ms: int = 0
    overdue: int = 0
    workers: int = 0
    paused: int = 0
    frontier_lags: dict[TopicPartition, int] = field(default_factory=dict)
    stuck: dict[TopicPartition, tuple[Record[Any, Any], int]] = field(default_factory=dict)
    key_waiting: int = 0


class Meters:
    """Reads the desk of the present call of `process`, and keeps the totals of those before."""

    def __init__(self) -> None:
        self._desk: Desk | None = None
        self._workers = 0
        self._before = Totals()
        self._bad_before = 0
        self._seen: tuple[int, Now] | None = None

    @property
    def is_working(self) -> bool:
        """Whether `process` runs."""
        return self._desk is not None

    @property
    def bad(self) -> int:
        """Records that were skipped because a deserialiser refused them (``deserialization.errors=skip``)."""
        desk = self._desk
        return self._bad_before + (0 if desk is None else desk.bad)

    def begin(self, desk: Desk, workers: int) -> None:
        """A call of `process` begins."""
        self._workers = workers
        self._desk = desk

    def end(self) -> Totals:
        """It has ended. Returns its own counts."""
        desk = self._desk
        if desk is None:
            return Totals()
        with desk.lock:
            self._before = self._totals(desk)
            self._bad_before += desk.bad
            self._desk = self._seen = None
            return _totals_of(desk)

    def at(self, now: int) -> Now:
        """The state now; cached, so that all metrics of one snapshot come from the same state."""
        seen, desk = self._seen, self._desk
        if seen is not None and seen[0] == now:
            return seen[1]
        if desk is None:
            return Now(self._before)
        with desk.lock:
            scheduler = desk.scheduler
            running = scheduler.running
            retrying = scheduler.late_records(now)
            oldest = next(iter(running), None)
            hottest = scheduler.hottest()
            found = Now(
                # `process` may have ended meanwhile.
                self._totals(desk) if self._desk is desk else self._before,
                len(running),
                max(scheduler.total - len(running) - retrying - scheduler.finished, 0),
                retrying,
                0 if oldest is None else max(now - oldest.started_at, 0),
                sum(task.timed_out for task in running),
                self._workers,
                sum(work.is_paused for work in scheduler.partitions.values()),
                {partition: work.frontier.window for partition, work in scheduler.partitions.items()},
                {
                    task.work.partition: (task.record, max(now - task.first_at, 0))
                    for task in scheduler.stuck(now)
                },
                0 if hottest is None else max(len(hottest.tasks) - 1, 0),
            )
        self._seen = now, found
        return found

    def _totals(self, desk: Desk) -> Totals:
        before, since = self._before, _totals_of(desk)
        return Totals(
            before.done + since.done,
            before.failed + since.failed,
            before.retried + since.retried,
            before.dead_lettered + since.dead_lettered,
            before.already_done + since.already_done,
        )


def _totals_of(desk: Desk) -> Totals:
    return Totals(desk.done, desk.failed, desk.retried, desk.dead_lettered, desk.scheduler.already_done)
