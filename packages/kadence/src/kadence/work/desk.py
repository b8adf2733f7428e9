"""The state that the loop and the workers share, under one lock: the records under way, and their outcomes.

The loop adds polled records to the scheduler. Workers take them (`take`), run the handler, and report the outcome
(`finish`, `sends`, `fails`): the record is done, or is tried again, or is written to the retry or dead letter topic, or
ends the processing. A record whose outputs are sent counts as running until brokers have acknowledged them (H5, H7).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from kadence.client.aside import Caller, Calls
from kadence.client.repeating import Repeating
from kadence.clock import FOREVER, Clock, wait_seconds
from kadence.errors import DeadLetterError
from kadence.errors.remedies import may_pass
from kadence.forked import ThisProcess, in_children
from kadence.logs import LogLimiter, logger
from kadence.printable import plural
from kadence.records import Record
from kadence.work.letters import (
    Letter,
    ProducerRecord,
    UndecidedError,
    attempts_of,
    dead_letter,
    due_at,
    is_bad,
    is_of_all,
    place_of,
    retry_record,
    shorter,
    with_its_time,
)
from kadence.work.scheduler import Earlier, Scheduler, Task
from kadence.work.settings import Settings
from kadence.work.tracing import Tracing

__all__ = ["RESEND_MS", "Desk", "Sender"]

log = logger("kadence.work")

RESEND_MS: Final = 1_000
"""The first wait before a dead letter record or retry record that failed is sent again."""


class Sender(Protocol):
    """The part of a producer that `process` uses. `send` returns a future."""

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Any = (),
    ) -> Any: ...


class Desk:
    """All records under way.

    Args:
        sender: gives the producer, made when it is first needed.
        changed: called when the loop has something to do: there is room again, or the processing failed. Any thread.
        later: makes a call after so many seconds. caller: makes callers, one for each dead letter or retry topic.

    Attributes:
        lock: guards the attributes below. scheduler: the records that were read. failure: the error that ended the
        processing.
        is_ended: workers take no more records. is_over: the loop does not wait for running handlers, either: a record
        that fails now is redelivered, here or at another member, and is not written to the dead letter topic.
        is_waited_for: the loop waits for running handlers to end.
        nothing_comes: no record is read until some are done: ranges are read, or the limits are reached.
        finished_at: when a worker last reported handled records (ms).
        wake: wakes a worker. tell_lost: sets the flags of child processes whose partitions are revoked or lost.
        is_stopping: whether `stop` was called on the consumer; then workers take no more records.
        done, retried, dead_lettered: counts of records. failed: count of failed attempts. bad: count of records that
        were skipped because a deserialiser refused them.
        tracing: makes spans of attempts, if tracing is on.
        here: entered around each call of user code: a child process that it forks must not act as a worker (H12).
    """

    new_scheduler: ClassVar[type[Scheduler]] = Scheduler

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        wall_ms: Callable[[], int],
        group: str | None,
        sender: Callable[[], Sender],
        changed: Callable[[], None],
        later: Callable[[float, Callable[[], None]], None],
        caller: Callable[[str], Caller],
    ) -> None:
        self.here = ThisProcess()
        self.lock = threading.Lock()
        in_children(self, Desk._forked)
        self.scheduler = self.new_scheduler(
            settings.order,
            settings.limits,
            None if settings.retry.topic is None else self._earlier,
            settings.retry.topic,
        )
        self.failure: BaseException | None = None
        self.is_ended = self.is_over = False
        self.is_waited_for = False
        self.nothing_comes = False
        self.finished_at = clock.now_ms()
        self.wake: Callable[[], None] = lambda: None
        self.tell_lost: Callable[[], None] = lambda: None
        self.is_stopping: Callable[[], bool] = lambda: False
        self.tracing: Tracing | None = None
        self.done = self.failed = self.retried = self.dead_lettered = self.bad = 0
        self.clock = clock
        self._settings = settings
        self._wall_ms = wall_ms
        self._group = group
        self._sender = sender
        self._changed = changed
        self._later = later
        self._new_caller = caller
        self._callers: dict[str, Caller] = {}
        self._posting = threading.Lock()
        self._has_closed = False
        # By the process's own generator, which a simulation has set to its seed.
        self._chance = random.Random(random.getrandbits(64))
        self._filling_since = FOREVER
        self._told_unsent = LogLimiter()
        """Limits the log to one line a minute for each topic that refuses records."""
        self._unsent: dict[Task, Callable[[], None]] = {}
        """For each task whose dead letter or retry record waits to be sent again, the call that sends it."""

    def _forked(self) -> None:
        """In a forked child: a worker of the parent may have held the lock, and does not exist here."""
        self.lock = threading.Lock()

    # ------------------------------------------------------------ by workers, under the lock

    def take(self, most: int = 1) -> list[Task]:
        """The next records for a worker; [] when there are none now.

        One batch, or up to ``most`` records of as many lanes, to be handled one by one.
        """
        if self.is_ended or self.is_stopping():
            return []
        now = self.clock.now_ms()
        batch = self._settings.batch
        if batch is None:
            return self.scheduler.take_each(most, now)
        self.scheduler.look_at_due(now)
        if not self.scheduler.has_ready:
            return []
        if self._filling_since == FOREVER:
            self._filling_since = now
        until = self._filling_since + batch[1]
        if now < until and self.scheduler.ready_records(batch[0]) < batch[0] and self._may_grow(until):
            return []
        self._filling_since = FOREVER
        return self.scheduler.take_batch(batch[0], now)

    def _may_grow(self, until: int) -> bool:
        """Whether a batch may get more records before ``until``: from brokers, retries, or lanes of running records."""
        scheduler = self.scheduler
        return not self.nothing_comes or bool(scheduler.running) or scheduler.next_due() < until

    def part(self, tasks: Sequence[Task]) -> list[Task]:
        """The records of a part of a batch that may begin now, as `take`; the others are put back."""
        now = self.clock.now_ms()
        first: list[Task] = []
        if self.is_ended or self.is_stopping():
            # The records before them that failed are not tried again here.
            for task in tasks:
                self.scheduler.put_back(task, now)
        else:
            first = self.scheduler.first_of(tasks, now)
        if self.is_waited_for and len(first) < len(tasks):
            self._changed()
        return first

    def due(self) -> int:
        """When a worker must call `take` again even if no record has arrived (ms)."""
        due = self.scheduler.next_due()
        if self._settings.batch is not None and self._filling_since != FOREVER:
            due = min(due, self._filling_since + self._settings.batch[1])
        return due

    def finish(self, tasks: Sequence[Task]) -> None:
        """These records are handled, and have no outputs."""
        now = self.finished_at = self.clock.now_ms()
        scheduler = self.scheduler
        lost: set[Task] = set()
        for task in tasks:
            if task.told_lost:
                lost.add(task)
                scheduler.put_back(task, now)
        done = [task for task in tasks if task not in lost] if lost else tasks
        scheduler.done(done, now)
        self.done += len(done)
        if scheduler.wants_look or self.is_waited_for:
            scheduler.wants_look = False
            self._changed()

    # ------------------------------------------------------------ by workers, without the lock

    def gives_back(self, task: Task) -> None:
        """Put back a task that was taken and has not begun."""
        with self.lock:
            self.scheduler.put_back(task, self.clock.now_ms())
        if self.is_waited_for:
            # It may be the last one that the loop waits for.
            self._changed()

    def sends(self, tasks: Sequence[Task], outputs: Iterable[ProducerRecord]) -> None:
        """Send the handler's outputs; the records are done when all outputs are acknowledged (H7)."""
        if tasks[0].told_lost:
            self._finished(tasks)
            return
        if self._settings.takes_context:
            # A generator runs only now, and may read `Context.lost`, too.
            outputs = _unless_told(tasks, outputs)
        sending = _Sending(
            self, outputs, lambda error: self.fails(tasks, error), lambda: self._finished(tasks)
        )
        sending.start(tasks)

    def fails(self, tasks: Sequence[Task], error: BaseException) -> None:
        """An attempt failed. The number of attempts decides the outcome of each record (H5)."""
        if self.tracing is not None:
            self.tracing.failed(error)
        if tasks[0].told_lost:
            self._finished(tasks)
            return
        for task in tasks:
            self._fails(task, error)

    def _fails(self, task: Task, error: BaseException) -> None:
        settings, record, now = self._settings, task.record, self.clock.now_ms()
        attempts = task.attempts + 1
        retry = settings.retry
        is_undecided = isinstance(error, UndecidedError)
        is_refused = is_bad(error, record)
        if is_undecided and error.__cause__ is not None:
            error = error.__cause__
        with self.lock:
            self.failed += not self.is_over
        if task.is_lost:
            self._under_lock(self.scheduler.drop, task)
        elif self.is_over:
            log.info(
                "%s failed after the processing had ended; it will be redelivered: %r",
                place_of(record),
                error,
            )
            self._under_lock(self.scheduler.drop, task)
        elif is_of_all(error):
            self._end_with(task, error)
        elif is_refused and settings.skips_bad:
            log.warning("skipped: %s", error)
            with self.lock:
                self.bad += 1
            self._passes_over(task)
        elif not is_refused and retry.allows(attempts, error):
            wait = retry.wait_ms(attempts, self._chance)
            log.info(
                "attempt %d of %s failed; next attempt in %.1f s: %r",
                attempts,
                place_of(record),
                wait / 1000,
                error,
            )
            if retry.topic is None:
                self._under_lock(self.scheduler.again, task, now + wait)
            else:
                wall = self._wall_ms()
                again = retry_record(record, retry.topic, error, attempts, wall + wait, wall)
                instead = None if is_undecided else self._dead_letter(task, error, attempts)
                self._letter(task, Letter.of(again, "retried", error, instead))
        elif not is_undecided and (letter := self._dead_letter(task, error, attempts)) is not None:
            log.warning(
                "%s goes to the dead letter topic after %s: %r",
                place_of(record),
                plural(attempts, "attempt"),
                error,
            )
            self._letter(task, letter)
        elif is_undecided:
            self._ends_after(task, attempts, error)
        else:
            self._gives_up(task, attempts, error)

    def _gives_up(self, task: Task, attempts: int, error: BaseException) -> None:
        """All attempts failed, and there is no dead letter topic."""
        self._ends_after(task, attempts, error)

    def _ends_after(self, task: Task, attempts: int, error: BaseException) -> None:
        log.error(
            "%s failed after %s; process() ends: %r",
            place_of(task.record),
            plural(attempts, "attempt"),
            error,
        )
        self._end_with(task, error)

    def _end_with(self, task: Task, error: BaseException) -> None:
        """End the processing with this error. The record is not done, and no other record begins."""
        with self.lock:
            # In one step: the next record of its key is first in its lane now, and must not begin.
            self.is_ended = True
            self.scheduler.drop(task, self.clock.now_ms())
        self.ends_with(error)

    def ends_with(self, error: BaseException) -> None:
        """No further record begins, and `process` raises the first such error."""
        with self.lock:
            if self.is_over:
                return
            self.failure = self.failure or error
            self.is_ended = True
        self._changed()

    def _dead_letter(self, task: Task, error: BaseException, attempts: int) -> Letter | None:
        """The dead letter record of a record; None without a dead letter topic."""
        settings = self._settings
        topic = settings.bad_letter if is_bad(error, task.record) else settings.dead_letter
        if topic is None:
            return None
        wall = self._wall_ms()
        first = wall - (self.clock.now_ms() - task.first_at)
        letter = dead_letter(
            task.record, topic, error, attempts, first, wall, self._group, self._settings.retry.topic
        )
        return Letter.of(letter, "dead_lettered", error)

    def _passes_over(self, task: Task) -> None:
        """The record is done: a deserialiser refused it, and the consumer skips such records."""
        self._finished([task])

    def _letter(self, task: Task, letter: Letter) -> None:
        """Send a dead letter or retry record until it is acknowledged: it must not be lost. Then the task is done."""
        task.is_sent = True
        repeating = Repeating(RESEND_MS, self._told_unsent)

        def sent() -> None:
            with self.lock:
                setattr(self, letter.counter, getattr(self, letter.counter) + 1)
            self._finished([task])

        def unsent(error: BaseException) -> None:
            # Once the processing is over the producer is closed, so the error is not about this record.
            instead = None if self.is_over else self._instead(task, letter, error)
            if isinstance(instead, Letter):
                self._letter(task, instead)
                return
            now = self.clock.now_ms()
            with self.lock:
                is_given_up = self.is_ended or task.is_lost
                is_over = self.is_over
                if is_given_up:
                    self.scheduler.drop(task, now)
                elif instead is None:
                    again = repeating.failed(now, letter.topic)
                    self._unsent[task] = post
            if is_given_up:
                if not is_over:
                    log.info(
                        "%s was not written to %s; it will be redelivered: %s",
                        place_of(task.record),
                        letter.topic,
                        error,
                    )
                self._changed()
            elif instead is not None:
                self._end_with(task, instead)
            else:
                self._say_unsent(again.level, task, letter.topic, error)
                self._later(wait_seconds(again.at, now) or 0.0, lambda: self._again(task, post))

        def post() -> None:
            self._post(letter.topic, _Sending(self, [letter], unsent, sent))

        post()

    def _again(self, task: Task, post: Callable[[], None]) -> None:
        """Send a dead letter or retry record again, unless `hurry` has done so."""
        with self.lock:
            if self._unsent.get(task) is not post:
                return
            del self._unsent[task]
        post()

    def hurry(self) -> None:
        """Send waiting dead letter and retry records now: their partitions go, or the processing ends."""
        with self.lock:
            waiting = list(self._unsent.items())
        for task, post in waiting:
            self._again(task, post)

    def _post(self, topic: str, sending: _Sending) -> None:
        """Send on the topic's own caller: the producer blocks while a topic is missing, and workers must not block."""
        start = partial(copy_context().run, sending.start)

        def calls() -> Calls:
            yield start

        with self._posting:
            if self._has_closed:
                return
            caller = self._callers.get(topic)
            if caller is None:
                caller = self._callers[topic] = self._new_caller(f"kadence-work-{topic}")
            caller.carry(calls())

    def close(self) -> None:
        """The processing and its producer have ended. No more dead letter or retry records are sent."""
        with self._posting:
            self._has_closed = True
            for caller in self._callers.values():
                caller.end()

    def _instead(self, task: Task, letter: Letter, error: BaseException) -> Letter | BaseException | None:
        """The replacement of a dead letter or retry record that brokers refused.

        Returns:
            Another record, which is written; or the error that ends the processing, because the topic can never take
            the record; or None: the error may pass, and the same record is sent again.
        """
        place = place_of(task.record)
        if may_pass(error):
            return None
        if letter.counter == "retried":
            log.warning("%s cannot be written to %s; it is not retried: %s", place, letter.topic, error)
            return letter.instead or letter.error
        if (found := shorter(letter, error)) is not None:
            log.warning("%s", found.said(task.record, error))
            return found.letter
        refused = DeadLetterError(
            f"{place} failed with {type(letter.error).__name__}, and its dead letter record cannot be written to "
            f"{letter.topic!r}: {error}"
        )
        refused.__cause__ = error
        return refused

    def _say_unsent(self, level: int, task: Task, topic: str, error: BaseException) -> None:
        """Log one unwritten record of each topic, once a minute; each is sent again until it is acknowledged."""
        log.log(
            level,
            "%s is not written to %s yet; all records for this topic are sent again until they are: %s",
            place_of(task.record),
            topic,
            error,
        )

    def _finished(self, tasks: Sequence[Task]) -> None:
        with self.lock:
            self.finish(tasks)
            has_ready = self.scheduler.has_ready
        if has_ready:
            # An acknowledgement ended these, not a worker, so no worker would look for the next records.
            self.wake()

    def _under_lock(self, call: Callable[..., None], task: Task, *arguments: int) -> None:
        with self.lock:
            call(task, *arguments, self.clock.now_ms())
        self._changed()

    def _earlier(self, record: Record[Any, Any], now: int) -> Earlier:
        """The earlier attempts and the due time (monotonic clock of this machine) of a record of the retry topic."""
        if self._settings.retry.topic != record.topic:
            return Earlier(record, 0, 0)
        wait = max(due_at(record) - self._wall_ms(), 0)
        # The header may come from any program that writes to the topic, so the policy's longest wait bounds it.
        due = now + int(min(wait, self._settings.retry.max_backoff * 1000))
        return Earlier(with_its_time(record), attempts_of(record), due)

    @property
    def sender(self) -> Sender:
        """The producer."""
        return self._sender()


