"""The workers that run handlers: threads, tasks of an event loop, or processes (H2).

A worker takes records from the desk, runs the handler, and reports the outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from types import AsyncGeneratorType
from typing import Any, Final, Protocol

from kadence.client.aside import Aside
from kadence.clock import FOREVER
from kadence.deserializers import converts_on_loop
from kadence.errors import ConfigError, HandlerTimeoutError, RecordDeserializationError, SchemaRegistryError
from kadence.errors.local import AnswerPendingError
from kadence.forked import FORKS
from kadence.records import Record
from kadence.work.context import Context
from kadence.work.desk import Desk
from kadence.work.letters import ProducerRecord, ResultError, UndecidedError, is_of_all
from kadence.work.scheduler import Task
from kadence.work.settings import Settings
from kadence.work.turns import LoopTurns

__all__ = ["Call", "LoopWorkers", "ThreadWorkers", "Workers", "given_to", "plain_call"]

Decode = Callable[[Record[Any, Any]], Record[Any, Any]]
"""Deserialises key and value of a record; raises the deserialiser's error."""

_MOST_AT_ONCE: Final = 32
"""The most records that a thread takes at once."""

_AT_ONCE_MS: Final = 5
"""After so long a thread's records that have not begun are put back."""

Call = Callable[[Sequence[Task]], "Iterable[ProducerRecord] | None"]
"""Runs the handler with a worker's records. Returns the outputs."""


class Workers(Protocol):
    """The workers of one call of `process`."""

    def wake(self) -> None:
        """There are records to handle: wake a worker, which wakes the next one if there are more. Any thread."""
        ...

    def look(self, now: int, *, at_once: bool = False) -> bool:
        """Report a slow worker's done records to the desk, and put back its records that have not begun.

        Args:
            at_once: also for workers that took their records only a moment ago.

        Returns:
            Whether this is to be called again soon.
        """
        ...

    def end(self) -> None:
        """Take no more records; running handlers go on. Does not block."""
        ...


def plain_call(settings: Settings, decode: Decode | None) -> Call:
    """The handler, called on a worker's own thread."""
    handler, takes_context = settings.handler, settings.takes_context

    def in_batch(tasks: Sequence[Task]) -> Iterable[ProducerRecord] | None:
        records = given_to(settings, tasks, decode)
        return outputs_of(handler(records, Context(tasks)) if takes_context else handler(records))

    def alone(tasks: Sequence[Task]) -> Iterable[ProducerRecord] | None:
        record = tasks[0].record if decode is None else _decoded(decode, tasks[0].record)
        result = handler(record, Context(tasks)) if takes_context else handler(record)
        return None if result is None else outputs_of(result)

    return alone if settings.batch is None else in_batch


def given_to(settings: Settings, tasks: Sequence[Task], decode: Decode | None) -> Any:
    """The first argument of a handler: its records, or a table of their bytes.

    Raises:
        _RefusedError: a deserialiser refused some of them.
    """
    if settings.as_arrow:
        # pyarrow is an extra.
        from kadence.records.arrow import of_records

        return of_records([task.record for task in tasks])
    if decode is None:
        return [task.record for task in tasks]
    records: list[Record[Any, Any]] = []
    refused: dict[Task, RecordDeserializationError] = {}
    for task in tasks:
        try:
            records.append(_decoded(decode, task.record))
        except RecordDeserializationError as error:
            refused[task] = error
    if refused:
        raise _RefusedError(refused) from next(iter(refused.values()))
    return records


class _RefusedError(Exception):
    """A deserialiser refused some records of a batch; the others form another batch."""

    def __init__(self, refused: dict[Task, RecordDeserializationError]) -> None:
        super().__init__(f"{len(refused)} records cannot be decoded")
        self.refused = refused


def _decoded(decode: Decode, record: Record[Any, Any]) -> Record[Any, Any]:
    try:
        return decode(record)
    except (SchemaRegistryError, ConfigError) as error:
        raise UndecidedError from error


def outputs_of(result: Any) -> Iterable[ProducerRecord] | None:
    """A handler's result, as records to be sent.

    Raises:
        ResultError: the result is something else.
    """
    if result is None:
        return None
    if isinstance(result, ProducerRecord):
        return (result,)
    if isinstance(result, (list, tuple)) or inspect.isgenerator(result):
        return _checked(result)
    raise ResultError(
        "a handler returns None, ProducerRecords (one, a list or tuple of them, or a generator), not "
        f"{type(result).__name__}"
    )


def _checked(results: Iterable[Any]) -> Iterator[ProducerRecord]:
    for each in results:
        if not isinstance(each, ProducerRecord):
            raise ResultError(f"a handler returns or yields ProducerRecords, not {type(each).__name__}")
        yield each


