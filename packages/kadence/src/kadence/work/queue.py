"""`process` on a queue: each record has an outcome of its own, and no offset is committed (H5, KIP-932).

Records wait and run as those of a consumer with ``order="none"``. What is done is accepted, what failed for good is
rejected, and what is given back is released. An outcome counts only while the record's lock is this member's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from kadence.clock import FOREVER, add_ms
from kadence.errors import ConfigError, KafkaError, WakeupError
from kadence.lazy_dataclasses import dataclass
from kadence.logs import logger
from kadence.printable import plural
from kadence.records import Record
from kadence.types import TopicPartition
from kadence.work.desk import Desk
from kadence.work.letters import is_bad, place_of
from kadence.work.meters import Totals
from kadence.work.processing import Processing
from kadence.work.retry import Retry
from kadence.work.scheduler import Lane, PartitionWork, Scheduler, Task
from kadence.work.settings import Settings, settings_of
from kadence.work.steps import Commit, Poll, Steps

__all__ = ["Outcomes", "QueueDesk", "QueueProcessing", "QueueTotals", "Source", "queue_settings"]

log = logger("kadence.work")

_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
"""The protocol's types of acknowledgements."""

_AHEAD_MS: Final = 500
"""So long the workers are kept busy by what is read ahead. More would wait here while other members are idle."""

_SOON_MS: Final = 20
"""The longest time from an outcome to its acknowledgement, while the loop waits for records."""


def queue_settings(handler: Any, *, retry: Retry | None, **given: Any) -> Settings:
    """Check the arguments of `ShareConsumer.process`; see `settings_of`.

    Raises:
        ConfigError: a retry topic, which a queue does not need. Or as `settings_of`.
    """
    if isinstance(retry, Retry) and retry.topic is not None:
        raise ConfigError(
            f"Retry(topic={retry.topic!r}) is not for a queue: a record that is released, or whose attempts ended with "
            "the process, is delivered again by itself; leave topic out"
        )
    return settings_of(handler, retry=retry, order="none", transactional_id=None, **given)


class Locked(Protocol):
    """What one answer acquired of one partition."""

    def is_locked(self, now: int) -> bool: ...


Outcomes = MutableMapping[Any, list[tuple[int, int]]]
"""Of each `Locked` the offsets whose outcome is known, with the type of their acknowledgement."""


class Source(Protocol):
    """A queue's consumer, as the loop needs it.

    Attributes:
        policy: ``deserialization.errors``.
        taken: what `poll` took, until the loop has it: (`Locked`, partition, records) of each part. The result of a
            call may be lost on its way, by Ctrl-C.
    """

    taken: Sequence[tuple[Any, TopicPartition, Sequence[Record[Any, Any]]]]

    @property
    def policy(self) -> str: ...
    def poll(self, ms: int, most: int) -> Any:
        """Wait for records, which are in `taken` then. Awaited under asyncio."""

    def settle(self, outcomes: Outcomes) -> None:
        """Acknowledge these, without waiting, and remove them from the mapping."""

    def send(self) -> None:
        """Send what was acknowledged, without waiting: no poll does."""

    def rest(self) -> None:
        """No poll follows: fetch nothing any more."""


@dataclass(frozen=True, slots=True)
class QueueTotals(Totals):
    """The counts of `ShareConsumer.process`.

    Attributes:
        rejected: records whose attempts all failed, and which were rejected; ``done`` includes them.
    """

    rejected: int = 0


class _Held(PartitionWork):
    """Records of one fetch; ``is_gone``: their locks are gone, or they were given back."""

    __slots__ = ("fetch",)

    def __init__(self, partition: TopicPartition, fetch: Locked) -> None:
        super().__init__(partition, ())
        self.fetch = fetch


