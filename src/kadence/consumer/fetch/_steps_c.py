# mypy: ignore-errors
"""The compiled half of the steps; `_steps_py` is the twin with the same interface, and says what things mean.

Cython in pure-Python syntax. A step runs no Python code between taking a record and giving it out, so no other thread
and no signal handler comes between the two. A deserialiser, which is Python code, runs before.
"""

import cython
from cython.cimports.kadence.consumer._decoded_records_c import Attention, DecodedRecords, DeliveryState
from cython.cimports.cpython.object import PyObject
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.kadence.consumer.fetch._steps_c import (
    PyIter_Send,
    PyThread_get_thread_ident,
    kd_answer_sends,
    kd_tick,
)
from cython.cimports.kadence.records._records_c import Cursor, Record

from kadence.records._shared import RecordFormatError

if not cython.compiled:
    raise ImportError("kadence.consumer.fetch._steps_c is not compiled")


EMPTY = cython.declare(list, [])
"""The list of those that have no records; nobody changes it."""

REFILL = cython.declare(cython.Py_ssize_t, 64)
"""Records that a step decodes at once: few, so that those of some partitions stay in the processor's cache."""


@cython.cclass
class ReaderState:
    """See `_steps_py.ReaderState`."""

    def __init__(self, shared_partition: DeliveryState, partition: object, records: object):
        self.shared_partition = shared_partition
        self.partition = partition
        self.records = records


@cython.final
@cython.cclass
class Decoder:
    """See `_steps_py.Decoder`."""

    def __cinit__(self, key: object, value: object):
        self.key_in_full = getattr(key, "deserialize", None)
        self.key = key if self.key_in_full is None else None
        self.value_in_full = getattr(value, "deserialize", None)
        self.value = value if self.value_in_full is None else None

    @cython.cfunc
    def decode(self, raw: Record) -> Record:
        key: object = raw.key
        value: object = raw.value
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
        return raw.with_content(key, value)

    def run(
        self, records: list, at: cython.Py_ssize_t, end: cython.Py_ssize_t, out: list
    ) -> cython.Py_ssize_t:
        failed: object = self.failed
        self.failed = None
        if failed is not None and at < end and cython.cast(tuple, failed)[0] is records[at]:
            self.failed = failed
            return at
        try:
            while at < end:
                out.append(self.decode(cython.cast(Record, records[at])))
                at += 1
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - see `_steps_py.Decoder.run`
            self.failed = (records[at], self.field(), error)
        return at

    @cython.cfunc
    def field(self) -> object:
        """Of which part the deserialiser was called last."""
        return "value" if self.is_at_value else "key"


