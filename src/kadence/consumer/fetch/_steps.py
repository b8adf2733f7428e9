"""Polls that one partition's decoded records can serve. Application side. One source, compiled and plain.

A poll has much to look at: background events, a commit that is due, the poll timer, who is inside. None of that changes
unless somebody raises the shared state's attention or time passes. So a poll that looked at all of it *arms* the steps,
and until then a poll is what is left: the next partition's turn, and an index that moves. Time passes with a tick of
the system where the compiled form can read it (1 to 10 ms, mostly 4), else with a millisecond.

The compiled form also decodes the next few records when those are used up; plain, a poll does that. The last record of
a fetch is never a step: whoever takes it gives the fetch back, which may wake the network thread.

Where deserialisers are set a step runs them (C14). They are the application's code and may take long, or call this
consumer. So they run before anything moves, and what they may have changed is looked at again. A record that they
refuse is left to a whole poll, which knows what becomes of it, and the error is kept for that poll.

Each step is a whole poll (C6): what the one before it returned is processed, partitions take turns (A2), and
what the poll timer says of the last poll is true to a tick.

Compiled, a step runs no Python code between taking a record and giving it out, so no other thread and no signal handler
comes between the two. See `uncompiled` for the two forms. The types of the fields are in the .pxd file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from threading import get_ident
from typing import Any

import kadence.uncompiled as cython
from kadence.records._shared import RecordFormatError

if cython.compiled:
    import cython

if not cython.compiled:
    from kadence.consumer._polled_records import Records, intercept, one_chunk
    from kadence.consumer.decoded_records import Attention, DecodedRecords, DeliveryState
    from kadence.consumer.shared_partition import SharedPartition
    from kadence.metrics.sensors import Tally
    from kadence.records import Cursor, Record
    from kadence.types import TopicPartition

__all__ = ["AsyncIteration", "Decoder", "Iteration", "ReaderState", "Steps"]

_EMPTY: list[Any] = []
"""The list of those that have no records; nobody changes it."""

_REFILL = 64
"""Records that a step decodes at once: few, so that those of some partitions stay in the processor's cache."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def this_thread() -> cython.ulong:
    """The number of the thread that calls."""
    if cython.compiled:
        return PyThread_get_thread_ident()
    else:
        return get_ident()


@cython.cclass
class ReaderState:
    """What the steps need of one partition's reader.

    Attributes:
        records: counts the records that were returned.
        cursor: what the fetch that is open is read with; a step of the compiled form decodes with it where those
            records are used up. None: no fetch is open.
        is_torn: the cursor does not stand behind the decoded records: it is to be opened again before anything is read.
        held: bytes of the decoded records, as the shared state counts them.
        gone: how many records a poll has given out and counted that are not kept any more. gone_in: which poll,
            as `Steps.calls` numbers them.
    """

    def __init__(self, shared_partition: SharedPartition, partition: TopicPartition, records: Tally) -> None:
        self.shared_partition = shared_partition
        self.partition = partition
        self.records = records
        self.cursor: Cursor | None = None
        self.is_torn = False
        self.held = 0
        self.gone = self.gone_in = 0


@cython.final
@cython.cclass
class Decoder:
    """Makes keys and values out of their bytes.

    Args:
        key, value: a function of the bytes, or an object with ``deserialize(topic, headers, data)``; None leaves bytes.

    Attributes:
        failed: what the last `run` stopped at, if it stopped: a record, which part of it (``key`` or ``value``) its
            deserialiser refused, and what that raised.
    """

    def __init__(self, key: Any, value: Any) -> None:
        self.key_in_full = getattr(key, "deserialize", None)
        self.key = key if self.key_in_full is None else None
        self.value_in_full = getattr(value, "deserialize", None)
        self.value = value if self.value_in_full is None else None
        self.is_at_value = False
        self.failed: tuple[Any, str, Exception] | None = None

    @cython.cfunc
    def decode(self, raw: Record) -> Record:
        """The record with what the deserialisers make of its key and value."""
        key: Any = raw.key
        value: Any = raw.value
        self.is_at_value = False
        if key is not None:
            if self.key is not None:
                key = self.key(key)
            elif self.key_in_full is not None:
                key = self.key_in_full(raw.topic, raw.headers, key)
        self.is_at_value = True
        if value is not None:
            if self.value is not None:
                value = self.value(value)
            elif self.value_in_full is not None:
                value = self.value_in_full(raw.topic, raw.headers, value)
        if cython.compiled:
            return raw.with_content(key, value)
        else:
            return Record(
                raw.topic,
                raw.partition,
                raw.offset,
                raw.timestamp,
                raw.timestamp_type,
                key,
                value,
                raw.headers,
                raw.leader_epoch,
            )

    def run(
        self, records: list[Record], at: cython.Py_ssize_t, end: cython.Py_ssize_t, out: list[Record]
    ) -> int:
        """Append what becomes of ``records[at:end]`` to ``out``, up to one that a deserialiser refuses.

        A run that begins with the record at which the one before stopped stops there again, and asks no deserialiser.

        Returns:
            where it stopped: ``end``, or the place of the record in ``failed``.

        Raises:
            MemoryError: nobody's fault, and no reason to refuse a record.
        """
        failed = self.failed
        self.failed = None
        if failed is not None and at < end and failed[0] is records[at]:
            self.failed = failed
            return at
        try:
            while at < end:
                out.append(self.decode(cython.cast(Record, records[at])))
                at += 1
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, `deserialization.errors` says what it means
            self.failed = (records[at], self.field(), error)
        return at

    @cython.cfunc
    def field(self) -> str:
        """Of which part the deserialiser was called last."""
        return "value" if self.is_at_value else "key"


