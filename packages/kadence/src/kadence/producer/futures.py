"""The futures that ``send()`` returns: one light future per record, resolved a whole batch at a time.

A record's future is two references and a number; the result, the lock and the callbacks belong to the batch's
`Delivery`. That is why this is not `concurrent.futures.Future`, which allocates a condition for each record
(about 3 µs and 1 KiB); it has the same methods.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence._native.append import FutureRecordMetadata, ProduceRequestResult, call_back
from kadence.client.gate import Gate
from kadence.client.loop_gate import LoopGate
from kadence.client.slices import Slices, slices_of
from kadence.clock import Seconds, to_ms
from kadence.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kadence.errors.copies import own_copy
from kadence.forked import ThisProcess
from kadence.idioms import advised
from kadence.logs import logger
from kadence.producer.like_futures import LikeFuture

if TYPE_CHECKING:
    import asyncio

    from kadence._native.drain import Asked
    from kadence.producer.direct_sends import DirectSends

__all__ = [
    "Delivery",
    "RecordFuture",
    "RecordMetadata",
    "Span",
    "at_home",
    "call",
    "check_may_wait",
    "decides",
    "deciding",
    "runs_callbacks",
]

_log = logger("kadence.producer")


class _Deciding(threading.local):
    """The producer whose deliveries this thread decides.

    Attributes:
        gate: its lock; None: there is none. process: that of the thread.
    """

    gate: Gate | None = None
    process: ThisProcess


deciding = _Deciding()


def decides(gate: Gate) -> None:
    """Mark this thread as the one that decides the deliveries of the producer with this lock and runs callbacks."""
    deciding.gate = gate
    deciding.process = ThisProcess()


def runs_callbacks(gate: Gate) -> bool:
    """True if this is that thread, so that the caller is a callback."""
    return deciding.gate is gate


def check_may_wait(gate: Gate) -> None:
    """Raise on the network thread and on the event loop of the producer with this lock: waiting there would deadlock.

    Raises:
        IllegalStateError: this is one of those threads.
    """
    if isinstance(gate, LoopGate) and gate.runs_here():
        raise IllegalStateError("this would block the event loop: await the future")
    if runs_callbacks(gate):
        raise IllegalStateError(
            "a callback of a future runs on the producer's network thread, which this call would wait for; make the "
            "call from another thread. send() may be called in a callback when its topic is known (partitions_for() "
            "makes it known) and buffer.memory has room"
        )


class RecordMetadata(NamedTuple):
    """The place of a written record.

    Attributes:
        offset: its offset; -1 if the broker did not say (with acks=0; rarely after a retry).
        timestamp: the timestamp in the log, in ms since 1970: the record's own, or the broker's for a topic with
            ``message.timestamp.type=LogAppendTime``.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


_new: Final[Callable[[type[RecordMetadata], Iterable[Any]], RecordMetadata]] = tuple.__new__
"""`RecordMetadata._make`, which would be a step in Python."""


class _Part(NamedTuple):
    """The outcome of consecutive records of a batch, from index ``first`` on."""

    first: int
    base_offset: int
    log_append_time: int
    error: KafkaError | None
    record_errors: Mapping[int, KafkaError]


_NO_ERRORS: Final[Mapping[int, KafkaError]] = {}


class Span(NamedTuple):
    """Consecutive records of a batch with one outcome.

    Attributes:
        first: index of the first. length: their number. offset: of the first; -1 unknown, or not written.
        error: the reason why they were not written.
    """

    first: int
    length: int
    offset: int
    error: KafkaError | None


