"""Drives the loop of `process` on a consumer: on the calling thread, or on the consumer's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.client.aside import Aside
from kadence.clock import Clock, wait_seconds
from kadence.errors import ClosedError, ConfigError, KafkaError
from kadence.logs import logger
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition
from kadence.work.desk import Desk, Sender
from kadence.work.listeners import AsyncListener, Listener
from kadence.work.meters import Totals
from kadence.work.positions import Reading
from kadence.work.processes import Children
from kadence.work.processing import Processing
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
from kadence.work.tracing import Tracing
from kadence.work.workers import Decode, LoopWorkers, ThreadWorkers, Workers, plain_call

if TYPE_CHECKING:
    from kadence.work.queue import Source

__all__ = ["Insides", "process_on_loop", "process_on_threads"]

log = logger("kadence.work")

_IN_A_HURRY: Final = 1.0
"""The timeout of the producer's close when nothing waits for its unsent records (seconds)."""

_CLEANING_S: Final = 1.0
"""The time that cancelled coroutines have for cleaning up when their loop ends (seconds)."""


class Insides(Reading, Protocol):
    """The methods and attributes of a consumer, beyond its public calls, that `process` needs.

    Attributes:
        clock: its clock. group: its group.id. commit_ms: auto.commit.interval.ms. max_poll_ms: max.poll.interval.ms.
        listener: the application's own.
        topics: what it is subscribed to by name; None with a pattern, or an assignment by hand.
        is_stopping: returns whether `stop` was called; called for each record.
        aside: makes calls that may block. reads_committed: whether isolation.level is read_committed.
        tracing: makes spans of attempts, if tracing is on.
        queue: of a share consumer, its records and their outcomes; None: it is a consumer.
    """

    @property
    def queue(self) -> Source | None: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def group(self) -> str | None: ...
    @property
    def commit_ms(self) -> int: ...
    @property
    def max_poll_ms(self) -> int: ...
    @property
    def is_stopping(self) -> Callable[[], bool]: ...
    @property
    def listener(self) -> Any: ...
    @property
    def topics(self) -> frozenset[str] | None: ...
    @property
    def aside(self) -> Aside: ...
    @property
    def tracing(self) -> Tracing | None: ...
    def listen(self, listener: Any, topics: frozenset[str] | None) -> Any:
        """Call this rebalance listener from now on, and subscribe to ``topics`` if given. Awaited under asyncio."""

    def unlisten(self, listener: Any) -> Any:
        """Undo `listen`: call this listener again, and restore the subscription. Awaited under asyncio."""

    def read_from_start(self, topic: str) -> None:
        """Read this topic from its beginning wherever it has no valid position, whatever auto.offset.reset says."""

    def partitions_of(self, topic: str) -> Any:
        """The partitions of a topic. Waits while brokers are away; None if `stop` is called. Awaited under asyncio."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether this topic is subscribed to, by its name or by a pattern that the consumer matches itself."""

    def wall_ms(self) -> int: ...
    def new_decode(self) -> Decode | None: ...
    @property
    def reads_committed(self) -> bool: ...
    def new_producer(self, transactional_id: str | None = None) -> Any: ...
    def waits_end(self) -> int:
        """The time (ms) until which calls may wait for brokers: FOREVER without a grace period of ``stop``."""

    def renew_identity(self) -> bool:
        """Update `group_metadata` to the present identity, as a poll does. False: a poll must report a loss first."""

    def seek(self, partition: TopicPartition, at: OffsetAndMetadata, *, is_committed: bool) -> Any:
        """As the consumer's; ``is_committed``: ``at`` is committed with this metadata. Awaited under asyncio."""

    def commit(self, read: Mapping[TopicPartition, ReadOffset]) -> Any:
        """Commit the offsets whose fetch epoch is still current, and wait. Awaited under asyncio."""

    def hear(self) -> Any:
        """Run the callbacks of `commit_async` whose commits have ended. Awaited under asyncio."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`. The application's own pauses are independent of it."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`. `end` resumes all partitions."""

    def refresh_metadata(self) -> None:
        """Request a metadata update, without waiting."""

    def nudge(self) -> None: ...
    def begin(self, desk: Desk, workers: int) -> None: ...
    def end(
        self, listener: Any, committed: Mapping[TopicPartition, ReadOffset], *, is_put_back: bool
    ) -> Totals: ...
    def abandon(self) -> None: ...


