"""The loop of `Consumer.process`, written once for threads and for asyncio (H1, H4, H6).

It is a generator of steps. A driver (`driver.py`) carries out each step on its consumer, by a call or an await, and
sends the result back. The loop polls in time however long handlers take, pauses partitions to keep the records under
way within the limits, commits the frontiers every auto.commit.interval.ms, and gives up revoked partitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, Protocol

from kadence.client.repeating import Repeating
from kadence.clock import FOREVER, Clock, add_ms
from kadence.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    WakeupError,
)
from kadence.errors.remedies import REPEATED, Remedy, remedy_of
from kadence.logs import logger
from kadence.printable import plural
from kadence.types import GroupMetadata, OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.desk import Desk
from kadence.work.following import Following
from kadence.work.frontier import METADATA_BYTES
from kadence.work.letters import named
from kadence.work.positions import Reading
from kadence.work.scheduler import Task
from kadence.work.settings import Settings
from kadence.work.steps import (
    Commit,
    Committed,
    Hear,
    Idle,
    PartitionsOf,
    Poll,
    Seek,
    SeekToStart,
    Step,
    Steps,
)

__all__ = ["Processing", "Subject"]

log = logger("kadence.work")

_LOOK_MS: Final = 1_000
"""The longest time between two turns of the loop."""

_PAUSED_MS: Final = 100
"""The same while a partition is paused: no call reports that its bytes or its window have room again."""

_SOON_MS: Final = 20
"""The same while a worker holds more than one record."""

_STUCK_MS: Final = 60_000
"""A record that runs for longer is logged, once in each such period."""

_PART: Final = 500
"""The most records of one poll."""


class Subject(Protocol):
    """The calls of a consumer that do not block."""

    stopping: bool

    def assignment(self) -> frozenset[TopicPartition]: ...
    def finished(self) -> frozenset[TopicPartition]: ...
    def group_metadata(self) -> GroupMetadata: ...


class Gate(Protocol):
    """Pauses partitions, independently of the application's `Consumer.pause`."""

    def pause(self, partitions: list[TopicPartition]) -> None: ...
    def resume(self, partitions: list[TopicPartition]) -> None: ...


class Look(Protocol):
    """As `Workers.look`; False where there are no workers."""

    def __call__(self, now: int, *, at_once: bool = False) -> bool: ...