class _Hand:
    """The records of one thread. Another thread may remove some: each change is one atomic operation of a container.

    Attributes:
        held: records that have not begun. done: records that are done, but not reported to the desk yet; they are
            removed under the desk's lock.
        since: when the thread took them (ms); FOREVER while it has none.
    """

    __slots__ = ("done", "held", "since")

    def __init__(self) -> None:
        self.held: deque[Task] = deque()
        self.done: list[Task] = []
        self.since = FOREVER


class ThreadWorkers:
    """Threads, started as they are needed.

    A thread whose handler is quick takes several records at once, so that it locks less often. If one of them is slow,
    `look` puts the others back.

    Args:
        new_call: makes the function that runs the handler; called on each thread.
    """

    def __init__(self, desk: Desk, settings: Settings, new_call: Callable[[], Call]) -> None:
        self._desk = desk
        self._count = settings.workers
        self._most = 1 if settings.batch is not None else _MOST_AT_ONCE
        self._new_call = new_call
        self._halves = settings.halves
        self._attempt = self._works if desk.tracing is None else self._traced
        self._idle = 0
        self._is_waking = False
        self._hands: list[_Hand] = []
        self._work_is_there = threading.Condition(desk.lock)

    def wake(self) -> None:
        with self._desk.lock:
            self._wake()

    def _wake(self) -> None:
        """Wake or start one more thread, which wakes the next one if there are more records.

        So quick handlers run in few threads. Waking many threads that find no record costs more than the handlers do.
        """
        if self._is_waking:
            return
        if self._idle:
            self._work_is_there.notify()
            self._is_waking = True
        elif len(self._hands) < self._count:
            hand = _Hand()
            name = f"kadence-work-{len(self._hands) + 1}"
            threading.Thread(target=self._run, args=(hand,), name=name, daemon=True).start()
            self._hands.append(hand)
            self._is_waking = True

    def look(self, now: int, *, at_once: bool = False) -> bool:
        """Put back records that a thread took long ago and has not begun. Returns whether any thread holds several."""
        several = False
        for hand in self._hands:
            if not (hand.held or hand.done):
                continue
            several = True
            if now - hand.since < _AT_ONCE_MS and not at_once:
                continue
            with self._desk.lock:
                self._report(hand)
                for task in _all_of(hand.held):
                    self._desk.scheduler.put_back(task, now)
                self._wake()
        return several

    def end(self) -> None:
        with self._desk.lock:
            self._work_is_there.notify_all()

    def _run(self, hand: _Hand) -> None:
        try:
            self._turns(hand, self._new_call())
        except BaseException as error:  # noqa: BLE001 - otherwise the loop would wait for this worker for ever
            self._desk.ends_with(error)

    def _turns(self, hand: _Hand, call: Call) -> None:
        clock = self._desk.clock
        most, is_new = 1, True
        while (tasks := self._taken(hand, most, is_new)) is not None:
            is_new = False
            if self._most == 1:
                if self._attempt(call, tasks):
                    hand.done.extend(tasks)
                continue
            hand.since = began = clock.now_ms()
            hand.held.extend(tasks)
            self._one_by_one(hand, call)
            most = min(most * 2, self._most) if clock.now_ms() - began <= 1 else 1

    def _taken(self, hand: _Hand, most: int, is_woken: bool) -> list[Task] | None:
        """Wait for up to ``most`` records; None: the processing has ended.

        Args:
            is_woken: whether `_wake` has started or woken this thread.
        """
        desk = self._desk
        with desk.lock:
            hand.since = FOREVER
            self._report(hand)
            while not (tasks := desk.take(most)):
                if desk.is_ended:
                    return None
                if is_woken:
                    self._is_waking = False
                self._idle += 1
                self._work_is_there.wait()
                self._idle -= 1
                is_woken = True
            if is_woken:
                self._is_waking = False
            if desk.scheduler.has_ready:
                self._wake()
        return tasks

    def _report(self, hand: _Hand) -> None:
        """Report the thread's done records to the desk. Under its lock; the thread may add more meanwhile."""
        if done := hand.done[:]:
            del hand.done[: len(done)]
            self._desk.finish(done)

    def _one_by_one(self, hand: _Hand, call: Call) -> None:
        desk, held, attempt = self._desk, hand.held, self._attempt
        next_one, is_done = held.popleft, hand.done.append
        while held:
            try:
                task = next_one()
            except IndexError:
                # `look` has put it back in between.
                return
            if task.work.is_gone or desk.is_ended or desk.is_stopping():
                desk.gives_back(task)
            elif attempt(call, (task,)):
                is_done(task)

    def _traced(self, call: Call, tasks: Sequence[Task]) -> bool:
        assert self._desk.tracing is not None
        with self._desk.tracing.attempt(tasks):
            return self._works(call, tasks)

    def _works(self, call: Call, tasks: Sequence[Task]) -> bool:
        """Run the handler. Returns whether the records are done by that alone."""
        # Not entered as a context manager, which is slower.
        here = self._desk.here
        try:
            outputs = call(tasks)
            if self._halves and outputs is not None:
                # A generator is part of the attempt: run it here, so that the batch is halved if it raises.
                outputs = list(outputs)
            if FORKS.count != here.fork:
                here.check(None)
        except _RefusedError as error:
            here.check(error)
            for task, problem in error.refused.items():
                self._desk.fails((task,), problem)
            self._work_on([[task for task in tasks if task not in error.refused]], call)
            return False
        # Also SystemExit, and a panic of Rust: if they ended the thread, its record would never be done.
        except BaseException as error:  # noqa: BLE001 - a failed attempt, whatever it was
            here.check(error)
            if self._halves and len(tasks) > 1 and not (is_of_all(error) or tasks[0].told_lost):
                if self._desk.tracing is not None:
                    self._desk.tracing.failed(error)
                middle = len(tasks) // 2
                self._work_on((tasks[:middle], tasks[middle:]), call)
            else:
                self._desk.fails(tasks, error)
            return False
        if outputs is None:
            return True
        self._desk.sends(tasks, outputs)
        return False

    def _work_on(self, parts: Iterable[Sequence[Task]], call: Call) -> None:
        """Handle each part in an attempt of its own, without records that are behind a failed one of their key."""
        desk = self._desk
        for part in parts:
            with desk.lock:
                first = desk.part(part)
            if first and self._attempt(call, first):
                with desk.lock:
                    desk.finish(first)