class _Producer:
    """The producer of outputs, dead letter records and retry records, made when first needed."""

    def __init__(self, make: Callable[[], Any], tracing: Tracing | None) -> None:
        self._make = make
        self._tracing = tracing
        self._lock = threading.Lock()
        self._is_closed = False
        self._made: Any = None

    def get(self) -> Sender:
        """The producer.

        Raises:
            ClosedError: the processing has ended; outputs of handlers are not sent any more.
        """
        if self._made is None:
            with self._lock:
                if self._is_closed:
                    raise ClosedError("process() has ended")
                if self._made is None:
                    self._made = _traced(self._make, self._tracing)
        return self._made  # type: ignore[no-any-return]

    def close(self, timeout: float | None) -> None:
        with self._lock:
            self._is_closed = True
        if self._made is not None:
            self._made.close(timeout)


def _traced(make: Callable[..., Any], tracing: Tracing | None, *arguments: Any) -> Any:
    """Make a producer, and register it with the tracing, if any."""
    made = make(*arguments)
    if tracing is not None:
        tracing.follow(made)
    return made


class _Work:
    """The desk, loop, workers and producer of one call of `process`, for both drivers."""

    def __init__(
        self, consumer: Any, inside: Insides, settings: Settings, changed: Callable[[], None]
    ) -> None:
        self.tracing = inside.tracing
        self.producer = _Producer(inside.new_producer, self.tracing)
        shared = (
            settings,
            inside.clock,
            inside.wall_ms,
            inside.group,
            self.producer.get,
            changed,
            inside.aside.later,
            inside.aside.caller,
        )
        self.workers: Workers | None = None
        self.children: Children | None = None
        self.desk: Desk
        self.processing: Processing
        if inside.queue is not None:
            # Imported here: most programs have no queue.
            from kadence.work.queue import QueueDesk, QueueProcessing

            queue_desk = self.desk = QueueDesk(*shared, policy=inside.queue.policy)
            self.processing = QueueProcessing(
                settings, queue_desk, *self._around(consumer, inside), source=inside.queue
            )
            self.close = self._close_producer
        elif settings.transactional_id is None:
            self.desk = Desk(*shared)
            self.processing = Processing(settings, self.desk, *self._around(consumer, inside))
            self.close = self._close_producer
        else:
            # Imported here: most programs do not use transactions.
            from kadence.work.transactional import TransactionalDesk, TransactionalProcessing

            _check_transactions(inside)
            make = functools.partial(_traced, inside.new_producer, self.tracing, settings.transactional_id)
            desk = self.desk = TransactionalDesk(*shared)
            processing = TransactionalProcessing(
                settings,
                desk,
                *self._around(consumer, inside),
                make=make,
                changed=changed,
                caller=inside.aside.caller("kadence-work-transactions"),
                renew=inside.renew_identity,
                waits_end=inside.waits_end,
                refresh=inside.refresh_metadata,
            )
            self.processing = processing
            self.close = processing.transactions.close
        self.desk.tracing = self.tracing
        self.desk.is_stopping = inside.is_stopping
        self.desk.wake = self._wake

    def _around(self, consumer: Any, inside: Insides) -> tuple[Any, ...]:
        """The arguments of `Processing` after the desk."""
        return (
            consumer,
            inside,
            inside,
            inside.clock,
            self._wake,
            self._look,
            inside.group is not None,
            inside.commit_ms,
        )

    def _wake(self) -> None:
        if self.workers is not None:
            self.workers.wake()

    def _look(self, now: int, *, at_once: bool = False) -> bool:
        return self.workers is not None and self.workers.look(now, at_once=at_once)

    def off_the_loop(self, inside: Insides, settings: Settings) -> None:
        """Make workers for plain functions: threads, or processes, each with a thread of this process."""
        if settings.executor == "processes":
            self.children = Children(settings, inside.new_decode, inside.max_poll_ms, self.tracing)
            self.desk.tell_lost = self.children.tell_lost
            new_call = self.children.new_call
        else:
            new_call = lambda: plain_call(settings, inside.new_decode())  # noqa: E731 - the twin of the method above
        self.workers = ThreadWorkers(self.desk, settings, new_call)

    def _close_producer(self) -> None:
        """Close the producer; within a second if handlers still run: `drain` is over, their records are redelivered."""
        with self.desk.lock:
            is_waited_for = not self.desk.scheduler.running
        self.producer.close(None if is_waited_for else _IN_A_HURRY)
        self.desk.close()

    def end(self) -> None:
        """End the workers, the tracing and the child processes."""
        with self.desk.lock:
            self.desk.is_ended = self.desk.is_over = True
        if self.workers is not None:
            self.workers.end()
        if self.tracing is not None:
            with self.desk.lock:
                running = frozenset(self.desk.scheduler.running)
            self.tracing.end(running)
        if self.children is not None:
            self.children.end()


