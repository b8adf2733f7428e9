"""Steps: polls that one partition's decoded records can serve. Application side.

A poll has much to check: background events, a commit that is due, the poll timer, the thread inside. None of that
changes until a thread raises the shared state's attention or time passes. So a poll that has checked it all *arms* the
steps, and until then a poll only takes the next partition's turn and moves an index. Time is measured in ticks of the
system where these can be read (1 to 10 ms, usually 4), else in milliseconds.

A step also decodes the next few records when those are used up, or for a larger poll just what it returns. The last
record of a fetch is never a step: taking it releases the fetch, which may wake the network thread.

Where deserialisers are set a step runs them (C14). They are the application's code and may take long, or call this
consumer. So they run before anything moves, and their possible changes are checked afterwards. A record that they
refuse is left to a whole poll, which handles it, and the error is kept for that poll.

Each step counts as a poll (C6): records of the previous one are processed, partitions take turns (A2), and the poll
timer knows the time of the last poll to a tick.

A step makes all objects before it takes a record, and runs no Python code from there until it returns it, so no
other thread and no signal handler comes between the two. Without the interpreter's lock a step is a critical
section of the attention: a thread that raises it waits for the current step, and the next step sees it raised.
Deserialisers and interceptors run outside of it.

It is compiled; the C types of the fields are in the .pxd file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from kadence._native import refuse
from kadence._native.shared import RecordFormatError
from kadence.errors.local import AnswerPendingError

if not cython.compiled:
    refuse(__name__)
    from kadence.consumer._decoded_records import Decoder, Records, intercept, one_chunk
    from kadence.consumer.decoded_records import Attention, DecodedRecords, DeliveryState
    from kadence.consumer.shared_partition import SharedPartition
    from kadence.metrics.sensors import Tally
    from kadence.records import FetchedRecords, Record
    from kadence.types import TopicPartition

    kd_tick: Callable[[], int]
    PyThread_get_thread_ident: Callable[[], int]

__all__ = ["ReaderState", "Steps"]

_EMPTY: list[Any] = []
"""The list of readers without records; it is never changed."""

_REFILL = 64
"""How many records a step decodes at once: few, so that those of several partitions stay in the processor's cache."""

