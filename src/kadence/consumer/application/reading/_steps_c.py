# mypy: ignore-errors
"""The compiled half of the steps; `_steps_py` is the twin with the same interface, and says what things mean.

Cython in pure-Python syntax. A step runs no Python code between taking a record and giving it out, so no other thread
and no signal handler comes between the two. A deserialiser, which is Python code, runs before.
"""

import cython
from cython.cimports.kadence.consumer.application.reading._steps_c import PyThread_get_thread_ident, kd_tick
from cython.cimports.kadence.consumer.border._hand_c import Attention, Hand, Standing
from cython.cimports.kadence.records._records_c import Cursor, Record

from kadence.records._shared import RecordFormatError

if not cython.compiled:
    raise ImportError("kadence.consumer.application.reading._steps_c is not compiled")


EMPTY = cython.declare(list, [])
"""The records of hands without any; nobody changes it."""

REFILL = cython.declare(cython.Py_ssize_t, 64)
"""Records in a hand that a step refills: few, so that those of some partitions stay in the processor's cache."""


@cython.cclass
class Place:
    """See `_steps_py.Place`."""

    def __init__(self, cell: Standing, partition: object, records: object):
        self.cell = cell
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
            place: Place = cython.cast(Place, entry)
            hand: Hand = place.cell.hand
            if hand is not None and hand.count and hand.counted != hand.index:
                place.records.total += hand.index - hand.counted
                hand.counted = hand.index

    def step(self) -> object:
        return self.take_one()

    @cython.cfunc
    def take_one(self) -> object:
        hand: Hand = self.take_turn(1)
        if hand is None:
            return None
        record: object = hand.records[hand.index]
        if self.decoder is not None:
            record = self.decoded_one(hand, record)
            if record is None:
                return None
        hand.index += 1
        self.passes_on()
        return record

    def several(self, limit: cython.Py_ssize_t) -> object:
        hand: Hand = self.take_turn(limit)
        if hand is None:
            return None
        # Deserialisers may change what is touched.
        place: Place = cython.cast(Place, self.touched[0])
        index: cython.Py_ssize_t = hand.index
        records: list
        if self.decoder is None:
            records = hand.records[index : index + limit]
        else:
            records = self.decoded(place.cell, hand, limit)
            if records is None:
                return None
        chunks: tuple = ((place.partition, records),)
        hand.index = index + len(records)
        self.passes_on()
        return chunks

    @cython.cfunc
    def decoded(self, cell: Standing, hand: Hand, limit: cython.Py_ssize_t) -> list:
        """See `_steps_py.Steps._decoded`."""
        index: cython.Py_ssize_t = hand.index
        records: list = []
        self.is_taking = True
        try:
            self.decoder.run(hand.records, index, index + limit, records)
        finally:
            self.is_taking = False
        return records if records and self.stands(cell, hand, index) else None

    @cython.cfunc
    def decoded_one(self, hand: Hand, raw: object) -> object:
        """As `decoded`, of one record, without the lists."""
        cell: Standing = cython.cast(Place, self.touched[0]).cell
        index: cython.Py_ssize_t = hand.index
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
        return record if self.stands(cell, hand, index) else None

    @cython.cfunc
    @cython.exceptval(check=False)
    def stands(self, cell: Standing, hand: Hand, index: cython.Py_ssize_t) -> cython.bint:
        """Whether the partition is where it was before the deserialisers ran."""
        return self.now >= 0 and cell.hand is hand and hand.lease == cell.lease and hand.index == index

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
    def take_turn(self, least: cython.Py_ssize_t) -> Hand:
        """Begin a poll that the next hand alone can serve; None where there is more to do."""
        if self.attention.up or self.now < 0 or self.is_taking:
            return None
        if not self.order or self.thread != PyThread_get_thread_ident():
            return None
        if (kd_tick() if self.is_system else self.clock()) != self.now:
            return None
        place: Place = cython.cast(Place, self.order[self.at])
        cell: Standing = place.cell
        hand: Hand = cell.hand
        if hand is None or hand.lease != cell.lease or cell.paused or cell.revoking or cell.held:
            return None
        if hand.index >= hand.count and least * 4 <= REFILL:
            hand = self.refill(place, hand)
            if hand is None:
                return None
        if hand.count - hand.index < least + hand.is_last:
            return None
        if len(self.touched) == 1:
            # As after each step. Put in the same place: a list that becomes empty gives up its memory.
            if not self.prove_touched():
                return None
            self.touched[0] = place
        else:
            if not self.prove_touched():
                return None
            self.touched.clear()
            self.touched.append(place)
        self.calls += 1
        return hand

    @cython.cfunc
    def refill(self, place: Place, hand: Hand) -> Hand:
        """Decode a few records more behind a hand that is used up, as the reader would; None: a poll has to look.

        Only behind a sound cursor, within batches that the cursor goes through by itself, and in as many bytes as are
        booked for the hand. Making objects may set off the cycle collector, which runs anything: so what may have
        changed meanwhile is looked at again, and until then the cursor counts as torn.
        """
        cell: Standing = place.cell
        cursor: Cursor = place.cursor
        if cursor is None or place.is_torn or not place.held or cell.end is not None or cursor.remaining < 2:
            return None
        if not self.prove_touched() or hand.began < hand.count:
            return None
        if hand.count:
            place.records.total += hand.index - hand.counted
            # Its records are the application's alone now: their memory is used for the next ones.
            hand.records = EMPTY
            hand.count = 0
            hand.index = hand.began = 1
        items: list = []
        place.is_torn = True
        try:
            if not cursor.take_more(items, REFILL, place.held):
                return None
        except RecordFormatError:
            return None
        if (
            self.attention.up
            or cell.hand is not hand
            or hand.lease != cell.lease
            or place.cursor is not cursor
            or cell.paused
            or cell.revoking
            or cell.held
        ):
            return None
        place.is_torn = False
        if not items:
            return None
        refilled: Hand = Hand.__new__(
            Hand, hand.lease, items, hand.end, hand.end_epoch, cursor.next_offset, cursor.leader_epoch
        )
        refilled.is_proved = True
        cell.hand = refilled
        return refilled

    def prove(self) -> None:
        if not self.prove_touched():
            for entry in self.touched:
                cell: Standing = cython.cast(Place, entry).cell
                hand: Hand = cell.hand
                if hand is not None and hand.lease == cell.lease:
                    hand.began = hand.index
                else:
                    cell.proved = cell.current()
        self.touched.clear()
        self.calls += 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def prove_touched(self) -> cython.bint:
        """What the poll before returned is processed now. False, and nothing is done, where a lease has changed."""
        for entry in self.touched:
            cell: Standing = cython.cast(Place, entry).cell
            hand: Hand = cell.hand
            if hand is None or hand.lease != cell.lease:
                return False
        for entry in self.touched:
            hand = cython.cast(Place, entry).cell.hand
            hand.began = hand.index
        return True

    def let_go(self) -> None:
        for entry in self.touched:
            place: Place = cython.cast(Place, entry)
            hand: Hand = place.cell.hand
            if hand is not None and hand.count and hand.began == 0 and hand.index == hand.count:
                place.gone, place.gone_in = hand.counted, self.calls
                hand.records = EMPTY
                hand.count = 0
                hand.index = 1

    def put_back(self) -> list:
        again: list = []
        for entry in self.touched:
            cell: Standing = cython.cast(Place, entry).cell
            hand: Hand = cell.hand
            if hand is not None and hand.lease == cell.lease:
                hand.index = hand.began
                if hand.count or hand.index:
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
        return self.go_on(None)

    def send(self, value: object) -> object:
        return self.go_on(value)

    @cython.cfunc
    def go_on(self, value: object) -> object:
        if self.inner is None:
            if self.steps is None:
                raise TypeError("this is made by `async for` over a consumer")
            record: object = self.steps.take_one()
            if record is not None:
                raise StopIteration(record)
            self.inner = self.slowly()
        return self.inner.send(value)

    def throw(self, error: object, *rest: object) -> object:
        if self.inner is None:
            raise error
        return self.inner.throw(error, *rest)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()