def process_on_threads(consumer: Any, inside: Insides, settings: Settings) -> Totals:
    """`Consumer.process`."""
    _check_dead_letter(inside, settings)
    topics = _with_retries(inside, settings)
    event = threading.Event()

    def changed() -> None:
        event.set()
        inside.nudge()

    work = _Work(consumer, inside, settings, changed)

    def carry(steps: Steps) -> None:
        def do(step: Step) -> Any:
            if isinstance(step, PartitionsOf):
                return inside.partitions_of(step.topic)
            if not isinstance(step, Idle):
                return _asked(consumer, inside, step)
            event.wait(wait_seconds(step.until, inside.clock.now_ms()))
            event.clear()
            return None

        try:
            step = next(steps)
            while True:
                try:
                    result = do(step)
                except Exception as error:
                    if work.desk.here.is_left:
                        # A callback has forked, and this is the child, which does not carry on the work.
                        raise
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            return
        finally:
            steps.close()

    loop: _LoopThread | None = None
    theirs = inside.listener
    totals = Totals()

    # Before the subscription changes: a refused call must leave it as it was.
    carry(work.processing.check_topics())
    inside.begin(work.desk, settings.workers)
    try:
        if settings.executor == "loop":
            loop = _LoopThread()
            work.workers = LoopWorkers(work.desk, settings, inside.new_decode(), loop.loop, inside.aside)
        else:
            work.off_the_loop(inside, settings)
        inside.listen(Listener(work.processing, carry, theirs), topics)
        carry(work.processing.run())
    finally:
        if not work.desk.here.is_left:
            totals = _ended(work, inside, carry, theirs, is_wider=topics is not None)
            if loop is not None:
                loop.end()
            work.close()
    return totals


def _ended(
    work: _Work, inside: Insides, carry: Callable[[Steps], None], theirs: Any, *, is_wider: bool
) -> Totals:
    """Restore the consumer. ``is_wider``: `process` has added the retry topic to its subscription."""
    work.end()
    if not work.processing.is_put_back:
        # Ctrl-C. Records done since the last commit are redelivered.
        with contextlib.suppress(KafkaError):
            carry(work.processing.put_back(is_interrupted=True))
    if is_wider:
        with contextlib.suppress(KafkaError):
            inside.unlisten(theirs)
    return inside.end(theirs, work.processing.committed, is_put_back=work.processing.is_put_back)


async def process_on_loop(consumer: Any, inside: Insides, settings: Settings) -> Totals:
    """`AsyncConsumer.process`."""
    _check_dead_letter(inside, settings)
    topics = _with_retries(inside, settings)
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def changed() -> None:
        loop.call_soon_threadsafe(event.set)
        inside.nudge()

    work = _Work(consumer, inside, settings, changed)

    async def carry(steps: Steps) -> None:
        async def do(step: Step) -> Any:
            if isinstance(step, PartitionsOf):
                return await inside.partitions_of(step.topic)
            if not isinstance(step, Idle):
                return await _asked(consumer, inside, step)
            try:
                async with asyncio.timeout(wait_seconds(step.until, inside.clock.now_ms())):
                    await event.wait()
            except TimeoutError:
                pass
            event.clear()
            return None

        try:
            step = next(steps)
            while True:
                try:
                    result = await do(step)
                except Exception as error:
                    if work.desk.here.is_left:
                        # As above.
                        raise
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            return
        finally:
            steps.close()

    theirs = inside.listener
    totals = Totals()

    # As above.
    await carry(work.processing.check_topics())
    inside.begin(work.desk, settings.workers)
    try:
        if settings.executor == "loop":
            work.workers = LoopWorkers(work.desk, settings, inside.new_decode(), loop, inside.aside)
        else:
            work.off_the_loop(inside, settings)
        await inside.listen(AsyncListener(work.processing, carry, theirs), topics)
        await carry(work.processing.run())
    finally:
        if not work.desk.here.is_left:
            totals = await _ended_on_loop(work, inside, carry, theirs, is_wider=topics is not None)
    return totals