_MANY = _REFILL // 4
"""A poll of more than this decodes what it returns, and no more."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def this_thread() -> cython.ulong:
    """The identifier of the calling thread."""
    return PyThread_get_thread_ident()


@cython.cclass
class ReaderState:
    """The part of a partition's reader that steps use.

    Attributes:
        records: counts the records that were returned.
        opened: the fetch that is being read, positioned after the decoded records; a step decodes more from it when
            those are used up. None: none is open. It is also None while records are taken from it: if that is
            interrupted, the fetch is opened again after the decoded records.
        held: bytes of the decoded records, as the shared state counts them.
        gone: how many records a poll has returned and counted that are no longer kept. gone_in: the number of that poll
            (`Steps.calls`).
    """

    def __init__(self, shared_partition: SharedPartition, partition: TopicPartition, records: Tally) -> None:
        self.shared_partition = shared_partition
        self.partition = partition
        self.records = records
        self.opened: FetchedRecords | None = None
        self.held = 0
        self.gone = self.gone_in = 0

    @property
    def decoded(self) -> DecodedRecords | None:
        """The decoded records, if they belong to the current fetch epoch."""
        # None: this object was created without its arguments.
        shared_partition: DeliveryState | None = self.shared_partition
        if shared_partition is None:
            return None
        decoded: DecodedRecords | None = shared_partition.decoded
        return (
            decoded if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch else None
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def replace(self, decoded: DecodedRecords) -> cython.void:
        """Make these the decoded records. Other threads may read the old ones meanwhile, see `DecodedRecords`."""
        with cython.critical_section(self.shared_partition):
            self.shared_partition.decoded = decoded

    @property
    def left(self) -> int:
        """How many decoded records are left."""
        decoded: DecodedRecords | None = self.decoded
        return 0 if decoded is None else decoded.left


@cython.final
@cython.cclass
class Steps:
    """Serves polls that only take the next records of one partition.

    Args:
        attention: the shared state's. clock: the current time in ms. polls: counts polls.
        is_system: ``clock`` is the machine's own, which steps read directly.

    Attributes:
        decoder: runs the deserialisers; None if there are none.
        usual: the cap of a poll without max_records; 0: a whole poll determines it.
        is_taking: a step or a whole poll is taking records: no other poll may begin.
        touched: readers from which the current poll, or the one that ended last, has taken something.
        calls: how often `mark_processed` was called or a step was taken.
        taken: steps that are not counted yet. latest: the record that was decoded for one of them last.
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
        self.usual = 0
        self.is_taking = False
        self.is_intercepting = False
        self.calls = 0
        self.taken = 0
        self.latest: Any = None

    def intercept_with(
        self, interceptors: Any, consuming: tuple[Any, ...], put_back_poll: Callable[[int], None]
    ) -> None:
        """Pass the records of steps to interceptors.

        Args:
            interceptors: `Interceptors`. consuming: those with `on_consume`. put_back_poll: puts back the records taken
                since that value of ``calls``, after Ctrl-C in an interceptor.
        """
        self.interceptors = interceptors
        self.consuming = consuming
        self.put_back_poll = put_back_poll

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def time(self) -> cython.longlong:
        """A number that changes when time passes."""
        if self.is_system:
            return kd_tick()
        return self.clock()

    def take_over(self) -> None:
        """From here on only the calling thread may take steps: it is inside a call of the consumer."""
        self.thread = this_thread()

    def arm(self, now: cython.longlong, order: list[ReaderState]) -> None:
        """Arm the steps: a poll that began at ``now`` only had to take records.

        Args:
            order: the readers in the order of their turns.
        """
        with cython.critical_section(self.attention):
            self.order = order
            self.at = 0
            self.now = kd_tick() if self.is_system else now
            self.thread = this_thread()

    def disarm(self) -> list[ReaderState]:
        """Disarm the steps: a poll checks everything again. Returns the readers to serve after all others."""
        with cython.critical_section(self.attention):
            # Kept alive: to let go of them may run any code, as may the garbage collection that slicing may start.
            order: list[ReaderState] = self.order
            latest: Any = self.latest  # noqa: F841
            served = order[: self.at]
            self.count_taken()
            self.now = -1
            self.order = []
            self.at = 0
            self.latest = None
            return served

    def settle(self) -> None:
        """Count the steps taken so far. Any thread, such as one that reads the metrics."""
        with cython.critical_section(self.attention):
            self.count_taken()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_taken(self) -> cython.bint:
        """See `settle`.

        The caller holds the critical section of `attention`. It enters none itself: entering one twice is expensive on
        a free-threaded Python 3.13.
        """
        taken: cython.Py_ssize_t = self.taken
        if not taken:
            return False
        self.taken = 0
        self.polls.count += taken
        for entry in self.order:
            place: ReaderState = cython.cast(ReaderState, entry)
            decoded: DecodedRecords | None = place.shared_partition.decoded_now()
            if decoded is not None and decoded.count and decoded.counted != decoded.index:
                place.records.total += decoded.index - decoded.counted
                decoded.counted = decoded.index
        return True

    def step(self) -> Any:
        """A poll of one; None when a whole poll is needed, or the next partition has no decoded records."""
        return self.take_one()

    @cython.cfunc
    def take_one(self) -> object:
        """See `step`. A record that interceptors leave out counts as a poll."""
        while True:
            with cython.critical_section(self.attention):
                decoded: DecodedRecords | None = self.take_turn(1)
                if decoded is None:
                    return None
                # Deserialisers may change `touched`.
                place: ReaderState = cython.cast(ReaderState, self.touched[0])
                record: Any = decoded.records[decoded.index]
                if self.decoder is None:
                    decoded.index += 1
                    self.pass_on()
            if self.decoder is not None:
                record = self.decoded_one(place.shared_partition, decoded, record)
                if record is None:
                    return None
            if self.interceptors is None:
                return record
            given: Records = one_chunk(place.partition, [record])
            found: Records = self.intercepted(given)
            if found is not given:
                record = self.interceptors.first(found)
            if record is not None:
                return record

    def poll(self, most: Any) -> Any:
        """A poll of ``most``; None when a whole poll is needed, or the next partition has fewer decoded records.

        It returns fewer where a deserialiser refuses one of them.
        """
        try:
            limit: cython.Py_ssize_t = most
        except OverflowError:
            # A whole poll raises the error.
            return None
        with cython.critical_section(self.attention):
            decoded: DecodedRecords | None = self.take_turn(limit) if limit > 0 else None
            if decoded is None:
                return None
            # Deserialisers may change `touched`.
            place: ReaderState = cython.cast(ReaderState, self.touched[0])
            index: cython.Py_ssize_t = decoded.index
            found: Records
            if self.decoder is None:
                is_whole: cython.bint = (
                    limit > _MANY and index == 0 and decoded.count == limit and self.interceptors is None
                )
                # Create all objects before anything moves: that may start a garbage collection, which may run any code.
                kept: list[Any] = decoded.records
                self.is_taking = True
                try:
                    found = one_chunk(place.partition, kept if is_whole else kept[index : index + limit])
                finally:
                    self.is_taking = False
                if not self.stands(place.shared_partition, decoded, index):
                    return None
                if is_whole:
                    self.give_whole(place, decoded)
                else:
                    decoded.index = index + limit
                    self.pass_on()
        if self.decoder is not None:
            records: list[Any] = self.decoded(decoded, limit)
            if not records:
                return None
            found = one_chunk(place.partition, records)
            with cython.critical_section(self.attention):
                if not self.stands(place.shared_partition, decoded, index):
                    return None
                decoded.index = index + len(records)
                self.pass_on()
        return found if self.interceptors is None else self.intercepted(found)

    @cython.cfunc
    def intercepted(self, records: Records) -> Records:
        """Pass the record of a step through the interceptors. It is put back if Ctrl-C ends them."""
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
    def decoded(self, decoded: DecodedRecords, limit: cython.Py_ssize_t) -> list[Any]:
        """Deserialise the next decoded records.

        Deserialisers may have called this consumer: seek, close, or a call that gives the partition up.
        """
        index: cython.Py_ssize_t = decoded.index
        records: list[Any] = []
        self.is_taking = True
        try:
            cython.cast(Decoder, self.decoder).run(decoded.records, index, index + limit, records)
        finally:
            self.is_taking = False
        return records

    @cython.cfunc
    def decoded_one(self, shared_partition: DeliveryState, decoded: DecodedRecords, raw: Any) -> object:
        """As `decoded`, for one record, without lists. Takes the step, or returns None when a whole poll is needed."""
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
            if isinstance(error, MemoryError) or not isinstance(error, (Exception, AnswerPendingError)):
                raise
            decoder.failed = (raw, decoder.field(), error)
            return None
        self.is_taking = False
        # Before anything moves: the one before goes, which may run any code.
        self.latest = record
        with cython.critical_section(self.attention):
            if not self.stands(shared_partition, decoded, index):
                return None
            decoded.index += 1
            self.pass_on()
            return record

    @cython.cfunc
    @cython.exceptval(check=False)
    def stands(
        self, shared_partition: DeliveryState, decoded: DecodedRecords, index: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether the partition's position is the same as before the deserialisers ran."""
        return (
            self.now >= 0
            and self.thread == this_thread()
            and shared_partition.decoded is decoded
            and decoded.fetch_epoch == shared_partition.fetch_epoch
            and decoded.index == index
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def pass_on(self) -> cython.void:
        """Move on to the next partition's turn."""
        self.taken += 1
        self.at = 0 if self.at + 1 == len(self.order) else self.at + 1

    def is_inside_elsewhere(self) -> bool:
        """Whether another thread is in a deserialiser or interceptor that it called without entering the consumer."""
        return (self.is_taking or self.is_intercepting) and self.thread != this_thread()

    @cython.cfunc
    def take_turn(self, least: cython.Py_ssize_t) -> DecodedRecords | None:
        """Begin a poll that the next partition's decoded records can serve; None when a whole poll is needed."""
        if self.attention.up or self.now < 0 or self.is_taking:
            return None
        if self.thread != this_thread() or self.time() != self.now or not self.order:
            return None
        place: ReaderState = cython.cast(ReaderState, self.order[self.at])
        shared_partition: DeliveryState = place.shared_partition
        decoded: DecodedRecords | None = shared_partition.decoded
        if (
            decoded is None
            or decoded.fetch_epoch != shared_partition.fetch_epoch
            or shared_partition.paused
            or shared_partition.work_paused
            or shared_partition.revoking
            or shared_partition.held
        ):
            return None
        if decoded.index >= decoded.count:
            decoded = self.refill(place, decoded, least)
            if decoded is None:
                return None
        if decoded.count - decoded.index < least + decoded.is_last:
            return None
        if not self.mark_touched_processed():
            return None
        if len(self.touched) == 1:
            # As after each step. Replaced in place: a list that becomes empty releases its memory.
            self.touched[0] = place
        else:
            self.touched.clear()
            self.touched.append(place)
        # Last: only records taken after this may be put back.
        self.calls += 1
        return decoded

    @cython.cfunc
    def refill(
        self, place: ReaderState, decoded: DecodedRecords, limit: cython.Py_ssize_t
    ) -> DecodedRecords | None:
        """Decode more records when all have been returned, as the reader would; None: a whole poll is needed.

        Only in the open batch, and in those that the fetch moves on to by itself. A few for small polls, until they
        take as many bytes as decoded records may; for larger ones the records that they return. Creating objects may
        start the cycle collector, which may run any code, so possible changes are checked afterwards.
        """
        shared_partition: DeliveryState = place.shared_partition
        opened: FetchedRecords | None = place.opened
        if (
            opened is None
            or (limit <= _MANY and not place.held)
            or shared_partition.end is not None
            or not opened.remaining
        ):
            return None
        if not self.mark_touched_processed() or decoded.began < decoded.count:
            return None
        if decoded.count:
            place.records.total += decoded.index - decoded.counted
            # Its records now belong to the application alone, so its memory can be reused for the next ones.
            with cython.critical_section(decoded):
                # A thread that waits to enter a critical section releases the sections that it holds.
                if self.attention.up:
                    return None
                decoded.records = _EMPTY
                decoded.count = 0
                decoded.index = decoded.began = 1
        items: list[Any] = []
        refilled: DecodedRecords | None = None
        self.is_taking = True
        try:
            is_last: cython.bint = self.read(place, opened, items, limit)
            if items:
                refilled = DecodedRecords(
                    decoded.fetch_epoch,
                    items,
                    decoded.end,
                    decoded.end_epoch,
                    opened.next_offset,
                    opened.leader_epoch,
                )
                refilled.is_processed = True
                refilled.is_last = is_last
        finally:
            self.is_taking = False
        # From here on no object is created.
        with cython.critical_section(shared_partition):
            if (
                self.attention.up
                or shared_partition.decoded is not decoded
                or decoded.fetch_epoch != shared_partition.fetch_epoch
                or place.opened is not None
                or shared_partition.paused
                or shared_partition.work_paused
                or shared_partition.revoking
                or shared_partition.held
            ):
                return None
            place.opened = opened
            if refilled is not None:
                shared_partition.decoded = refilled
            return refilled

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read(
        self, place: ReaderState, opened: FetchedRecords, items: list[Any], limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Append the next records of a fetch to ``items``. Returns whether the fetch has no records after them."""
        reader: Any = place
        place.opened = None
        try:
            if limit > _MANY:
                opened.read(items, limit)
            else:
                size: cython.Py_ssize_t = opened.read(items, _REFILL, place.held)
                if size > place.held:
                    reader.hold(size)
        except RecordFormatError as error:
            # The poll that finds no record before it raises it.
            opened.fail_in_batch(error, has_given=True)
            return False
        if opened.remaining:
            return False
        opened.settle(has_given=True)
        reader.keep_books(opened)
        return opened.exhausted

    def mark_processed(self) -> None:
        """The application polls again, so the records that it got are processed: at least once (D1)."""
        if not self.mark_touched_processed():
            for entry in self.touched:
                shared_partition: Any = cython.cast(ReaderState, entry).shared_partition
                decoded: DecodedRecords | None = shared_partition.decoded
                if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                    decoded.began = decoded.index
                else:
                    # The fetch epoch has changed since without a seek or reset: records returned before that are
                    # processed, too.
                    shared_partition.processed = shared_partition.current()
        self.touched.clear()
        # Last: only records taken after this may be put back.
        self.calls += 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def mark_touched_processed(self) -> cython.bint:
        """Mark the records of the previous poll processed.

        False: nothing is done, because a fetch epoch has changed.
        """
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
        """The poll returns: drop the references to records that it took as a whole list.

        Otherwise their memory could not be reused for the next ones, which makes large records half as expensive again.
        If Ctrl-C still comes before the caller has them, they are fetched again.
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
                self.let_go_of(place, decoded)

    @cython.cfunc
    @cython.exceptval(check=False)
    def let_go_of(self, place: ReaderState, decoded: DecodedRecords) -> cython.void:
        """The current poll has taken all of these, and they are counted."""
        place.gone = decoded.counted
        place.gone_in = self.calls
        with cython.critical_section(decoded):
            decoded.records = _EMPTY
            decoded.count = 0
            decoded.index = 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def give_whole(self, place: ReaderState, decoded: DecodedRecords) -> cython.bint:
        """A step takes all of the decoded records, and drops its references at once: nothing comes between."""
        place.records.total += decoded.count - decoded.counted
        decoded.counted = decoded.count
        self.let_go_of(place, decoded)
        self.pass_on()
        return True

    def put_back(self) -> list[ReaderState]:
        """The records of the current poll were not returned: set each index back to where the poll began.

        Returns:
            readers for which that is not enough: their records are no longer kept, or their fetch epoch has changed.
        """
        again: list[ReaderState] = []
        for entry in self.touched:
            place: ReaderState = cython.cast(ReaderState, entry)
            shared_partition: DeliveryState = place.shared_partition
            decoded: DecodedRecords | None = shared_partition.decoded
            if decoded is not None and decoded.fetch_epoch == shared_partition.fetch_epoch:
                decoded.index = decoded.began
                # A seek may come before they are returned again. Another thread may count meanwhile.
                with cython.critical_section(self.attention):
                    if decoded.count and decoded.counted > decoded.index:
                        place.records.total -= decoded.counted - decoded.index
                        decoded.counted = decoded.index
                if decoded.count or decoded.index:
                    continue
            again.append(entry)
        return again