@cython.final
@cython.cclass
class Steps:
    """Serves polls that need only the next records of one partition.

    Args:
        attention: the shared state's. clock: the milliseconds of now. polls: counts polls.
        is_system: ``clock`` is the machine's own, which the compiled form can read by itself.

    Attributes:
        decoder: what runs the deserialisers; None where there are none.
        is_taking: records are being taken, be it by a step or by a whole poll: nobody may poll meanwhile.
        touched: readers of which the present poll, or the one that ended last, has taken something.
        calls: how often `mark_processed` was called or a step was made.
        taken: steps that are not counted yet.
    """

    def __init__(
        self,
        attention: Attention,
        clock: Callable[[], int],
        polls: Tally,
        *,
        is_system: cython.bint = False,
    ) -> None:
        self.attention = attention
        self.clock = clock
        self.polls = polls
        self.is_system = is_system
        if cython.compiled:
            self.is_system = is_system and kd_tick() >= 0
        self.order: list[ReaderState] = []
        self.touched: list[ReaderState] = []
        self.at = 0
        self.now = -1
        self.thread = 0
        self.decoder: Decoder | None = None
        self.interceptors: Any = None
        self.consuming: tuple[Any, ...] = ()
        self.put_back_poll: Any = None
        self.is_taking = False
        self.is_intercepting = False
        self.calls = 0
        self.taken = 0

    def intercept_with(
        self, interceptors: Any, consuming: tuple[Any, ...], put_back_poll: Callable[[int], None]
    ) -> None:
        """Show what steps return to interceptors.

        Args:
            interceptors: `Interceptors`. consuming: those that see records.
            put_back_poll: puts back what was taken since there were so many ``calls``: Ctrl-C ended an interceptor.
        """
        self.interceptors = interceptors
        self.consuming = consuming
        self.put_back_poll = put_back_poll

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def time(self) -> cython.longlong:
        """What changes when time passes."""
        if cython.compiled and self.is_system:
            return kd_tick()
        return self.clock()

    def take_over(self) -> None:
        """From here on only the thread that calls this may take steps: it is inside a call of the consumer."""
        self.thread = this_thread()

    def arm(self, now: cython.longlong, order: list[ReaderState]) -> None:
        """A poll that began at ``now`` found nothing to do but to take records.

        Args:
            order: readers, in the order in which they are to be served.
        """
        self.order = order
        self.at = 0
        self.now = now
        if cython.compiled and self.is_system:
            self.now = kd_tick()
        self.thread = this_thread()

    def disarm(self) -> list[ReaderState]:
        """A poll looks at everything again. Returns the readers that are to be served after all others."""
        served = self.order[: self.at]
        self.settle()
        self.now = -1
        self.order = []
        self.at = 0
        return served

    def settle(self) -> None:
        """Count the steps made so far. Any thread: one that reads the metrics wants to see them."""
        taken: cython.Py_ssize_t = self.taken
        if not taken:
            return
        self.taken = 0
        self.polls.count += taken
        for entry in self.order:
            place: ReaderState = cython.cast(ReaderState, entry)
            decoded: DecodedRecords | None = place.shared_partition.decoded
            if decoded is not None and decoded.count and decoded.counted != decoded.index:
                place.records.total += decoded.index - decoded.counted
                decoded.counted = decoded.index

    def step(self) -> Any:
        """A poll of one; None when there is more to do, or nothing is decoded of the next partition."""
        return self.take_one()

    @cython.cfunc
    def take_one(self) -> object:
        """See `step`. A record that interceptors leave out is a poll of its own."""
        while True:
            decoded: DecodedRecords | None = self.take_turn(1)
            if decoded is None:
                return None
            # Deserialisers may change what is touched.
            place: ReaderState = cython.cast(ReaderState, self.touched[0])
            record: Any = decoded.records[decoded.index]
            if self.decoder is not None:
                record = self.decoded_one(place.shared_partition, decoded, record)
                if record is None:
                    return None
            decoded.index += 1
            self.pass_on()
            if self.interceptors is None:
                return record
            given: Records = one_chunk(place.partition, [record])
            found: Records = self.intercepted(given)
            if found is not given:
                record = self.interceptors.first(found)
            if record is not None:
                return record

    def poll(self, limit: cython.Py_ssize_t) -> Any:
        """A poll of ``limit``; None when there is more to do, or less than that is decoded of the next partition.

        It returns fewer where a deserialiser refuses one of them.
        """
        decoded: DecodedRecords | None = self.take_turn(limit) if limit > 0 else None
        if decoded is None:
            return None
        # Deserialisers may change what is touched.
        place: ReaderState = cython.cast(ReaderState, self.touched[0])
        index: cython.Py_ssize_t = decoded.index
        records: list[Any] | None
        if self.decoder is None:
            records = decoded.records[index : index + limit]
        else:
            records = self.decoded(place.shared_partition, decoded, limit)
            if records is None:
                return None
        found: Records = one_chunk(place.partition, records)
        decoded.index = index + len(records)
        self.pass_on()
        return found if self.interceptors is None else self.intercepted(found)

    @cython.cfunc
    def intercepted(self, records: Records) -> Records:
        """What interceptors make of what a step has taken. It is put back where Ctrl-C ends them."""
        calls: cython.Py_ssize_t = self.calls - 1
        self.is_intercepting = True
        try:
            records = intercept(self.interceptors, self.consuming, records)
        except BaseException:
            self.is_intercepting = False
            try:
                self.put_back_poll(calls)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                self.put_back_poll(calls)
            raise
        self.is_intercepting = False
        return records

    @cython.cfunc
    def decoded(
        self, shared_partition: DeliveryState, decoded: DecodedRecords, limit: cython.Py_ssize_t
    ) -> list[Any] | None:
        """What deserialisers make of the next records in the decoded records; None when a whole poll has to look.

        They may have called this consumer: sought, closed it, or given the partition up.
        """
        index: cython.Py_ssize_t = decoded.index
        records: list[Any] = []
        self.is_taking = True
        try:
            cython.cast(Decoder, self.decoder).run(decoded.records, index, index + limit, records)
        finally:
            self.is_taking = False
        return records if records and self.stands(shared_partition, decoded, index) else None

    @cython.cfunc
    def decoded_one(self, shared_partition: DeliveryState, decoded: DecodedRecords, raw: Any) -> object:
        """As `decoded`, of one record, without the lists."""
        index: cython.Py_ssize_t = decoded.index
        decoder: Decoder = cython.cast(Decoder, self.decoder)
        if decoder.failed is not None:
            if cython.cast(tuple, decoder.failed)[0] is raw:
                return None
            decoder.failed = None
        record: object = None
        self.is_taking = True
        try:
            record = decoder.decode(cython.cast(Record, raw))
        except BaseException as error:
            self.is_taking = False
            if isinstance(error, MemoryError) or not isinstance(error, Exception):
                raise
            decoder.failed = (raw, decoder.field(), error)
            return None
        self.is_taking = False
        return record if self.stands(shared_partition, decoded, index) else None

    @cython.cfunc
    @cython.exceptval(check=False)
    def stands(
        self, shared_partition: DeliveryState, decoded: DecodedRecords, index: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether the partition is where it was before the deserialisers ran."""
        return (
            self.now >= 0
            and shared_partition.decoded is decoded
            and decoded.fetch_epoch == shared_partition.fetch_epoch
            and decoded.index == index
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def pass_on(self) -> cython.void:
        """The turn is the next partition's."""
        self.taken += 1
        # In one go: plain, Ctrl-C may come between any two.
        following: cython.Py_ssize_t = self.at + 1
        self.at = 0 if following == len(self.order) else following

    def is_inside_elsewhere(self) -> bool:
        """Whether another thread is in a deserialiser or interceptor, which it called without entering the consumer."""
        return (self.is_taking or self.is_intercepting) and self.thread != this_thread()

    @cython.cfunc
    def take_turn(self, least: cython.Py_ssize_t) -> DecodedRecords | None:
        """Begin a poll that the next partition's decoded records alone can serve; None where there is more to do."""
        if not self.order or self.attention.up or self.now < 0 or self.is_taking:
            return None
        if self.thread != this_thread() or self.time() != self.now:
            return None
        place: ReaderState = cython.cast(ReaderState, self.order[self.at])
        shared_partition: DeliveryState = place.shared_partition
        decoded: DecodedRecords | None = shared_partition.decoded
        if (
            decoded is None
            or decoded.fetch_epoch != shared_partition.fetch_epoch
            or shared_partition.paused
            or shared_partition.revoking
            or shared_partition.held
        ):
            return None
        if cython.compiled and decoded.index >= decoded.count and least * 4 <= _REFILL:
            decoded = self.refill(place, decoded)
            if decoded is None:
                return None
        if decoded.count - decoded.index < least + decoded.is_last:
            return None
        if not self.mark_touched_processed():
            return None
        if len(self.touched) == 1:
            # As after each step. Put in the same place: a list that becomes empty gives up its memory.
            self.touched[0] = place
        else:
            self.touched.clear()
            self.touched.append(place)
        # Last: only what is taken after this may be put back.
        self.calls += 1
        return decoded

    @cython.cfunc
    def refill(self, place: ReaderState, decoded: DecodedRecords) -> DecodedRecords | None:
        """Decode a few records more when all are given out, as the reader would; None: a poll has to look.

        Only behind a sound cursor, within batches that the cursor goes through by itself, and in as many bytes as are
        booked for decoded records. Making objects may set off the cycle collector, which runs anything: so what may
        have changed meanwhile is looked at again, and until then the cursor counts as torn.
        """
        shared_partition: DeliveryState = place.shared_partition
        cursor: Cursor | None = place.cursor
        if (
            cursor is None
            or place.is_torn
            or not place.held
            or shared_partition.end is not None
            or cursor.remaining < 2
        ):
            return None
        if not self.mark_touched_processed() or decoded.began < decoded.count:
            return None
        if decoded.count:
            place.records.total += decoded.index - decoded.counted
            # Its records are the application's alone now: their memory is used for the next ones.
            decoded.records = _EMPTY
            decoded.count = 0
            decoded.index = decoded.began = 1
        items: list[Any] = []
        place.is_torn = True
        try:
            if not cursor.take_more(items, _REFILL, place.held):  # type: ignore[attr-defined]
                return None
        except RecordFormatError:
            return None
        if (
            self.attention.up
            or shared_partition.decoded is not decoded
            or decoded.fetch_epoch != shared_partition.fetch_epoch
            or place.cursor is not cursor
            or shared_partition.paused
            or shared_partition.revoking
            or shared_partition.held
        ):
            return None
        place.is_torn = False
        if not items:
            return None
        refilled: DecodedRecords = DecodedRecords(
            decoded.fetch_epoch,
            items,
            decoded.end,
            decoded.end_epoch,
            cursor.next_offset,
            cursor.leader_epoch,  # type: ignore[attr-defined]
        )
        refilled.is_processed = True
        shared_partition.decoded = refilled
        return refilled

    def mark_processed(self) -> None:
        """The application polls again, so what it was given is processed: at least once (D1)."""
        if not self.mark_touched_processed():
            for entry in self.touched:
                shared_partition: Any = cython.cast(ReaderState, entry).shared_partition
                decoded: DecodedRecords | None = shared_partition.decoded
                if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                    decoded.began = decoded.index
                else:
                    # The fetch epoch has changed since without a jump: what was given before it is processed, too.
                    shared_partition.processed = shared_partition.current()
        self.touched.clear()
        # Last: only what is taken after this may be put back.
        self.calls += 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def mark_touched_processed(self) -> cython.bint:
        """What the poll before returned is processed. False: nothing is done, a fetch epoch has changed."""
        shared_partition: DeliveryState
        decoded: DecodedRecords | None
        if len(self.touched) == 1:
            # As after each step.
            shared_partition = cython.cast(ReaderState, self.touched[0]).shared_partition
            decoded = shared_partition.decoded
            if decoded is None or decoded.fetch_epoch != shared_partition.fetch_epoch:
                return False
            decoded.began = decoded.index
            return True
        for entry in self.touched:
            shared_partition = cython.cast(ReaderState, entry).shared_partition
            decoded = shared_partition.decoded
            if decoded is None or decoded.fetch_epoch != shared_partition.fetch_epoch:
                return False
        for entry in self.touched:
            decoded = cython.cast(ReaderState, entry).shared_partition.decoded
            if decoded is not None:
                decoded.began = decoded.index
        return True

    def let_go(self) -> None:
        """The poll returns: records that it took as a whole list are the application's alone.

        Else their memory could not be used for the next ones, which costs large records half as much again. Should
        Ctrl-C still come before the caller has them, they are fetched again.
        """
        for entry in self.touched:
            place: ReaderState = cython.cast(ReaderState, entry)
            decoded: DecodedRecords | None = place.shared_partition.decoded
            if (
                decoded is not None
                and decoded.count
                and decoded.began == 0
                and decoded.index == decoded.count
            ):
                place.gone = decoded.counted
                place.gone_in = self.calls
                decoded.records = _EMPTY
                decoded.count = 0
                decoded.index = 1

    def put_back(self) -> list[ReaderState]:
        """What the present poll took was not returned: each index goes back to where the poll began.

        Returns:
            readers of which that is not enough: what they gave is not kept any more, or their fetch epoch has changed.
        """
        again: list[ReaderState] = []
        for entry in self.touched:
            shared_partition: DeliveryState = cython.cast(ReaderState, entry).shared_partition
            decoded: DecodedRecords | None = shared_partition.decoded
            if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                decoded.index = decoded.began
                if decoded.count or decoded.index:
                    continue
            again.append(entry)
        return again


@cython.final
@cython.cclass
class Iteration:
    """An endless iterator over records, each of them a poll of one.

    Args:
        slowly: the next record where a step gives none; it may wait.
    """

    def __init__(self, steps: Steps, slowly: Callable[[], Any]) -> None:
        self.steps = steps
        self.slowly = slowly

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        if self.steps is None:
            raise TypeError("this is made by `for` over a consumer")
        record: Any
        if cython.compiled:
            record = self.steps.take_one()
            return self.slowly() if record is None else record
        else:
            calls = self.steps.calls
            try:
                record = self.steps.step()
                return self.slowly() if record is None else record
            except StopIteration:
                # The end: what the last poll passed over without a record stays passed over.
                raise
            except BaseException:
                # Ctrl-C: compiled, a step cannot be interrupted.
                if self.steps.calls != calls:
                    self.steps.put_back()
                raise


@cython.final
@cython.cclass
class AsyncIteration:
    """As `Iteration`, for ``async for``.

    Args:
        slowly: a coroutine function that gives the next record where a step gives none.
    """

    def __init__(self, steps: Steps, slowly: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.steps = steps
        self.slowly = slowly

    def __aiter__(self) -> AsyncIteration:
        return self

    def __anext__(self) -> Awaitable[Any]:
        following: Next = Next.__new__(Next)
        following.steps = self.steps
        following.slowly = self.slowly
        following.inner = None
        return following


@cython.final
@cython.freelist(8)
@cython.cclass
class Next:
    """The next record, awaited: a step when it is awaited, or else all of the slow coroutine.

    Not earlier: one that is never awaited has taken nothing.
    """

    steps: Steps
    slowly: Callable[[], Coroutine[Any, Any, Any]]
    inner: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Next:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if cython.compiled:
            record: object = self.take()
            if record is not None:
                raise StopIteration(record)
        elif self.inner is None:
            calls = self.steps.calls
            try:
                stepped = self.steps.step()
                if stepped is not None:
                    raise StopIteration(stepped)
            except StopIteration:
                raise
            except BaseException:
                # As in `Iteration`.
                if self.steps.calls != calls:
                    self.steps.put_back()
                raise
            self.inner = self.slowly()
        return self.inner.send(value)

    @cython.cfunc
    def take(self) -> object:
        """The record, if a step gives it; None: the slow coroutine does, and is there now."""
        if self.inner is None:
            if self.steps is None:
                raise TypeError("this is made by `async for` over a consumer")
            record: object = self.steps.take_one()
            if record is not None:
                return record
            self.inner = self.slowly()
        return None

    def throw(self, error: Any, *rest: Any) -> Any:
        if self.inner is None:
            raise error
        return self.inner.throw(error, *rest)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()


if cython.compiled:

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_to(
        following: object, value: object, result: cython.pointer(cython.pointer(PyObject))
    ) -> cython.int:
        """As `Next.send`, for the interpreter; see awaits.h."""
        record: object = cython.cast(Next, following).take()
        if record is None:
            return PyIter_Send(cython.cast(Next, following).inner, value, result)
        Py_INCREF(record)
        result[0] = cython.cast(cython.pointer(PyObject), record)
        return 0

    kd_answer_sends(Next, send_to)