async def _ended_on_loop(
    work: _Work, inside: Insides, carry: Callable[[Steps], Any], theirs: Any, *, is_wider: bool
) -> Totals:
    """As `_ended`."""
    work.end()
    if isinstance(work.workers, LoopWorkers):
        # Handlers that outlasted `drain`, or all if the task was cancelled. Their records are redelivered.
        work.workers.cancel()
    try:
        if not work.processing.is_put_back:
            # The task was cancelled. Records done since the last commit are redelivered.
            with contextlib.suppress(KafkaError):
                await _to_its_end(carry(work.processing.put_back(is_interrupted=True)))
    finally:
        try:
            if is_wider:
                with contextlib.suppress(KafkaError):
                    await _to_its_end(inside.unlisten(theirs))
        finally:
            totals = inside.end(theirs, work.processing.committed, is_put_back=work.processing.is_put_back)
            await _to_its_end(inside.aside.call(work.close))
    return totals


async def _to_its_end(call: Coroutine[Any, Any, None]) -> None:
    """Await this to its end even if the task is cancelled meanwhile, or repeatedly, as anyio does."""
    task = asyncio.create_task(call)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            # Marks the exception as retrieved, so that asyncio does not log it.
            task.exception()
        raise cancelled
    task.result()


def _asked(
    consumer: Any, inside: Insides, step: Poll | Commit | Hear | Committed | Seek | SeekToStart
) -> Any:
    """Carry out a step. Returns the consumer's result, which is an awaitable under asyncio."""
    if isinstance(step, Poll):
        if inside.queue is not None:
            return inside.queue.poll(step.ms, step.max_records)
        return consumer.poll(step.ms / 1000, max_records=step.max_records)
    if isinstance(step, Commit):
        return inside.commit(step.offsets)
    if isinstance(step, Hear):
        return inside.hear()
    if isinstance(step, Committed):
        return consumer.committed(step.partitions)
    if isinstance(step, SeekToStart):
        return consumer.seek_to_beginning(step.partitions)
    return inside.seek(step.partition, step.at, is_committed=step.is_committed)


def _with_retries(inside: Insides, settings: Settings) -> frozenset[str] | None:
    """The topics to subscribe to so that the retry topic is read; None: it is read already, or there is none."""
    topic = settings.retry.topic
    if topic is None:
        return None
    if inside.topics is None:
        raise ConfigError(
            f"Retry(topic={topic!r}) needs a subscription by names, to which this topic is added; this consumer has a "
            "pattern or partitions by assign()"
        )
    # Before the subscription. The retry topic holds the only copy of its records: their originals are done.
    inside.read_from_start(topic)
    return None if topic in inside.topics else inside.topics | {topic}


def _check_dead_letter(inside: Insides, settings: Settings) -> None:
    """Refuse a dead letter topic that the consumer reads: its records would fail and be written again without end."""
    topic = settings.dead_letter
    if topic is not None and inside.subscribes_to(topic):
        later = "Retry(topic=...)" if inside.queue is None else "Retry(attempts=..., backoff=...)"
        raise ConfigError(
            f"dead_letter={topic!r} is among the topics that this consumer subscribes to: a record that fails would "
            f"be read again from there, without end; for later attempts use {later}"
        )


def _check_transactions(inside: Insides) -> None:
    """Check the consumer settings that exactly-once processing depends on."""
    if inside.group is None:
        raise ConfigError(
            "transactional_id needs a group.id: the group's offsets are part of the transactions"
        )
    if not inside.reads_committed:
        raise ConfigError(
            "transactional_id needs isolation.level=read_committed: otherwise records of transactions that are aborted "
            "would be handled, and their outputs committed"
        )


class _LoopThread:
    """An event loop on a thread of its own, for coroutine functions of a `Consumer`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        try:
            self._thread = threading.Thread(target=self._run, name="kadence-work-loop", daemon=True)
            self._thread.start()
        except BaseException:
            # Ctrl-C, or the system cannot start a thread.
            self.loop.close()
            raise

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(self._clean_up())
        finally:
            self.loop.close()

    async def _clean_up(self) -> None:
        this = {asyncio.current_task()}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLEANING_S):
                while tasks := asyncio.all_tasks() - this:
                    await asyncio.wait(tasks)
                    # In each round: generators are only finalised when the tasks that iterate over them have ended.
                    await self.loop.shutdown_asyncgens()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(2 * _CLEANING_S)
        if self._thread.is_alive():
            log.warning("gave up waiting for a coroutine that blocks the event loop of handlers")