def _all_of(tasks: deque[Task]) -> list[Task]:
    """Remove and return all. Another thread may do the same: each task goes to one of them."""
    taken: list[Task] = []
    try:
        while True:
            taken.append(tasks.popleft())
    except IndexError:
        return taken


class LoopWorkers:
    """Tasks of an event loop, which run coroutine functions. One that takes longer than ``timeout`` is cancelled.

    Args:
        loop: the loop of the tasks. aside: makes the producer's calls, which may block.
    """

    def __init__(
        self,
        desk: Desk,
        settings: Settings,
        decode: Decode | None,
        loop: asyncio.AbstractEventLoop,
        aside: Aside,
    ) -> None:
        self._desk = desk
        self._settings = settings
        self._decode = decode
        self._loop = loop
        self._aside = aside
        self._attempt = self._works if desk.tracing is None else self._traced
        self._is_waking = False
        self._is_decoding = False
        self._turns_of_loop = LoopTurns(loop, desk.clock)
        if decode is not None:
            converts_on_loop(self)
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            # The loop is closed, and its tasks with it.
            return

    def _wake(self) -> None:
        """Wake or start one more task, which wakes the next one. Handlers that never wait run in one task."""
        if self._is_waking:
            return
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                self._is_waking = True
                future.set_result(None)
                return
        if len(self._tasks) < self._settings.workers:
            self._is_waking = True
            task = self._loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def look(self, now: int, *, at_once: bool = False) -> bool:
        """A task has one record, or one batch."""
        del now, at_once
        return False

    def end(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:
            return

    def _end(self) -> None:
        for future in self._idle:
            if not future.done():
                future.set_result(None)
        self._idle.clear()

    def cancel(self) -> None:
        """Cancel the handlers that run. On the loop."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        try:
            await self._turns()
        except Exception as error:  # noqa: BLE001 - as on threads
            self._desk.ends_with(error)

    async def _turns(self) -> None:
        desk, turns = self._desk, self._turns_of_loop
        tasks: list[Task] = []
        self._is_waking = False
        while True:
            with desk.lock:
                if tasks:
                    desk.finish(tasks)
                # If the last record was finished before that, the loop has turned since.
                is_due = desk.finished_at >= turns.due_at
                tasks = [] if is_due else desk.take()
                if not tasks and desk.is_ended:
                    return
                has_more = desk.scheduler.has_ready
            if is_due:
                await turns.turn()
                continue
            if not tasks:
                future = self._loop.create_future()
                self._idle.append(future)
                await future
                self._is_waking = False
                continue
            if has_more and not self._is_waking and (self._idle or len(self._tasks) < self._settings.workers):
                self._wake()
            if not await self._attempt(tasks):
                tasks = []

    async def _traced(self, tasks: Sequence[Task]) -> bool:
        assert self._desk.tracing is not None
        with self._desk.tracing.attempt(tasks):
            return await self._works(tasks)

    async def _works(self, tasks: Sequence[Task]) -> bool:
        settings = self._settings
        try:
            if self._decode is None and settings.batch is None:
                given: Any = tasks[0].record
            else:
                # Before the handler's time begins: the registry has time limits of its own.
                given = await self._desk.here.awaits(self._given(tasks))
            call = self._desk.here.awaits(self._call(tasks, given))
            outputs = await (call if settings.timeout_ms is None else self._in_time(call))
            if settings.halves and outputs is not None:
                with self._desk.here:
                    outputs = list(outputs)
        except _RefusedError as refused:
            for each, refusal in refused.refused.items():
                await self._aside.call(self._desk.fails, (each,), refusal)
            await self._work_on([[each for each in tasks if each not in refused.refused]])
            return False
        # As on threads. A CancelledError may also come from something that the handler awaited.
        except BaseException as problem:
            error: BaseException = problem
            if isinstance(problem, GeneratorExit) and not self._runs_now():
                # The coroutine is being closed, at the end of the loop: it must not await. Else the handler raised it.
                raise
            if (
                isinstance(problem, KeyboardInterrupt)
                and threading.current_thread() is threading.main_thread()
            ):
                # Ctrl-C, which only the main thread gets. On other threads the handler raised it.
                raise
            if isinstance(problem, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                error = RuntimeError("the handler awaited something that was cancelled")
                error.__cause__ = problem
            if settings.halves and len(tasks) > 1 and not (is_of_all(error) or tasks[0].told_lost):
                if self._desk.tracing is not None:
                    self._desk.tracing.failed(error)
                middle = len(tasks) // 2
                await self._work_on((tasks[:middle], tasks[middle:]))
                return False
            await self._aside.call(self._desk.fails, tasks, error)
            return False
        if outputs is None:
            return True
        await self._aside.call(self._desk.sends, tasks, outputs)
        return False

    async def _work_on(self, parts: Iterable[Sequence[Task]]) -> None:
        """As on threads."""
        desk = self._desk
        for part in parts:
            if desk.clock.now_ms() >= self._turns_of_loop.due_at:
                await self._turns_of_loop.turn()
            with desk.lock:
                first = desk.part(part)
            if first and await self._attempt(first):
                with desk.lock:
                    desk.finish(first)

    async def _in_time(
        self, call: Awaitable[Iterable[ProducerRecord] | None]
    ) -> Iterable[ProducerRecord] | None:
        """What the handler returns within ``timeout``."""
        settings = self._settings
        try:
            async with asyncio.timeout((settings.timeout_ms or 0) / 1000) as limit:
                return await call
        except TimeoutError:
            if limit.expired():
                raise _timed_out(settings) from None
            raise

    async def _given(self, tasks: Sequence[Task]) -> Any:
        """The first argument of the handler."""
        while isinstance(records := self._decoded(tasks), AnswerPendingError):
            await self._answered(records)
        return records if self._settings.batch is not None else records[0]

    async def _call(self, tasks: Sequence[Task], given: Any) -> Iterable[ProducerRecord] | None:
        settings = self._settings
        result = (
            settings.handler(given, Context(tasks)) if settings.takes_context else settings.handler(given)
        )
        if isinstance(result, AsyncGeneratorType):
            return list(_checked([each async for each in result]))
        outputs = await result
        return None if outputs is None else outputs_of(outputs)

    def _runs_now(self) -> bool:
        """Whether the caller is a task of these workers that a loop runs now."""
        try:
            return asyncio.current_task() in self._tasks
        except RuntimeError:
            return False

    def is_converting(self) -> bool:
        """Whether the caller is a deserialiser of these workers."""
        return self._is_decoding and asyncio._get_running_loop() is self._loop

    def _decoded(self, tasks: Sequence[Task]) -> Any:
        """The decoded records, or the AnswerPendingError that decoding must wait for."""
        if self._decode is None:
            return given_to(self._settings, tasks, None)
        self._is_decoding = True
        try:
            return given_to(self._settings, tasks, self._decode)
        except AnswerPendingError as pending:
            return pending.with_traceback(None)
        finally:
            self._is_decoding = False

    async def _answered(self, pending: AnswerPendingError) -> None:
        """Wait for the schema registry's answers. Raises the error of a failed request."""
        is_there = asyncio.Event()

        def wake() -> None:
            # The loop may be closed meanwhile.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(is_there.set)

        pending.call_back(wake)
        while not pending.is_over:
            await is_there.wait()
            is_there.clear()
        try:
            pending.check()
        except (SchemaRegistryError, ConfigError) as error:
            raise UndecidedError from error


_NO_ANSWER: Final = "the handler took longer than timeout={} s"


def _timed_out(settings: Settings) -> Exception:
    return HandlerTimeoutError(_NO_ANSWER.format((settings.timeout_ms or 0) / 1000))