class Delivery(ProduceRequestResult):
    """The common outcome of a batch's records, decided by the network thread.

    Usually by one answer for all. A batch that the broker found too large is split; then each piece is a part
    of its own, and the delivery is done when all parts are decided.

    Args:
        gate: notified on completion; shared by all deliveries of a producer, so that waiting costs nothing
            until somebody waits.
        unnotified: contains it from the end of the batch until its callbacks have run (`Accumulator.unnotified`).
    """

    __slots__ = ()

    # Of the base class, here with their types:
    asked: Asked | None
    direct: DirectSends | None
    expedite: Callable[[Delivery], None] | None
    _parts: list[_Part] | None
    _watchers: dict[tuple[Callable[[Any], object], Any], None] | None
    """Callbacks, each with its future."""
    _waiters: dict[Slices, dict[asyncio.Future[None], None]] | None
    """The asyncio futures that tasks await, by loop; each loop is woken once."""
    _unnotified: set[Delivery]

    def awaited(self) -> None:
        """Somebody waits for it: the batch need not linger where the producer has nothing else to send. Any thread."""
        if self.expedite is not None:
            with self.gate:
                if (expedite := self.expedite) is not None:
                    self.expedite = None
                    expedite(self)

    @property
    def has_watchers(self) -> bool:
        """True if other code than the program's is to be called, of its own thread. Under the gate."""
        return bool(self._watchers)

    def complete_anew(self, base_offset: int, log_append_time: int, *, here: Slices | None = None) -> None:
        """As `complete`, of all records at once, and perhaps for the second time."""
        if self.done:
            with self.gate:
                self._unnotified.discard(self)
                self.gate.notify_all()
            self.wake_waiters(here)
            return
        self._parts = None
        self.outstanding = 1
        self.complete(base_offset, log_append_time, here=here)

    def complete(
        self, base_offset: int, log_append_time: int = -1, *, first: int = 0, here: Slices | None = None
    ) -> None:
        """The broker has written the records from index ``first`` on; -1: it did not say at which offset.

        Args:
            here: of the loop that runs on this thread.
        """
        self._decide(_Part(first, base_offset, log_append_time, None, {}), here)

    def fail(
        self, error: KafkaError, record_errors: Mapping[int, KafkaError] | None = None, *, first: int = 0
    ) -> None:
        """They will not be written; ``record_errors``: by index, if the broker blamed single records."""
        self._decide(_Part(first, -1, -1, error, record_errors or {}))

    def _decide(self, part: _Part, here: Slices | None = None) -> None:
        with self.gate:
            parts = self._parts = sorted([*(self._parts or ()), part], key=lambda part: part.first)
            self.outstanding -= 1
            if self.outstanding:
                return
            self.is_written = all(each.error is None for each in parts)
            record_callbacks = self.end()
            callbacks, self._watchers = self._watchers or {}, None
            if not record_callbacks and not callbacks:
                self._unnotified.discard(self)
            self.gate.notify_all()
        self.wake_waiters(here)
        # Outside the lock: a callback may call send(), which takes it.
        for each in callbacks:
            call_back([*each], _callback_failed)
        if isinstance(self.gate, LoopGate):
            self.gate.call_each(_call_pair, zip(record_callbacks[::2], record_callbacks[1::2], strict=True))
        elif record_callbacks:
            _call_back(self.gate, record_callbacks)
        if record_callbacks or callbacks:
            # On a loop this is queued behind the callbacks.
            at_home(self.gate, Delivery._all_notified)(self)

    def wake_waiters(self, here: Slices | None) -> None:
        """Wake the tasks. A signal may end it at any point, and it may be called again."""
        for slices, futures in (self._waiters or {}).items():
            if slices is here:
                for waiter in futures:
                    _wake(waiter)
                continue
            try:
                slices.add(_wake, futures)
            except RuntimeError:
                _log.debug(
                    "the result of a record for %s-%d is dropped: its event loop is closed",
                    self.topic,
                    self.partition,
                )
        self._waiters = None

    def _all_notified(self) -> None:
        with self.gate:
            self._unnotified.discard(self)
            self.gate.notify_all()

    def forsake(self, error: KafkaError) -> None:
        """Fail it in a forked child, where no thread will decide it and the lock may be held for ever."""
        self._parts = [_Part(0, -1, -1, error, {})]
        self._watchers = None
        self._waiters = None
        self.end()

    def decided(self) -> Generator[Any, None, None]:
        """Wait until it is decided, in a task of the running loop. Cancelling the wait has no other effect."""
        gate = self.gate
        if isinstance(gate, LoopGate) and gate.runs_here():
            loop, slices = gate.loop, gate.slices
        else:
            from asyncio import get_running_loop

            loop = get_running_loop()
            slices = slices_of(loop)
        waiter = loop.create_future()
        if self.expedite is not None:
            # After the tasks that are ready now, whose records go along.
            loop.call_soon(self.awaited)
        with self.gate:
            if self.done:
                waiter.set_result(None)
            else:
                if self._waiters is None:
                    self._waiters = {}
                self._waiters.setdefault(slices, {})[waiter] = None
        try:
            yield from waiter
        except BaseException:
            # The task was cancelled. Drop its waiter: it may await the same future many times, each for a while.
            if not self.done:
                with self.gate:
                    # Once it is done they are being woken, and stay as they are.
                    if self._waiters is not None and not self.done:
                        self._waiters[slices].pop(waiter, None)
            raise

    def when_done(self, notify: Callable[[Any], object], future: Any) -> None:
        """Call ``notify(future)`` once decided, on any thread."""
        if not self.done:
            self.gate.check_entry()
            with self.gate:
                if not self.done:
                    if self._watchers is None:
                        self._watchers = {}
                    self._watchers[notify, future] = None
                    return
        call(notify, future)

    def no_longer(self, notify: Callable[[Any], object], future: Any) -> None:
        """Forget a callback given to `when_done`, or its equal. Any thread."""
        if not self.done:
            with self.gate:
                if self._watchers is not None:
                    self._watchers.pop((notify, future), None)

    def _all_parts(self) -> list[_Part]:
        alone = self.alone
        return (self._parts or []) if alone is None else [_Part(0, *alone, None, _NO_ERRORS)]

    def outcome(self, index: int) -> tuple[int, int, KafkaError | None]:
        """Offset (-1 unknown), log append time (-1 none) and error of one record; only when `done`."""
        parts = self._all_parts()
        part = parts[0]
        if len(parts) > 1:
            part = parts[bisect_right(parts, index, key=lambda part: part.first) - 1]
        if part.error is not None:
            return -1, -1, part.record_errors.get(index, part.error)
        offset = part.base_offset + index - part.first if part.base_offset >= 0 else -1
        return offset, part.log_append_time, None

    def spans(self, first: int, count: int) -> list[Span]:
        """The outcomes of ``count`` records from index ``first`` on; only when `done`."""
        found = []
        end = first + count
        parts = self._all_parts()
        for number, part in enumerate(parts):
            after = parts[number + 1].first if number + 1 < len(parts) else end
            start, stop = max(first, part.first), min(end, after)
            if start >= stop:
                continue
            if part.record_errors:
                # A broker that blames single records refuses the others of the batch for them.
                found += [
                    Span(index, 1, -1, part.record_errors.get(index, part.error))
                    for index in range(start, stop)
                ]
            else:
                offset = part.base_offset + start - part.first if part.base_offset >= 0 else -1
                found.append(Span(start, stop - start, offset, part.error))
        return found


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def call(callback: Callable[[Any], object], future: Any) -> None:
    """Call a user's callback."""
    try:
        callback(future)
    except Exception:  # noqa: BLE001 - a user's callback may raise anything, and the thread must go on
        _callback_failed()


