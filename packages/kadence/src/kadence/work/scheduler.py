"""Chooses the next record for a worker, and the partitions to pause (H2, H4). Pure: it takes `now`, and starts nothing.

Records wait in *lanes*: one for each key (``order="key"``), for each partition, or for each record. The records of a
lane are handled one after the other, and lanes at the same time. While a record that failed waits for its next attempt,
its own lane waits, and no other one.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from kadence.clock import FOREVER
from kadence.lazy_dataclasses import dataclass
from kadence.records import Record
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.frontier import METADATA_BYTES, Frontier, Run, Stretch

__all__ = ["Earlier", "Lane", "Limits", "Order", "PartitionWork", "Scheduler", "Task", "read_offset"]

Order = Literal["key", "partition", "none"]

_RECORD_BYTES: Final = 100
"""The approximate memory of a record without its key and value."""

_SHARES: Final = 2
"""A partition may have this many times its equal share of a limit."""

_PLENTY: Final = 3
"""Reading beyond `Limits.near` ends when this many times `Limits.enough` lanes are ready."""

_RETRY_PART: Final = 4
"""The retry topic may have 1/4 of each limit: its records wait long, and must not fill the whole limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of records that are read and not done. Waiting, running and failed records count together.

    Args:
        records: the most records of all partitions. nbytes: the most bytes of their keys and values.
        window: the most records of one partition from its lowest undone one to the highest one read. It bounds the
            done offsets above a stuck record.
        near: the limit while enough lanes are ready, so that committed offsets stay close to the done records. More are
            read, up to ``records``, while most records are queued behind others of their keys.
        enough: so many ready lanes keep the workers busy.
    """

    records: int = 20_000
    nbytes: int = 64 << 20
    window: int = 50_000
    near: int = 1_000
    enough: int = 1


class Lane:
    """Records that are handled one after the other, or together in one batch.

    Attributes:
        home: the lanes of its partition, by key; it is removed from them when empty. None: a lane of one record.
        running: how many of its records are running. While any is, no other one begins.
    """

    __slots__ = ("home", "key", "running", "tasks")

    def __init__(self, home: dict[Any, Lane] | None, key: Any) -> None:
        self.home = home
        self.key = key
        self.running = 0
        self.tasks: deque[Task] = deque()


class PartitionWork:
    """One partition, while it is assigned, its topic stays the same, and its position does not move back.

    Attributes:
        stretch: under which it is read; None: not known yet. Records read under another stretch do not count here.
        outstanding: number of records that wait, run, or wait for another attempt. nbytes: their bytes.
        is_gone: whether it was revoked or lost. resume_at: the partition is resumed when no more than this many are
            outstanding.
        finished: with transactions, the number of records that wait for their transaction.
    """

    __slots__ = (
        "finished",
        "frontier",
        "is_gone",
        "is_paused",
        "nbytes",
        "outstanding",
        "partition",
        "resume_at",
        "stretch",
    )

    def __init__(self, partition: TopicPartition, done: Iterable[Run]) -> None:
        self.partition = partition
        self.stretch: Stretch | None = None
        self.frontier = Frontier(done)
        self.outstanding = 0
        self.nbytes = 0
        self.finished = 0
        self.is_gone = False
        self.is_paused = False
        self.resume_at = 0


def read_offset(work: PartitionWork, frontier: Frontier, metadata: str) -> ReadOffset | None:
    """The offset to commit for a partition with this frontier; None while its position is unknown.

    All offsets that `process` commits are made here, with the fetch epoch of the stretch in which they count (C19).
    """
    offset, stretch = frontier.offset, work.stretch
    if offset is None or stretch is None:
        return None
    return ReadOffset(stretch.fetch_epoch, OffsetAndMetadata(offset, frontier.epoch, metadata))


class Task:
    """One record on its way to being done.

    Attributes:
        attempts: how many have failed. first_at: when the first one began, -1 before. started_at: the present one.
        due: the earliest time of the next attempt. timed_out: whether the present attempt has exceeded ``timeout``.
        is_sent: its handler has ended, and what it returned, or its dead letter, waits for brokers.
        told_lost: whether its handler has read `Context.lost` as True. It may have stopped early, so the attempt does
            not count, whether it returns or raises.
    """

    __slots__ = (
        "attempts",
        "due",
        "first_at",
        "is_running",
        "is_sent",
        "lane",
        "nbytes",
        "record",
        "started_at",
        "timed_out",
        "told_lost",
        "work",
    )

    def __init__(self, record: Record[Any, Any], work: PartitionWork, lane: Lane, nbytes: int) -> None:
        self.record = record
        self.work = work
        self.lane = lane
        self.nbytes = nbytes
        self.attempts = 0
        self.due = 0
        self.first_at = -1
        self.started_at = -1
        self.is_running = self.is_sent = False
        self.timed_out = self.told_lost = False

    @property
    def is_lost(self) -> bool:
        """Whether its partition is no longer this member's."""
        return self.work.is_gone