class QueueScheduler(Scheduler):
    """Records without an order, each with its lock.

    Attributes:
        outcomes: what is known, and not acknowledged yet.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.outcomes: dict[Locked, list[tuple[int, int]]] = {}
        self._held: list[_Held] = []

    def take_in(
        self, fetch: Locked, partition: TopicPartition, records: Iterable[Record[Any, Any]], now: int
    ) -> None:
        """These were read."""
        work = _Held(partition, fetch)
        self._held.append(work)
        for record in records:
            key, value = record.key, record.value
            size = 100 + (0 if key is None else len(key)) + (0 if value is None else len(value))
            lane = Lane(None, None)
            lane.tasks.append(Task(record, work, lane, size))
            self._line_up(lane, now)
            work.outstanding += 1
            work.nbytes += size
            self.total += 1
            self.nbytes += size

    def done(self, tasks: Sequence[Task], now: int) -> None:
        for task in tasks:
            self._say(task, _ACCEPT)
            self._tried += not task.attempts
        self._leave(tasks, now)

    def reject(self, task: Task, now: int) -> None:
        """It failed for good."""
        self._say(task, _REJECT)
        super().drop(task, now)

    def drop(self, task: Task, now: int) -> None:
        # It ended without an outcome: another delivery is to have one.
        self._say(task, _RELEASE)
        super().drop(task, now)

    def _say(self, task: Task, kind: int) -> None:
        work = task.work
        if not work.is_gone:
            assert isinstance(work, _Held)
            self.outcomes.setdefault(work.fetch, []).append((task.record.offset, kind))

    def look_at_locks(self, now: int) -> int:
        """Forget records whose lock is gone. Returns how many were waiting or running."""
        lost = [work for work in self._held if work.outstanding and not work.fetch.is_locked(now)]
        count = sum(work.outstanding for work in lost if not work.is_gone)
        self._held = [work for work in self._held if work.outstanding and not work.is_gone]
        if lost:
            self._give_up(lost)
        return count

    def release_all(
        self, polled: Iterable[tuple[Locked, TopicPartition, Iterable[Record[Any, Any]]]]
    ) -> None:
        """Give back everything that is not done, also what a handler has at this moment.

        Args:
            polled: what Ctrl-C kept from being taken in, perhaps all of it, perhaps a part.
        """
        waiting = (task for lane in self._lanes_of_one() for task in lane.tasks)
        for task in dict.fromkeys((*self.running, *waiting)):
            self._say(task, _RELEASE)
        self._give_up(self._held)
        for fetch, _, records in polled:
            said = self.outcomes.setdefault(fetch, [])
            known = {offset for offset, _ in said}
            said += [(each.offset, _RELEASE) for each in records if each.offset not in known]

    def give_back(self, task: Task) -> None:
        """Its handler takes too long: another member may have the record."""
        work = task.work
        if work.is_gone or not isinstance(work, _Held):
            return
        self._say(task, _RELEASE)
        alone = _Held(work.partition, work.fetch)
        alone.is_gone = True
        alone.outstanding = 1
        alone.nbytes = task.nbytes
        work.outstanding -= 1
        work.nbytes -= task.nbytes
        task.work = alone

    def _give_up(self, works: Iterable[PartitionWork]) -> None:
        for work in works:
            work.is_gone = True
        for lane in self._lanes_of_one():
            self._drop_gone(lane)

    def _lanes_of_one(self) -> list[Lane]:
        return [*self._ready, *(late[2] for late in self._late)]

    def aim(self, near: int) -> None:
        """Read no more than so many ahead."""
        self._bound = min(near, self._limits.records)
        self._high = max(self._bound * 3 // 4, 1)

    def _count_out(self, tasks: Sequence[Task]) -> None:
        before = self.total
        super()._count_out(tasks)
        if self.total < self._high <= before or self.total <= self._bound // 2 < before:
            self.wants_look = True

    def stuck(self, until: int) -> Iterator[Task]:
        """Nothing holds up a queue."""
        del until
        return iter(())


class QueueDesk(Desk):
    """As `Desk`: a record that failed for good is rejected, and the others go on.

    Attributes:
        rejected: how many records were.
    """

    new_scheduler: ClassVar[type[Scheduler]] = QueueScheduler
    scheduler: QueueScheduler

    def __init__(self, *arguments: Any, policy: str) -> None:
        super().__init__(*arguments)
        self.rejected = 0
        self._policy = policy
        # What leaves the scheduler, until it is acknowledged.
        self._leaving: Outcomes = {}

    def settle(self, settle: Callable[[Outcomes], None]) -> None:
        """Acknowledge what is known, by ``settle``. By the loop, without the lock."""
        # Ctrl-C may have ended this in the midst of it.
        settle(self._leaving)
        with self.lock:
            self._leaving, self.scheduler.outcomes = self.scheduler.outcomes, {}
        settle(self._leaving)

    def _gives_up(self, task: Task, attempts: int, error: BaseException) -> None:
        if is_bad(error, task.record) and self._policy in ("raise", "release"):
            log.warning("released: %s", error)
            self._under_lock(self.scheduler.drop, task)
            if self._policy == "raise":
                self.ends_with(error)
            return
        log.warning("%s is rejected after %s: %r", place_of(task.record), plural(attempts, "attempt"), error)
        with self.lock:
            self.rejected += 1
            self.done += 1
        self._under_lock(self.scheduler.reject, task)


class QueueProcessing(Processing):
    """The loop over a queue."""

    _desk: QueueDesk

    def __init__(self, *arguments: Any, source: Source) -> None:
        super().__init__(*arguments)
        self._source = source
        settings = self._settings
        self._held = settings.workers * (1 if settings.batch is None else settings.batch[0])
        self._measured_at = self._flushed_at = self._clock.now_ms()
        self._done_then = 0
        self._rate = 0.0

    def run(self) -> Steps:
        """Process until `stop` or an error; then wait for running handlers, release the rest, and commit.

        Raises:
            The error that ended the processing.
        """
        desk, subject = self._desk, self._subject
        error: BaseException | None = None
        try:
            while not desk.is_ended and not subject.stopping:
                yield from self._turn()
        except Exception as raised:  # noqa: BLE001 - raised below, after the last commit
            error = raised
        finally:
            with desk.lock:
                desk.is_ended = True
            self._source.rest()
        yield from self._end()
        self.is_put_back = True
        error = error or desk.failure or self._woken
        if error is not None:
            raise error

    def _turn(self) -> Steps:
        desk, scheduler = self._desk, self._desk.scheduler
        now = self._clock.now_ms()
        self._flush(now)
        with desk.lock:
            scheduler.wants_look = False
            scheduler.aim(self._near(now))
            room = scheduler.room()
            due = desk.due()
            is_busy = bool(scheduler.running or scheduler.outcomes)
        wait = self._next_look(now, due) - now
        yield Poll(min(wait, _SOON_MS) if is_busy else wait, room)
        now = self._clock.now_ms()
        with desk.lock:
            for fetch, partition, records in self._source.taken:
                scheduler.take_in(fetch, partition, records, now)
            self._source.taken = ()
        self._look_after(now)

    def _near(self, now: int) -> int:
        """How many records to have: twice what the workers hold, or what they did lately in `_AHEAD_MS`."""
        took = now - self._measured_at
        if took >= _AHEAD_MS:
            done = self._desk.done
            self._rate = (done - self._done_then) / took
            self._measured_at, self._done_then = now, done
        return max(2 * self._held, int(self._rate * _AHEAD_MS))

    def _flush(self, now: int, *, at_once: bool = False) -> None:
        """Acknowledge what is known, together with what follows soon. Records whose lock is gone are forgotten."""
        if now - self._flushed_at < _SOON_MS and not at_once:
            return
        self._flushed_at = now
        desk = self._desk
        with desk.lock:
            lost = desk.scheduler.look_at_locks(now)
        desk.settle(self._source.settle)
        if lost:
            log.warning("the locks of %s are gone; they may be delivered again", plural(lost, "record"))
            desk.tell_lost()

    def _next_commit(self, now: int) -> int:
        with self._desk.lock:
            has_some = bool(self._desk.scheduler.outcomes)
        return max(now, add_ms(self._flushed_at, _SOON_MS)) if has_some else FOREVER

    def _commit_meanwhile(self) -> Steps:
        self._flush(self._clock.now_ms())
        self._source.send()
        yield from ()

    def _look_at_time(self, now: int) -> None:
        """Log records that a thread works on for longer than ``timeout``, and give them back.

        A coroutine and a process are ended by their workers, which is a failed attempt like any other.
        """
        desk, timeout = self._desk, self._settings.timeout_ms
        if timeout is None or self._settings.executor != "threads":
            return
        with desk.lock:
            late = list(desk.scheduler.overdue(now, timeout))
            for task in late:
                desk.scheduler.give_back(task)
        for task in late:
            log.warning(
                "%s takes longer than timeout=%g s (attempt %d), and is released",
                place_of(task.record),
                timeout / 1000,
                task.attempts + 1,
            )
        if late:
            desk.tell_lost()

    def _commit_at_last(self, partitions: tuple[TopicPartition, ...] | None) -> Steps:
        """Release what is not done, and wait until the brokers have every outcome."""
        yield from self.put_back()
        until = add_ms(self._clock.now_ms(), self._settings.drain_ms)
        while True:
            try:
                results = yield Commit({})
            except WakeupError as error:
                # It ends the processing, but not the commit.
                self._woken = error
                if self._clock.now_ms() < until:
                    continue
            except KafkaError as error:
                self._tell_uncommitted(error)
            else:
                for failed in filter(None, (results or {}).values()):
                    self._tell_uncommitted(failed)
            return

    def put_back(self, *, is_interrupted: bool = False) -> Steps:
        """Release all that is not done. It needs no broker."""
        del is_interrupted
        now = self._clock.now_ms()
        with self._desk.lock:
            self._desk.scheduler.look_at_locks(now)
            self._desk.scheduler.release_all(self._source.taken)
            self._source.taken = ()
        self._flush(now, at_once=True)
        self.is_put_back = True
        yield from ()