def _call_pair(pair: tuple[Callable[[Any], object], Any]) -> None:
    call(*pair)


def _callback_failed() -> None:
    _log.exception("a callback of a future raised; the delivery is not affected")


def _call_back(gate: Gate, callbacks: list[Any]) -> None:
    """Call users' callbacks; in a child that one of them forks, this is not the network thread (H12)."""
    if not runs_callbacks(gate):
        call_back(callbacks, _callback_failed)
        return
    here = deciding.process

    def failed() -> None:
        here.check(sys.exception())
        _callback_failed()

    with here:
        call_back(callbacks, failed)


def at_home(gate: Gate, callback: Callable[[Any], object]) -> Callable[[Any], object]:
    """The callback itself; for an asyncio producer, a function that schedules it on the loop."""
    if isinstance(gate, LoopGate):
        return lambda future: gate.call_soon(partial(call, callback, future))
    return callback


@advised
class RecordFuture(FutureRecordMetadata, LikeFuture[RecordMetadata]):
    """The future of one record, as `Producer.send` returns it. It has the methods of `concurrent.futures.Future`.

    `concurrent.futures.wait`, `concurrent.futures.as_completed` and `asyncio.wrap_future` take it, too.
    It can also be awaited, on any event loop: ``metadata = await future``. Cancelling the await does not cancel the
    sending.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.delivery.done:
            yield from self.delivery.decided()
        return self.result()

    def done(self) -> bool:
        """True if the record was acknowledged or has failed."""
        done: bool = self.delivery.done
        return done

    def result(self, timeout: Seconds | None = None) -> RecordMetadata:
        """Wait for the acknowledgement.

        Raises:
            KafkaTimeoutError: not decided within ``timeout`` seconds. None: no limit, but each record fails after
                the producer's ``delivery.timeout.ms``. The record may still be delivered.
            IllegalStateError: the record is not decided yet, and waiting would never end: this is a callback of the
                same producer, or the event loop of an `AsyncProducer`.
            KafkaError: why the record was not delivered.
        """
        delivery = self.delivery
        if not delivery.done:
            # Most waits are for a plain answer to this thread's own request, and need nothing else.
            asked = None if timeout is not None else delivery.asked
            if asked is None or not delivery.direct.await_answer(delivery, asked, None):
                self._wait(timeout)
        found = self._written()
        if found is not None:
            return _new(RecordMetadata, found)
        offset, log_append_time, error = delivery.outcome(self.index)
        if error is not None:
            # The garbage collector cannot see that this future refers to the batch's error, so no error may refer back.
            error = own_copy(error)
            try:
                raise error
            finally:
                # The traceback leads to this frame, which must not lead back.
                del error
        timestamp = self.timestamp if log_append_time < 0 else log_append_time
        return RecordMetadata(delivery.topic, delivery.partition, offset, timestamp)

    def exception(self, timeout: Seconds | None = None) -> KafkaError | None:
        """Wait, and return the error instead of raising it; None if the record was delivered.

        Raises:
            KafkaTimeoutError: not decided within ``timeout`` seconds.
        """
        delivery = self.delivery
        if delivery.is_written:
            return None
        if not delivery.done:
            self._wait(timeout)
        _, _, error = delivery.outcome(self.index)
        # As in `result`.
        return None if error is None else own_copy(error)

    def _wait(self, timeout: Seconds | None) -> None:
        """Wait until it is decided."""
        delivery = self.delivery
        gate = delivery.gate
        gate.check_entry()
        check_may_wait(gate)
        wait_ms = None if timeout is None else to_ms(timeout)
        seconds = None if wait_ms is None else min(wait_ms / 1000, threading.TIMEOUT_MAX)
        if seconds != 0:
            if delivery.expedite is not None:
                delivery.awaited()
            asked = delivery.asked
            if asked is not None and delivery.direct is not None:
                seconds = delivery.direct.wait(delivery, asked, seconds)
                if delivery.done:
                    return
        with gate:
            if not gate.wait_for(lambda: delivery.done, seconds):
                raise KafkaTimeoutError(
                    f"the record for {delivery.topic}-{delivery.partition} was not acknowledged within "
                    f"{timeout} s; it is still on its way"
                )

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call ``callback(self)`` when the record is acknowledged or has failed.

        It runs on the network thread, or at once on this thread if that is so already; with an `AsyncProducer`, on
        the event loop. It must be quick, because the network thread sends nothing meanwhile; its exceptions are
        logged. It may call `Producer.send`, but a call that would wait for this producer raises
        `IllegalStateError`.
        """
        # There may be one for each record, so this is kept short.
        if not self.delivery.add_callback(callback, self):
            call(at_home(self.delivery.gate, callback), self)

    def _when_done(self, notify: Callable[[Any], object]) -> None:
        self.delivery.when_done(notify, self)

    def _no_longer(self, notify: Callable[[Any], object]) -> None:
        self.delivery.no_longer(notify, self)

    def _is_awaited(self) -> None:
        self.delivery.awaited()

    def cancel(self) -> bool:
        """Always False: a queued record cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Always False."""
        return False

    def running(self) -> bool:
        """True if the record is neither acknowledged nor failed yet."""
        return not self.delivery.done

    def __repr__(self) -> str:
        delivery = self.delivery
        if not delivery.done:
            state = "pending"
        else:
            offset, _, error = delivery.outcome(self.index)
            state = f"failed: {error}" if error else f"offset {offset}" if offset >= 0 else "sent"
        return f"<RecordFuture {delivery.topic}-{delivery.partition} {state}>"