class Earlier(NamedTuple):
    """A record of the retry topic with its earlier attempts.

    Attributes:
        record: the record as handlers get it. attempts: how many failed. due: the time of the next one (ms; 0: now).
    """

    record: Record[Any, Any]
    attempts: int
    due: int


class Scheduler:
    """All records that were read and are not done.

    Args:
        earlier: returns the earlier attempts of a record. None: no record has any.
        retry_topic: the topic whose records may be due long after they are read.

    Attributes:
        partitions: the assigned ones. total: outstanding records, also running ones of partitions that are gone.
        running: running tasks, in the order of their start.
        finished: number of records whose handler has returned, and which wait for their transaction; 0 without
            transactions.
        wants_look: a paused partition may have room again: the loop calls `pauses`, and clears this.
    """

    def __init__(
        self,
        order: Order,
        limits: Limits,
        earlier: Callable[[Record[Any, Any], int], Earlier] | None = None,
        retry_topic: str | None = None,
    ) -> None:
        self.partitions: dict[TopicPartition, PartitionWork] = {}
        self.total = 0
        self.nbytes = 0
        self.running: dict[Task, None] = {}
        self.already_done = 0
        self.finished = 0
        self.wants_look = False
        self._order = order
        self._limits = limits
        self._earlier = earlier
        self._retry_topic = retry_topic
        self._lanes: dict[TopicPartition, dict[bytes | None, Lane]] = {}
        self._ready: deque[Lane] = deque()
        self._late: list[tuple[int, int, Lane]] = []
        self._count = 0
        # The most outstanding records now: `near` or `records` of the limits. From `_high` on none is read.
        self._bound = self._near = min(limits.near, limits.records)
        self._high = max(self._bound * 3 // 4, 1)
        self._tells_of_few = False
        # Of the latest records: the number of first attempts, and of those that failed.
        self._tried = self._failed = 0

    # ------------------------------------------------------------ what comes and goes

    def assign(self, partition: TopicPartition, done: Iterable[Run] = ()) -> PartitionWork:
        """The partition is assigned. ``done``: offsets above its committed offset that are skipped."""
        before = self.partitions.get(partition)
        work = self.partitions[partition] = PartitionWork(partition, done)
        # The consumer has it paused, too, until `pauses` returns it for resuming.
        work.is_paused = before is not None and before.is_paused
        return work

    def read_from(self, partition: TopicPartition, stretch: Stretch, done: Iterable[Run] = ()) -> None:
        """An assigned partition is read from this stretch on; ``done`` is skipped."""
        work = self.partitions[partition]
        work.stretch = stretch
        work.frontier = Frontier(done, stretch.offset, stretch.leader_epoch)

    def go_on(self, partition: TopicPartition, stretch: Stretch) -> None:
        """The position moved forward, in the same topic: records read before still count."""
        work = self.partitions[partition]
        work.stretch = stretch
        work.frontier.passed(stretch.offset, stretch.leader_epoch)

    def begin_anew(self, partition: TopicPartition) -> int:
        """The position moved back, or the topic was recreated: records read so far do not count, as if it was lost.

        Returns:
            The number of its records that were not done.
        """
        before = self.partitions[partition]
        left = before.outstanding
        self.forget((partition,))
        # The consumer still has it paused.
        self.assign(partition).is_paused = before.is_paused
        return left

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """No record of these begins any more. Running ones go on; `frontiers` has the partitions until `forget`."""
        going = [
            work
            for each in partitions
            if (work := self.partitions.get(each)) is not None and not work.is_gone
        ]
        if not going:
            return
        for work in going:
            work.is_gone = True
        # One pass for all of them. Lanes of one record are only in `_ready` and `_late`.
        lanes = (
            [*self._ready, *(late[2] for late in self._late)]
            if self._order == "none"
            else [lane for work in going for lane in self._lanes.get(work.partition, {}).values()]
        )
        for lane in lanes:
            self._drop_gone(lane)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are gone."""
        self.revoke(partitions)
        for partition in partitions:
            self.partitions.pop(partition, None)

    def _drop_gone(self, lane: Lane) -> None:
        """Remove a lane's waiting records of partitions that are gone. Running ones keep their place."""
        kept: deque[Task] = deque()
        for task in lane.tasks:
            if task.work.is_gone and not task.is_running:
                self._count_out((task,))
            else:
                kept.append(task)
        lane.tasks = kept
        if not kept and lane.home is not None:
            lane.home.pop(lane.key, None)

    def add(self, partition: TopicPartition, records: Sequence[Record[Any, Any]], now: int) -> None:
        """Add records that were read, in their order, with keys and values as bytes."""
        work = self.partitions.get(partition)
        if work is None:
            work = self.partitions[partition] = PartitionWork(partition, ())
        undone = work.frontier.give_all(records)
        self.already_done += len(records) - len(undone)
        lanes: dict[bytes | None, Lane] | None = None
        if self._order != "none":
            # Also lanes of an earlier assignment: a record of a key that still runs holds up the key.
            lanes = self._lanes.setdefault(partition, {})
        by_key = self._order == "key"
        earlier, ready = self._earlier, self._ready
        nbytes = 0
        for record in undone:
            key, value = record.key, record.value
            size = _RECORD_BYTES + (0 if key is None else len(key)) + (0 if value is None else len(value))
            if lanes is None:
                lane = Lane(None, None)
            else:
                if not by_key:
                    key = None
                found = lanes.get(key)
                if found is None:
                    found = lanes[key] = Lane(lanes, key)
                lane = found
            task = Task(record, work, lane, size)
            if earlier is not None:
                task.record, task.attempts, task.due = earlier(record, now)
            tasks = lane.tasks
            tasks.append(task)
            if len(tasks) == 1:
                if task.due:
                    self._line_up(lane, now)
                else:
                    ready.append(lane)
            nbytes += size
        work.outstanding += len(undone)
        work.nbytes += nbytes
        self.total += len(undone)
        self.nbytes += nbytes

    def passed(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Reading is at these positions: skipped offsets (bad, aborted or deleted records) need no work."""
        for partition, at in positions.items():
            if (work := self.partitions.get(partition)) is not None:
                work.frontier.passed(at.offset, at.leader_epoch)

    # ------------------------------------------------------------ whose turn it is

    @property
    def has_ready(self) -> bool:
        """Whether a record can be handled now, apart from retries that `look_at_due` has not moved yet."""
        return bool(self._ready)

    def ready_records(self, most: int) -> int:
        """How many records can be handled now, counted up to ``most``."""
        count = 0
        for lane in self._ready:
            count += len(lane.tasks)
            if count >= most:
                return most
        return count

    def late_records(self, now: int) -> int:
        """How many records wait for their next attempt, without those behind them in their lanes."""
        return sum(
            bool(lane.tasks) and not lane.running and lane.tasks[0].due > now for _, _, lane in self._late
        )

    def next_due(self) -> int:
        """When the next waiting attempt is due."""
        return self._late[0][0] if self._late else FOREVER

    def look_at_due(self, now: int) -> None:
        """Make lanes ready whose next attempt is due."""
        late = self._late
        while late and late[0][0] <= now:
            self._ready.append(heapq.heappop(late)[2])

    def take(self, now: int) -> Task | None:
        """The next record to be handled; its lane waits until `done`, `again` or `drop`. None: there is none now."""
        return next(iter(self.take_each(1, now)), None)

    def take_each(self, most: int, now: int) -> list[Task]:
        """As `take`: up to ``most`` records, each of another lane."""
        if self._late:
            self.look_at_due(now)
        ready = self._ready
        taken: list[Task] = []
        while ready and len(taken) < most:
            lane = ready.popleft()
            tasks = lane.tasks
            # A lane may be queued twice: it was emptied and filled again meanwhile.
            if tasks and not lane.running and tasks[0].due <= now:
                lane.running = 1
                taken.append(tasks[0])
        self._begin(taken, now)
        if self._tells_of_few and self._has_few():
            self._tells_of_few = False
            self.wants_look = True
        return taken

    def take_batch(self, most: int, now: int) -> list[Task]:
        """Up to ``most`` records for one call: the first ones of each lane, in their order."""
        batch: list[Task] = []
        while len(batch) < most and (task := self.take(now)) is not None:
            batch.append(task)
            for behind in list(task.lane.tasks)[1:]:
                if len(batch) == most or behind.due > now:
                    break
                task.lane.running += 1
                self._begin((behind,), now)
                batch.append(behind)
        return batch

    def _begin(self, tasks: Iterable[Task], now: int) -> None:
        running = self.running
        for task in tasks:
            task.is_running = True
            task.timed_out = task.is_sent = False
            task.started_at = now
            if task.first_at < 0:
                task.first_at = now
            running[task] = None

    def done(self, tasks: Sequence[Task], now: int) -> None:
        """Handled, or their dead letter or retry records are acknowledged."""
        for task in tasks:
            task.work.frontier.done(task.record.offset)
            self._tried += not task.attempts
        self._leave(tasks, now)

    def drop(self, task: Task, now: int) -> None:
        """The task ended, and is not tried again here."""
        self._leave((task,), now)

    def put_back(self, task: Task, now: int) -> None:
        """The task did not begin, or its attempt does not count: it may be taken again."""
        if task.work.is_gone:
            self.drop(task, now)
        else:
            self._end(task)
            self._line_up(task.lane, now)

    def first_of(self, tasks: Iterable[Task], now: int) -> list[Task]:
        """The records of a part of a batch that may begin: all records before them in their lanes are in it, too.

        The others are put back, and so are those of partitions that are gone.
        """
        lanes: dict[Lane, Iterator[Task]] = {}
        first: list[Task] = []
        others: list[Task] = []
        for task in tasks:
            order = lanes.setdefault(task.lane, iter(task.lane.tasks))
            is_next = next(order, None) is task and not task.work.is_gone
            (first if is_next else others).append(task)
        for task in others:
            self.put_back(task, now)
        return first

    def again(self, task: Task, due: int, now: int) -> None:
        """The task failed, and is tried again at ``due``; its lane waits meanwhile."""
        if task.work.is_gone:
            self.drop(task, now)
            return
        self._end(task)
        self._failed += not task.attempts
        self._tried += not task.attempts
        task.attempts += 1
        task.due = due
        self._line_up(task.lane, now)

    def _end(self, task: Task) -> None:
        task.is_running = task.told_lost = False
        task.lane.running -= 1
        del self.running[task]

    def _leave(self, tasks: Sequence[Task], now: int) -> None:
        # All that is done for each record is in as few calls as possible: a call takes longer than what is in it.
        running = self.running
        for task in tasks:
            task.is_running = False
            del running[task]
            lane = task.lane
            lane.running -= 1
            others = lane.tasks
            if others[0] is task:
                others.popleft()
            else:
                others.remove(task)
            if others:
                self._line_up(lane, now)
            elif (home := lane.home) is not None and home.get(lane.key) is lane:
                del home[lane.key]
        self._count_out(tasks)

    def _count_out(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            work = task.work
            work.outstanding -= 1
            work.nbytes -= task.nbytes
            self.total -= 1
            self.nbytes -= task.nbytes
            if work.is_paused and (work.outstanding == work.resume_at or self.total == self._high - 1):
                self.wants_look = True

    def _line_up(self, lane: Lane, now: int) -> None:
        """Queue a lane: its first record may be handled, now or when it is due."""
        if lane.running:
            return
        due = lane.tasks[0].due
        if due > now:
            self._count += 1
            heapq.heappush(self._late, (due, self._count, lane))
        else:
            self._ready.append(lane)

    # ------------------------------------------------------------ back-pressure

    def room(self) -> int:
        """How many more records may be read now; 0 beyond three quarters of the limits."""
        if self.total >= self._high or self.nbytes >= max(self._limits.nbytes * 3 // 4, 1):
            return 0
        room = self._bound - self.total
        if self._retry_topic is not None:
            # All records of one poll may be of the retry topic.
            room = min(room, max(self._bound // _RETRY_PART, 1))
        return room

    @property
    def is_at_most(self) -> bool:
        """Whether the limit cannot be raised further if too few records are ready."""
        return self._order == "partition" or self._bound == self._limits.records

    def _has_few(self) -> bool:
        """Whether too few lanes are ready to keep the workers busy.

        While most first attempts fail, lanes that wait for a retry count as ready, so that no more records are read.
        """
        waiting = len(self._late) if self._failed * 2 > self._tried else 0
        return len(self._ready) + waiting < self._limits.enough

    def _near_is_full(self) -> bool:
        """Whether `Limits.near` keeps a partition paused. Finished records do not count."""
        share_of = self._shares(self._near)
        return self.total - self.finished >= self._near * 3 // 4 or any(
            work.outstanding - work.finished >= (most := share_of(partition)) - most // 8
            for partition, work in self.partitions.items()
        )

    def _shares(self, of: int) -> Callable[[TopicPartition], int]:
        """A function that returns a partition's share of a limit."""
        share = max(min(of * _SHARES // max(len(self.partitions), 1), of), 1)
        topic = self._retry_topic
        if topic is None:
            return lambda partition: share
        count = sum(partition.topic == topic for partition in self.partitions)
        of_retries = max(min(share, of // _RETRY_PART // max(count, 1)), 1)
        return lambda partition: of_retries if partition.topic == topic else share

    def _choose_bound(self) -> None:
        most = self._limits.records
        if self._tried > self._near:
            self._tried //= 2
            self._failed //= 2
        if self._order == "partition" or self._near == most:
            return
        is_full = self._near_is_full()
        if not is_full or len(self._ready) >= _PLENTY * self._limits.enough:
            self._bound = self._near
        elif self._has_few():
            self._bound = most
        # In between it stays unchanged, because each change pauses and resumes partitions.
        self._tells_of_few = is_full and self._bound < most
        self._high = max(self._bound * 3 // 4, 1)

    def pauses(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions to pause now, and those to resume.

        A partition is paused beyond its share of the limits, and resumed an eighth below. Not further below: records
        queued behind a slow key must not keep other keys from being read.
        """
        self._choose_bound()
        limits = self._limits
        is_full = self.room() == 0
        share_of, nbytes_of = self._shares(self._bound), self._shares(limits.nbytes)
        pause: list[TopicPartition] = []
        resume: list[TopicPartition] = []
        for partition, work in self.partitions.items():
            share, nbytes = share_of(partition), nbytes_of(partition)
            work.resume_at = share - share // 8 - 1
            most = work.resume_at + 1 if work.is_paused else share
            has_room = (
                not is_full
                and work.outstanding < most
                and work.nbytes < (nbytes - nbytes // 8 if work.is_paused else nbytes)
                and work.frontier.window < limits.window
            )
            if has_room == work.is_paused:
                work.is_paused = not has_room
                (resume if has_room else pause).append(partition)
        return pause, resume

    # ------------------------------------------------------------ what may be committed

    def frontiers(
        self, partitions: Iterable[TopicPartition] | None = None, limit: int = METADATA_BYTES
    ) -> dict[TopicPartition, ReadOffset]:
        """The offsets to commit of these partitions (None: of all), with the done offsets above them as metadata."""
        chosen = self.partitions if partitions is None else partitions
        found = {}
        for partition in chosen:
            if (work := self.partitions.get(partition)) is not None:
                at = read_offset(work, work.frontier, work.frontier.metadata(limit))
                if at is not None:
                    found[partition] = at
        return found

    def running_of(self, partitions: Iterable[TopicPartition]) -> int:
        """How many records of these partitions are running."""
        works = {self.partitions.get(each) for each in partitions}
        return sum(task.work in works for task in self.running)

    # ------------------------------------------------------------ what holds it up

    def overdue(self, now: int, timeout_ms: int) -> Iterator[Task]:
        """Records whose handlers have run longer than ``timeout``, each once."""
        for task in self.running:
            if now - task.started_at < timeout_ms:
                return
            if not (task.timed_out or task.is_sent):
                task.timed_out = True
                yield task

    def stuck(self, until: int) -> Iterator[Task]:
        """The record that holds up the frontier of each partition of this member, if it runs since ``until`` (ms)."""
        lowest: dict[TopicPartition, Task] = {}
        for task in self.running:
            if task.started_at > until:
                break
            partition = task.work.partition
            if partition not in self.partitions:
                continue
            if partition not in lowest or task.record.offset < lowest[partition].record.offset:
                lowest[partition] = task
        for task in lowest.values():
            if task.work.frontier.offset == task.record.offset:
                yield task

    def hottest(self) -> Lane | None:
        """The lane with the most records; None while no lane of a key or of a partition has any."""
        lanes = (lane for lanes in self._lanes.values() for lane in lanes.values())
        return max(lanes, key=lambda lane: len(lane.tasks), default=None)