class Processing:
    """One call of `process`.

    Args:
        gate: pauses partitions of which enough records are waiting. The driver resumes all at the end.
        wake: as `Workers.wake`. look: as `Workers.look`.
        in_group: whether there is a group to commit to. commit_ms: the time between commits.

    Attributes:
        committed: the offset committed last of each partition. is_put_back: whether `put_back` has ended.
    """

    def __init__(
        self,
        settings: Settings,
        desk: Desk,
        subject: Subject,
        gate: Gate,
        reading: Reading,
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
        self._reading = reading
        self._clock = clock
        self._wake = wake
        self._look = look
        self._in_group = in_group
        self._commit_ms = commit_ms
        self._commit_at = add_ms(clock.now_ms(), commit_ms) if in_group else FOREVER
        self._ends_since = FOREVER
        self._metadata_bytes = METADATA_BYTES
        self.is_put_back = False
        self._following = self._new_following()
        self._woken: WakeupError | None = None
        self._is_starting = True
        self._is_committing = False
        self._repeating = Repeating(commit_ms)
        self._told: dict[Task, int] = {}
        self._hot_told = 0

    def _new_following(self) -> Following:
        return Following(self._desk, self._reading)

    @property
    def committed(self) -> dict[TopicPartition, ReadOffset]:
        return self._following.committed

    def run(self) -> Steps:
        """Process until `stop`, the end of the ranges, or an error; then wait for running handlers, and commit.

        Raises:
            The error that ended the processing: a handler's exception, or an error of the consumer.
        """
        desk, subject = self._desk, self._subject
        error: BaseException | None = None
        try:
            yield from self.assigned(tuple(subject.assignment()))
            self._is_starting = False
            while not desk.is_ended and not subject.stopping:
                yield from self._turn()
                if self._is_finished():
                    break
        except Exception as raised:  # noqa: BLE001 - raised below, after the last commit
            error = raised
        finally:
            with desk.lock:
                desk.is_ended = True
        yield from self._end()
        yield from self.put_back()
        error = error or desk.failure or self._woken
        if error is not None:
            raise error

    def check_topics(self) -> Steps:
        """Check that the dead letter topics and the retry topic exist, before a record needs them.

        Raises:
            ConfigError: one of them does not.
        """
        settings = self._settings
        names = {
            settings.bad_letter: "dead.letter.topic",
            settings.dead_letter: "dead_letter",
            settings.retry.topic: "Retry.topic",
        }
        for topic, name in names.items():
            if topic is not None:
                found = yield PartitionsOf(topic)
                if found is None:
                    return
                if not found:
                    raise ConfigError(f"{name}: the cluster has no topic {topic!r}; create it first")

    def _turn(self) -> Steps:
        """Poll once, and add the records."""
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
        wait = min(self._next_look(now, due), self._commit_at) - now
        records = yield Poll(max(min(wait, _PAUSED_MS) if is_paused else wait, 0), min(max(room, 1), _PART))
        now = self._clock.now_ms()
        yield from self._following.take_in(records, now)
        self._look_after(now)
        if self._is_to_commit(now):
            self._commit(now)

    def _next_look(self, now: int, due: int) -> int:
        """The time (ms) until which the loop may wait. ``due``: as `Desk.due`."""
        # Records that are due already wait for a worker, not for this loop.
        soon = add_ms(now, _SOON_MS if self._look(now) else _LOOK_MS)
        return min(soon, due) if due > now else soon

    def _look_after(self, now: int) -> None:
        """Begin the attempts that are due, and log what takes long. In each turn, and while the loop does not poll."""
        desk = self._desk
        with desk.lock:
            ready = not desk.is_ended and (desk.scheduler.has_ready or desk.due() <= now)
        if ready:
            self._wake()
        self._look_at_time(now)

    def _look_whether_more_comes(self) -> None:
        """Let a partial batch go at once if no more records can join it."""
        desk, finished = self._desk, self._subject.finished()
        with desk.lock:
            before = desk.nothing_comes
            partitions = desk.scheduler.partitions
            # Their transaction will make room for more.
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
        """Wait for running handlers, at most ``drain``, and commit."""
        # `stop` may have been called during a revocation.
        began = min(self._ends_since, self._clock.now_ms())
        running = yield from self._drained(None, add_ms(began, self._settings.drain_ms))
        if running:
            log.warning(
                "gave up waiting for %s whose handlers or outputs are not done; they will be redelivered",
                plural(running, "record"),
            )
        yield from self._commit_at_last(None)

    def _drained(
        self, partitions: tuple[TopicPartition, ...] | None, until: int
    ) -> Generator[Step, Any, int]:
        """Wait until no record of these partitions (None: of any) runs; returns how many still run at ``until``.

        The loop does not poll meanwhile. Whatever else it does in each turn goes on.
        """
        desk = self._desk
        desk.is_waited_for = True
        try:
            desk.hurry()
            while True:
                now = self._clock.now_ms()
                if desk.is_ended or self._subject.stopping:
                    self._ends_since = min(self._ends_since, now)
                running = self._running(partitions, now, at_last=now >= until)
                if not running or now >= until:
                    return running
                yield from self._a_while(now, min(until, self._next_commit(now)))
                yield from self._commit_meanwhile()
        finally:
            desk.is_waited_for = False

    def _a_while(self, now: int, until: int) -> Steps:
        """Wait for a change, not beyond ``until``. Handlers may be running."""
        with self._desk.lock:
            due = self._desk.due()
        yield Idle(min(self._next_look(now, due), until))
        self._look_after(self._clock.now_ms())

    def _running(self, partitions: tuple[TopicPartition, ...] | None, now: int, *, at_last: bool) -> int:
        """How many records of these partitions (None: of all) still run."""
        if at_last:
            # A thread in a slow handler has not reported the records that it handled before.
            self._look(now, at_once=True)
        with self._desk.lock:
            scheduler = self._desk.scheduler
            return len(scheduler.running) if partitions is None else scheduler.running_of(partitions)

    def put_back(self, *, is_interrupted: bool = False) -> Steps:
        """Seek back to the frontiers, so that later polls, or `process`, read the records again that are not done.

        It needs no broker. Otherwise the consumer must not auto-commit: its positions are ahead of the done records.

        Args:
            is_interrupted: a poll may have returned records that this loop did not receive.
        """
        with self._desk.lock:
            offsets = self._desk.scheduler.frontiers()
            works = tuple(self._desk.scheduler.partitions.items())
        assigned = self._subject.assignment()
        epochs = self._reading.fetch_epochs()
        for partition, work in works:
            read = offsets.get(partition)
            # If the position has changed, the next records come from there in any case.
            if read is None or epochs.get(partition) != read.fetch_epoch:
                continue
            if work.frontier.window or is_interrupted:
                yield Seek(partition, read.at, is_committed=True)
        self.is_put_back = not is_interrupted or assigned <= offsets.keys()

    # ------------------------------------------------------------ commits

    def _is_to_commit(self, now: int) -> bool:
        return now >= self._commit_at

    def _next_commit(self, now: int) -> int:
        """When there is something to commit, at the latest (ms)."""
        del now
        return self._commit_at

    def _commit_meanwhile(self) -> Steps:
        """Commit as in each turn. An error is left to the commit at the end, or to the next poll."""
        if self._is_committing:
            try:
                yield Hear()
            except Exception as error:  # noqa: BLE001 - of a callback of the program's
                self._desk.ends_with(error)
        now = self._clock.now_ms()
        if self._is_to_commit(now):
            with contextlib.suppress(KafkaError):
                self._commit(now)

    def _commit(self, now: int) -> None:
        """Commit the offsets that have changed, without waiting."""
        self._commit_at = add_ms(now, self._commit_ms)
        if self._is_committing:
            return
        with self._desk.lock:
            offsets = self._desk.scheduler.frontiers(limit=self._metadata_bytes)
        changed = {p: read for p, read in offsets.items() if self.committed.get(p) != read}
        if changed:
            self._reading.commit_async(changed, partial(self._committed, changed))
            self._is_committing = True

    def _committed(
        self,
        read: Mapping[TopicPartition, ReadOffset],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        error: Exception | None,
    ) -> None:
        self._is_committing = False
        if error is None:
            self._repeating.succeeded()
            self.committed.update({p: read[p] for p in offsets})
        elif not self._is_shortened(error, offsets):
            again = self._repeating.failed(self._clock.now_ms())
            self._commit_at = max(again.at, self._commit_at)
            log.log(again.level, "commit failed; it will be retried: %s", error)

    def _is_shortened(self, error: Exception, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """Whether the commit failed because its metadata was too large. Then later commits get shorter metadata."""
        if remedy_of(error) is not Remedy.FORM or not any(at.metadata for at in offsets.values()):
            return False
        self._metadata_bytes //= 2
        log.warning(
            "the broker refused the commit's metadata as too long (offset.metadata.max.bytes): commits now have up to "
            "%d bytes of it, so more records may be redelivered after a crash",
            self._metadata_bytes,
        )
        return True

    def _commit_at_last(self, partitions: tuple[TopicPartition, ...] | None) -> Steps:
        """Commit the frontiers of these partitions, and forget them; None: commit all, at the end of the processing.

        The commit of revoked partitions is not waited for, so that the others are read meanwhile. The network thread
        gives up the partitions when the commit has ended.
        """
        scheduler = self._desk.scheduler
        with self._desk.lock:
            read = scheduler.frontiers(partitions, self._metadata_bytes)
            if partitions is not None:
                scheduler.forget(partitions)
        if not (self._in_group and read):
            return
        if partitions is None:
            yield from self._commit_now(read)
        else:
            self._reading.commit_async(read, self._parted, is_parting=True)

    def _parted(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        del offsets
        if error is not None:
            self._tell_uncommitted(error)

    def _commit_now(self, read: dict[TopicPartition, ReadOffset]) -> Steps:
        """Commit and wait. A failed commit is logged: its records are redelivered, here or at another member."""
        while True:
            try:
                yield Commit(read)
            except WakeupError as error:
                # It ends the processing, but not the commit.
                self._woken = error
                continue
            except KafkaError as error:
                if self._is_shortened(error, {p: each.at for p, each in read.items()}):
                    with self._desk.lock:
                        read = self._desk.scheduler.frontiers(read, self._metadata_bytes)
                    continue
                self._tell_uncommitted(error)
            else:
                self.committed.update(read)
            return

    def _tell_uncommitted(self, error: Exception) -> None:
        log.warning("commit failed; some records will be redelivered: %s", error)

    # ------------------------------------------------------------ rebalances: H6

    def assigned(self, partitions: tuple[TopicPartition, ...]) -> Steps:
        """These partitions are assigned. Records done above their committed offsets are skipped."""
        topic = self._settings.retry.topic
        retries = tuple(p for p in partitions if p.topic == topic) if self._is_starting else ()
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        # Retry partitions that the consumer had before `process` may be positioned behind records that no handler has
        # tried. Partitions assigned later are read from their start by `Insides.read_from_start`.
        while retries and self._in_group and not self._subject.stopping:
            try:
                found = yield Committed(retries)
                break
            except KafkaError as error:
                if remedy_of(error) not in REPEATED:
                    raise
                again = self._repeating.failed(self._clock.now_ms(), "look-up")
                log.log(again.level, "cannot look up the group's committed offsets; trying again: %s", error)
                yield Idle(again.at)
        yield from self._retries_from_start(found)
        yield from self._following.assign(partitions)

    def _retries_from_start(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> Steps:
        """Read retry partitions without a committed offset from their start, whatever ``auto.offset.reset`` says.

        The retry topic holds the only copy of its records: their originals are done.

        Args:
            found: the committed offsets, as far as known.
        """
        topic = self._settings.retry.topic
        if new := tuple(p for p, at in found.items() if at is None and p.topic == topic):
            # The partitions may be lost already, although the listener is called later.
            with contextlib.suppress(IllegalStateError):
                yield SeekToStart(new)

    def revoked(self, partitions: tuple[TopicPartition, ...]) -> Steps:
        """These partitions are revoked: none of their records begins, running ones get ``drain``, then commit."""
        desk = self._desk
        with desk.lock:
            desk.scheduler.revoke(partitions)
        desk.tell_lost()
        # After the end was interrupted by a second Ctrl-C, close() calls this, and must not wait.
        until = add_ms(self._clock.now_ms(), 0 if desk.is_over else self._settings.drain_ms)
        running = yield from self._drained(partitions, until)
        if running:
            log.warning(
                "gave up waiting for %s of revoked partitions whose handlers or outputs are not done; they will be "
                "redelivered",
                plural(running, "record"),
            )
        yield from self._commit_at_last(partitions)

    def lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Another member may own these already: their offsets are not committed."""
        with self._desk.lock:
            self._desk.scheduler.forget(partitions)
        self._desk.tell_lost()

    # ------------------------------------------------------------ what takes long

    def _look_at_time(self, now: int) -> None:
        """Log records that run longer than ``timeout``, or hold up the commits of their partition for a minute."""
        timeout = self._settings.timeout_ms
        with self._desk.lock:
            late = [] if timeout is None else list(self._desk.scheduler.overdue(now, timeout))
            stuck = list(self._desk.scheduler.stuck(now - _STUCK_MS))
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
        """Log a key that has its partition paused: it has more than half of the records that may be under way there."""
        scheduler = self._desk.scheduler
        with self._desk.lock:
            if not scheduler.is_at_most or not any(work.is_paused for work in scheduler.partitions.values()):
                return
            # Visiting all lanes is too slow for each poll.
            self._hot_told = add_ms(now, _LOOK_MS)
            lane = scheduler.hottest()
            if lane is None or not lane.tasks:
                return
            first, count = lane.tasks[0], len(lane.tasks)
            work = first.work
            # A partition with few records is paused because others have many, or because one is large.
            if not work.is_paused or count == 1 or count * 2 <= max(work.outstanding, work.resume_at):
                return
        self._hot_told = add_ms(now, _STUCK_MS)
        log.warning(
            "partition paused: %d records are queued behind the record of the same %s: %s",
            count - 1,
            "partition" if self._settings.order == "partition" else "key",
            named(first.record),
        )
