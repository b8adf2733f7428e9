"""The loop of `Consumer.process`, written once for threads and for asyncio (H1, H4, H6).

It is a generator of steps. A driver (`driver.py`) carries each out on its consumer, by calling or by awaiting it, and
sends the result back. The loop polls in time whatever handlers do, keeps what was read within the limits by pausing
partitions, commits the frontier now and then, and gives up partitions in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kadence.clock import FOREVER, Clock, add_ms
from kadence.errors import ConfigError, IllegalStateError, KafkaError, OffsetMetadataTooLargeError
from kadence.logs import logger
from kadence.printable import plural
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.work.desk import Desk
from kadence.work.frontier import METADATA_BYTES, decode
from kadence.work.letters import named
from kadence.work.scheduler import Task
from kadence.work.settings import Settings

__all__ = [
    "Commit",
    "Committed",
    "Idle",
    "PartitionsOf",
    "Poll",
    "Processing",
    "Seek",
    "SeekToStart",
    "Step",
    "Steps",
    "Subject",
]

log = logger("kadence.work")

_LOOK_MS: Final = 1_000
"""The loop looks at everything so often, at least."""

_PAUSED_MS: Final = 100
"""…and so often while a partition is paused by its bytes or its window, which nobody tells of."""

_SOON_MS: Final = 20
"""…and so often while a worker has more than one record."""

_STUCK_MS: Final = 60_000
"""A record that is worked on for longer is named in the log, once in so long."""

_PART: Final = 500
"""The most records that are read at once."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Poll for up to so many ms; gives `Records`. It ends early when the desk has changed."""

    ms: int
    max_records: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit and wait; raises what the commit raises."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class Committed:
    """Gives what the group has committed for these."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsOf:
    """Gives the partitions of a topic, none where the cluster does not have it."""

    topic: str


@dataclass(frozen=True, slots=True)
class Seek:
    """Read the partition from there on."""

    partition: TopicPartition
    at: OffsetAndMetadata


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


class Subject(Protocol):
    """The calls of a consumer that wait for nothing."""

    stopping: bool

    def assignment(self) -> frozenset[TopicPartition]: ...
    def finished(self) -> frozenset[TopicPartition]: ...
    def group_metadata(self) -> GroupMetadata: ...
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object],
    ) -> None: ...


class Gate(Protocol):
    """What keeps partitions from being read. The application has another one (`Consumer.pause`)."""

    def pause(self, partitions: list[TopicPartition]) -> None: ...
    def resume(self, partitions: list[TopicPartition]) -> None: ...


class Look(Protocol):
    """As `Workers.look`; False where there are no workers."""

    def __call__(self, now: int, *, at_once: bool = False) -> bool: ...


class Processing:
    """One call of `process`.

    Args:
        gate: keeps partitions from being read while enough of them waits; whoever ends the processing opens it.
        wake: as `Workers.wake`. look: as `Workers.look`.
        in_group: whether there is a group to commit to. commit_ms: how often that is done.

    Attributes:
        committed: what was committed last of each partition. is_put_back: `put_back` has ended.
    """

    def __init__(
        self,
        settings: Settings,
        desk: Desk,
        subject: Subject,
        gate: Gate,
        clock: Clock,
        wake: Callable[[], None],
        look: Look,
        in_group: bool,
        commit_ms: int,
    ) -> None:
        self._settings = settings
        self._desk = desk
        self._subject = subject
        self._gate = gate
        self._clock = clock
        self._wake = wake
        self._look = look
        self._in_group = in_group
        self._commit_ms = commit_ms
        self._commit_at = add_ms(clock.now_ms(), commit_ms)
        self._metadata_bytes = METADATA_BYTES
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.is_put_back = False
        self._is_committing = False
        self._told: dict[Task, int] = {}
        self._hot_told = 0

    def run(self) -> Steps:
        """Until the consumer stops, its ranges end, or something failed; then what runs is waited for, and committed.

        Raises:
            Whatever ended the processing: a handler's exception, or an error of the consumer.
        """
        desk, subject = self._desk, self._subject
        error: BaseException | None = None
        try:
            yield from self.assigned(tuple(subject.assignment()))
            while not desk.is_ended and not subject.stopping:
                yield from self._turn()
                if self._is_finished():
                    break
        except Exception as raised:  # noqa: BLE001 - raised below, once what is done is committed
            error = raised
        finally:
            with desk.lock:
                desk.is_ended = True
        yield from self._end()
        yield from self.put_back()
        error = error or desk.failure
        if error is not None:
            raise error

    def check_topics(self) -> Steps:
        """See that the topics of dead letters and retries are there, before a record needs them.

        Raises:
            ConfigError: one of them is missing.
        """
        for name, topic in (
            ("dead_letter", self._settings.dead_letter),
            ("Retry.topic", self._settings.retry.topic),
        ):
            if topic is not None and not (yield PartitionsOf(topic)):
                raise ConfigError(f"{name}: the cluster has no topic {topic!r}; create it first")

    def _turn(self) -> Steps:
        """One poll, and what it brought."""
        desk = self._desk
        scheduler = desk.scheduler
        with desk.lock:
            scheduler.wants_look = False
            pause, resume = scheduler.pauses()
            room = scheduler.room()
            is_paused = any(work.is_paused for work in scheduler.partitions.values())
            due = desk.due()
        if self._settings.batch is not None:
            self._look_whether_more_comes()
        if pause:
            self._gate.pause(pause)
        if resume:
            self._gate.resume(resume)
        now = self._clock.now_ms()
        # What is due already waits for a worker.
        due = due - now if due > now else _LOOK_MS
        wait = max(min(due, self._commit_at - now, _PAUSED_MS if is_paused else _LOOK_MS), 0)
        if self._look(now):
            wait = min(wait, _SOON_MS)
        if self._ranges_are_read():
            yield Idle(add_ms(now, wait))
            records = None
        else:
            records = yield Poll(wait, min(max(room, 1), _PART))
        now = self._clock.now_ms()
        with desk.lock:
            if records is not None:
                for partition, several in records.by_partition().items():
                    scheduler.add(partition, several, now)
                scheduler.passed(records.next_offsets())
            ready = scheduler.has_ready or desk.due() <= now
        if ready:
            self._wake()
        self._look_at_time(now)
        if self._in_group and self._is_to_commit(now):
            self._commit(now)

    def _look_whether_more_comes(self) -> None:
        """A batch that nothing can be added to does not wait."""
        desk, finished = self._desk, self._subject.finished()
        with desk.lock:
            before = desk.nothing_comes
            partitions = desk.scheduler.partitions
            # The next transaction makes room for more.
            awaits_commit = bool(desk.scheduler.finished)
            desk.nothing_comes = bool(partitions) and all(
                partition in finished or (work.is_paused and not awaits_commit)
                for partition, work in partitions.items()
            )
            is_news = desk.nothing_comes and not before and desk.scheduler.has_ready
        if is_news:
            self._wake()

    def _is_finished(self) -> bool:
        if not self._ranges_are_read():
            return False
        with self._desk.lock:
            return self._desk.scheduler.total == 0

    def _ranges_are_read(self) -> bool:
        assigned = self._subject.assignment()
        return bool(assigned) and self._subject.finished() == assigned

    def _end(self) -> Steps:
        """Wait for what runs, and commit."""
        desk = self._desk
        until = add_ms(self._clock.now_ms(), self._settings.drain_ms)
        desk.is_waited_for = True
        while running := self._running(None, until):
            if self._clock.now_ms() >= until:
                log.warning(
                    "not waited for any longer: %s, whose handlers still run. They come again",
                    plural(running, "record"),
                )
                break
            yield self._a_while(until)
        yield from self._commit_at_last(None)

    def _a_while(self, until: int) -> Idle:
        """Wait until what runs changes. Nobody tells of what a thread in a slow handler has beside that."""
        now = self._clock.now_ms()
        return Idle(min(until, add_ms(now, _SOON_MS)) if self._look(now) else until)

    def _running(self, partitions: tuple[TopicPartition, ...] | None, until: int) -> int:
        """How many records of these still run, or of all."""
        now = self._clock.now_ms()
        if now >= until:
            # A thread in a slow handler has told of none of those that it has done before.
            self._look(now, at_once=True)
        with self._desk.lock:
            scheduler = self._desk.scheduler
            return len(scheduler.running) if partitions is None else scheduler.running_of(partitions)

    def put_back(self, *, is_interrupted: bool = False) -> Steps:
        """What was read and not done is read again, by polls and by another call of `process`.

        It needs no broker. Without it the consumer may commit nothing by itself: its positions are beyond what is done.

        Args:
            is_interrupted: a poll may have returned records that never came here.
        """
        with self._desk.lock:
            offsets = self._desk.scheduler.frontiers()
            works = tuple(self._desk.scheduler.partitions.items())
        assigned = self._subject.assignment()
        for partition, work in works:
            if partition in offsets and partition in assigned and (work.frontier.window or is_interrupted):
                yield Seek(partition, offsets[partition])
        self.is_put_back = not is_interrupted or assigned <= offsets.keys()

    # ------------------------------------------------------------ commits

    def _is_to_commit(self, now: int) -> bool:
        return now >= self._commit_at

    def _commit(self, now: int) -> None:
        """Commit what has changed, without waiting."""
        self._commit_at = add_ms(now, self._commit_ms)
        if self._is_committing:
            return
        with self._desk.lock:
            offsets = self._desk.scheduler.frontiers(limit=self._metadata_bytes)
        changed = {p: at for p, at in offsets.items() if self.committed.get(p) != at}
        if changed:
            self._is_committing = True
            self._subject.commit_async(changed, self._committed)

    def _committed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None
    ) -> None:
        self._is_committing = False
        if error is None:
            self.committed.update(offsets)
        elif isinstance(error, OffsetMetadataTooLargeError):
            self._shorten()
        else:
            log.warning("not committed; it is tried again: %s", error)

    def _shorten(self) -> None:
        self._metadata_bytes //= 2
        log.warning(
            "the broker takes only short metadata with commits (offset.metadata.max.bytes): it gets %d bytes now, and "
            "more records may be repeated after a crash",
            self._metadata_bytes,
        )

    def _commit_at_last(self, partitions: tuple[TopicPartition, ...] | None) -> Steps:
        """Commit what is done of these, and forget them; None: all, at the end of the processing."""
        scheduler = self._desk.scheduler
        with self._desk.lock:
            offsets = scheduler.frontiers(partitions, self._metadata_bytes)
            if partitions is not None:
                scheduler.forget(partitions)
        yield from self._commit_now(offsets)

    def _commit_now(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Steps:
        """Commit and wait. A commit that fails is logged: the records come again, here or at another member."""
        while self._in_group and offsets:
            try:
                yield Commit(offsets)
            except OffsetMetadataTooLargeError:
                self._shorten()
                offsets = {
                    p: OffsetAndMetadata(
                        at.offset,
                        at.leader_epoch,
                        at.metadata if len(at.metadata) <= self._metadata_bytes else "",
                    )
                    for p, at in offsets.items()
                }
                continue
            except KafkaError as error:
                log.warning("not committed, so some records come again: %s", error)
            else:
                self.committed.update(offsets)
            return

    # ------------------------------------------------------------ rebalances: H6

    def assigned(self, partitions: tuple[TopicPartition, ...]) -> Steps:
        """These are this member's from now on. What was done above their committed offsets is skipped."""
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if partitions and self._in_group:
            try:
                found = yield Committed(partitions)
            except KafkaError as error:
                log.warning(
                    "what is done above the committed offsets is not known, and is done again: %s", error
                )
        yield from self._retries_from_start(found)
        with self._desk.lock:
            for partition in partitions:
                at = found.get(partition)
                self.committed.pop(partition, None)
                self._desk.scheduler.assign(partition, () if at is None else decode(at.offset, at.metadata))

    def _retries_from_start(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> Steps:
        """Read the retry topic from its start where nothing is committed, whatever ``auto.offset.reset`` says.

        What is written there has no other copy: where it came from it is done.

        Args:
            found: what is committed, as far as that is known.
        """
        topic = self._settings.retry.topic
        if new := tuple(p for p, at in found.items() if at is None and p.topic == topic):
            # They may be lost meanwhile, and we be told of it later.
            with contextlib.suppress(IllegalStateError):
                yield SeekToStart(new)

    def revoked(self, partitions: tuple[TopicPartition, ...]) -> Steps:
        """These go. Nothing of them begins any more; what runs has its time; then the frontier is committed."""
        desk = self._desk
        with desk.lock:
            desk.scheduler.revoke(partitions)
        desk.tell_lost()
        # A second Ctrl-C in the midst of the end leaves this to close(), which the first one told to wait for nothing.
        until = add_ms(self._clock.now_ms(), 0 if desk.is_over else self._settings.drain_ms)
        desk.is_waited_for = True
        try:
            while running := self._running(partitions, until):
                if self._clock.now_ms() >= until:
                    log.warning(
                        "%s of partitions that are revoked: handlers still run, and their results are not committed",
                        plural(running, "record"),
                    )
                    break
                yield self._a_while(until)
        finally:
            desk.is_waited_for = False
        yield from self._commit_at_last(partitions)

    def lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Another member has these already: nothing is committed."""
        with self._desk.lock:
            self._desk.scheduler.forget(partitions)
        self._desk.tell_lost()

    # ------------------------------------------------------------ what takes long

    def _look_at_time(self, now: int) -> None:
        """Name what takes longer than it may, or holds up a partition for long."""
        timeout = self._settings.timeout_ms
        with self._desk.lock:
            late = [] if timeout is None else list(self._desk.scheduler.overdue(now, timeout))
            stuck = [task for task in self._desk.scheduler.stuck() if now - task.started_at >= _STUCK_MS]
        for task in late:
            log.warning(
                "%s takes longer than timeout=%g s (attempt %d)",
                named(task.record),
                (timeout or 0) / 1000,
                task.attempts + 1,
            )
        for task in stuck:
            if now >= self._told.get(task, 0):
                self._told[task] = add_ms(now, _STUCK_MS)
                log.warning(
                    "%s has been worked on for %d s, and holds up the committed offset of its partition",
                    named(task.record),
                    (now - task.started_at) // 1000,
                )
        if self._told:
            self._told = {task: at for task, at in self._told.items() if at < FOREVER and task in stuck}
        if now >= self._hot_told:
            self._look_for_hot_key(now)

    def _look_for_hot_key(self, now: int) -> None:
        """Name a key whose records have its partition paused: more than half of those that may be under way there."""
        scheduler = self._desk.scheduler
        with self._desk.lock:
            if not scheduler.is_at_most or not any(work.is_paused for work in scheduler.partitions.values()):
                return
            # All lanes are looked at, which is not for each poll.
            self._hot_told = add_ms(now, _LOOK_MS)
            lane = scheduler.hottest()
            if lane is None or not lane.tasks:
                return
            first, count = lane.tasks[0], len(lane.tasks)
            work = first.work
            # Where a partition has few records, it is paused because others have many, or by the size of one.
            if not work.is_paused or count == 1 or count * 2 <= max(work.outstanding, work.resume_at):
                return
        self._hot_told = add_ms(now, _STUCK_MS)
        log.warning(
            "%d records wait for the one before them, which pauses their partition: %s",
            count - 1,
            named(first.record),
        )