class _Sending:
    """Records that are being sent: ``done`` runs when all are acknowledged, else ``failed`` with the first error.

    ``failed`` runs in the context in which this was made: records that it sends belong to the same trace.
    """

    __slots__ = ("_context", "_desk", "_done", "_error", "_failed", "_left", "_lock", "_outputs")

    def __init__(
        self,
        desk: Desk,
        outputs: Iterable[ProducerRecord],
        failed: Callable[[BaseException], None],
        done: Callable[[], None],
    ) -> None:
        self._context = copy_context()
        self._desk = desk
        self._outputs = outputs
        self._failed = failed
        self._done = done
        self._error: BaseException | None = None
        self._left = 1
        self._lock = threading.Lock()

    def start(self, tasks: Sequence[Task] = ()) -> None:
        """Send them. ``tasks``: whose outputs they are."""
        try:
            # A generator of outputs is user code, and so are serialisers and partitioner.
            with self._desk.here:
                sender = self._desk.sender
                for output in self._outputs:
                    future = sender.send(
                        output.topic,
                        output.value,
                        output.key,
                        partition=output.partition,
                        timestamp=output.timestamp,
                        headers=output.headers,
                    )
                    with self._lock:
                        self._left += 1
                    future.add_done_callback(self._acknowledged)
        # A generator may raise anything, and its record would never be done.
        except BaseException as error:  # noqa: BLE001 - a failed attempt, whatever it was
            self._error = self._error or error
        for task in tasks:
            # Before the last of them counts: a task that failed may begin again at once.
            task.is_sent = True
        self._count()

    def _acknowledged(self, future: Any) -> None:
        error = future.exception()
        if error is not None:
            self._error = self._error or error
        self._count()

    def _count(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        if self._error is None:
            self._done()
        else:
            self._context.run(self._failed, self._error)


def _unless_told(tasks: Sequence[Task], outputs: Iterable[ProducerRecord]) -> Iterator[ProducerRecord]:
    """The outputs that a generator yields before it reads `Context.lost` as True. The generator runs to its end."""
    for output in outputs:
        if not tasks[0].told_lost:
            yield output