@cython.final
@cython.cclass
class Steps:
    """See `_steps_py.Steps`."""

    def __cinit__(
        self, attention: Attention, clock: object, polls: object, *, is_system: cython.bint = False
    ):
        self.attention = attention
        self.clock = clock
        self.polls = polls
        self.is_system = is_system and kd_tick() >= 0
        self.order = []
        self.touched = []
        self.now = -1

    def take_over(self) -> None:
        self.thread = PyThread_get_thread_ident()

    def arm(self, now: cython.longlong, order: list) -> None:
        self.order = order
        self.at = 0
        self.now = kd_tick() if self.is_system else now
        self.thread = PyThread_get_thread_ident()

    def disarm(self) -> object:
        served: list = self.order[: self.at]
        self.settle()
        self.now = -1
        self.order = []
        self.at = 0
        return served

    def settle(self) -> None:
        taken: cython.Py_ssize_t = self.taken
        if not taken:
            return
        self.taken = 0
        self.polls.count += taken
        for entry in self.order:
            place: ReaderState = cython.cast(ReaderState, entry)
            decoded: DecodedRecords = place.shared_partition.decoded
            if decoded is not None and decoded.count and decoded.counted != decoded.index:
                place.records.total += decoded.index - decoded.counted
                decoded.counted = decoded.index

    def step(self) -> object:
        return self.take_one()

    @cython.cfunc
    def take_one(self) -> object:
        decoded: DecodedRecords = self.take_turn(1)
        if decoded is None:
            return None
        record: object = decoded.records[decoded.index]
        if self.decoder is not None:
            record = self.decoded_one(decoded, record)
            if record is None:
                return None
        decoded.index += 1
        self.passes_on()
        return record

    def several(self, limit: cython.Py_ssize_t) -> object:
        decoded: DecodedRecords = self.take_turn(limit)
        if decoded is None:
            return None
        # Deserialisers may change what is touched.
        place: ReaderState = cython.cast(ReaderState, self.touched[0])
        index: cython.Py_ssize_t = decoded.index
        records: list
        if self.decoder is None:
            records = decoded.records[index : index + limit]
        else:
            records = self.decoded(place.shared_partition, decoded, limit)
            if records is None:
                return None
        chunks: tuple = ((place.partition, records),)
        decoded.index = index + len(records)
        self.passes_on()
        return chunks

    @cython.cfunc
    def decoded(
        self, shared_partition: DeliveryState, decoded: DecodedRecords, limit: cython.Py_ssize_t
    ) -> list:
        """See `_steps_py.Steps._decoded`."""
        index: cython.Py_ssize_t = decoded.index
        records: list = []
        self.is_taking = True
        try:
            self.decoder.run(decoded.records, index, index + limit, records)
        finally:
            self.is_taking = False
        return records if records and self.stands(shared_partition, decoded, index) else None

    @cython.cfunc
    def decoded_one(self, decoded: DecodedRecords, raw: object) -> object:
        """As `decoded`, of one record, without the lists."""
        shared_partition: DeliveryState = cython.cast(ReaderState, self.touched[0]).shared_partition
        index: cython.Py_ssize_t = decoded.index
        decoder: Decoder = self.decoder
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
    def passes_on(self) -> cython.void:
        """The turn is the next partition's."""
        self.taken += 1
        self.at += 1
        if self.at == len(self.order):
            self.at = 0

    def is_inside_elsewhere(self) -> cython.bint:
        return self.is_taking and self.thread != PyThread_get_thread_ident()

    @cython.cfunc
    def take_turn(self, least: cython.Py_ssize_t) -> DecodedRecords:
        """Begin a poll that the next partition's decoded records alone can serve; None where there is more to do."""
        if self.attention.up or self.now < 0 or self.is_taking:
            return None
        if not self.order or self.thread != PyThread_get_thread_ident():
            return None
        if (kd_tick() if self.is_system else self.clock()) != self.now:
            return None
        place: ReaderState = cython.cast(ReaderState, self.order[self.at])
        shared_partition: DeliveryState = place.shared_partition
        decoded: DecodedRecords = shared_partition.decoded
        if (
            decoded is None
            or decoded.fetch_epoch != shared_partition.fetch_epoch
            or shared_partition.paused
            or shared_partition.revoking
            or shared_partition.held
        ):
            return None
        if decoded.index >= decoded.count and least * 4 <= REFILL:
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
        self.calls += 1
        return decoded

    @cython.cfunc
    def refill(self, place: ReaderState, decoded: DecodedRecords) -> DecodedRecords:
        """Decode a few records more when all are given out, as the reader would; None: a poll has to look.

        Only behind a sound cursor, within batches that the cursor goes through by itself, and in as many bytes as are
        booked for decoded records. Making objects may set off the cycle collector, which runs anything: so what may
        have changed meanwhile is looked at again, and until then the cursor counts as torn.
        """
        shared_partition: DeliveryState = place.shared_partition
        cursor: Cursor = place.cursor
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
            decoded.records = EMPTY
            decoded.count = 0
            decoded.index = decoded.began = 1
        items: list = []
        place.is_torn = True
        try:
            if not cursor.take_more(items, REFILL, place.held):
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
        refilled: DecodedRecords = DecodedRecords.__new__(
            DecodedRecords,
            decoded.fetch_epoch,
            items,
            decoded.end,
            decoded.end_epoch,
            cursor.next_offset,
            cursor.leader_epoch,
        )
        refilled.is_processed = True
        shared_partition.decoded = refilled
        return refilled

    def mark_processed(self) -> None:
        if not self.mark_touched_processed():
            for entry in self.touched:
                shared_partition: DeliveryState = cython.cast(ReaderState, entry).shared_partition
                decoded: DecodedRecords = shared_partition.decoded
                if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                    decoded.began = decoded.index
                else:
                    shared_partition.processed = shared_partition.current()
        self.touched.clear()
        self.calls += 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def mark_touched_processed(self) -> cython.bint:
        """What the poll before returned is processed. False: nothing is done, a fetch epoch has changed."""
        decoded: DecodedRecords
        shared_partition: DeliveryState
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
            decoded.began = decoded.index
        return True

    def let_go(self) -> None:
        for entry in self.touched:
            place: ReaderState = cython.cast(ReaderState, entry)
            decoded: DecodedRecords = place.shared_partition.decoded
            if (
                decoded is not None
                and decoded.count
                and decoded.began == 0
                and decoded.index == decoded.count
            ):
                place.gone, place.gone_in = decoded.counted, self.calls
                decoded.records = EMPTY
                decoded.count = 0
                decoded.index = 1

    def put_back(self) -> list:
        again: list = []
        for entry in self.touched:
            shared_partition: DeliveryState = cython.cast(ReaderState, entry).shared_partition
            decoded: DecodedRecords = shared_partition.decoded
            if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                decoded.index = decoded.began
                if decoded.count or decoded.index:
                    continue
            again.append(entry)
        return again


@cython.final
@cython.cclass
class Iteration:
    """See `_steps_py.Iteration`."""

    steps: Steps
    slowly: object

    def __cinit__(self, steps: Steps, slowly: object):
        self.steps = steps
        self.slowly = slowly

    def __iter__(self):
        return self

    def __next__(self):
        record: object = self.steps.take_one()
        return self.slowly() if record is None else record


@cython.final
@cython.cclass
class AsyncIteration:
    """See `_steps_py.AsyncIteration`."""

    steps: Steps
    slowly: object

    def __cinit__(self, steps: Steps, slowly: object):
        self.steps = steps
        self.slowly = slowly

    def __aiter__(self):
        return self

    def __anext__(self):
        following: Next = Next.__new__(Next)
        following.steps = self.steps
        following.slowly = self.slowly
        return following


@cython.final
@cython.freelist(8)
@cython.cclass
class Next:
    """See `_steps_py._Next`."""

    steps: Steps
    slowly: object
    inner: object

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value: object) -> object:
        record: object = self.take()
        if record is not None:
            raise StopIteration(record)
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

    def throw(self, error: object, *rest: object) -> object:
        if self.inner is None:
            raise error
        return self.inner.throw(error, *rest)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()


@cython.cfunc
@cython.exceptval(-1, check=False)
def send_to(following: object, value: object, result: cython.pointer(cython.pointer(PyObject))) -> cython.int:
    """As `Next.send`, for the interpreter; see awaits.h."""
    record: object = cython.cast(Next, following).take()
    if record is None:
        return PyIter_Send(cython.cast(Next, following).inner, value, result)
    Py_INCREF(record)
    result[0] = cython.cast(cython.pointer(PyObject), record)
    return 0


kd_answer_sends(Next, send_to)
