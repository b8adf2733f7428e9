"""Acquired fetches → records of one poll (KIP-41, KIP-932). Application side.

Fetches are read in the order in which they came, which is the broker's: it takes partitions in turns. What a poll took
and did not return is put back, and comes with the next one. A fetch whose locks have ended is dropped, for its records
may be with another member by now (Q4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Never

from kadence.clock import Clock
from kadence.consumer.decoded_records import DecodedRecords
from kadence.errors import ConfigError, KafkaError, SchemaRegistryError
from kadence.errors.local import AnswerPendingError
from kadence.metrics.sensors import Tally
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType
from kadence.share.acquired_reader import AcquiredReader, Rows
from kadence.share.application._marks import Chunk
from kadence.share.application.bad_records import Decoding
from kadence.share.application.holding import Holding
from kadence.share.share_state import AcquiredFetch, ShareState

__all__ = ["Buffer"]

_AHEAD_BYTES: Final = 1 << 17
"""For small polls records of about so many bytes are read at once:"""
_LEAST_AHEAD: Final = 16
_MOST_AHEAD: Final = 512
"""at least and at most so many of them."""


def _ahead(records: list[Record[Any, Any]], *, is_last: bool) -> DecodedRecords:
    made = DecodedRecords(0, records, 0, None, 0, None)
    made.is_last = is_last
    return made


_NOTHING: Final = _ahead([], is_last=True)


class Reading:
    """One fetch, and records that were read of it and not returned.

    Attributes:
        fetch, partition: whose they are. ahead: what was read, and how many of these were returned.
        is_gone: what was not returned is not ours any more, or was released.
        released: what is to be said of it then.
    """

    __slots__ = (
        "_at_once",
        "_is_closed",
        "_reader",
        "_rows",
        "ahead",
        "fetch",
        "is_gone",
        "partition",
        "released",
    )

    def __init__(self, fetch: AcquiredFetch, reader: AcquiredReader) -> None:
        self.fetch = fetch
        self.partition = fetch.partition.topic_partition
        self.ahead = _NOTHING
        self.is_gone = False
        self.released: list[Acknowledged] = []
        self._rows: Rows | None = None
        """What was read as columns and not returned."""
        self._reader = reader
        self._is_closed = False
        fits = _AHEAD_BYTES * fetch.count // max(len(fetch.data), 1)
        self._at_once = min(max(fits, _LEAST_AHEAD), _MOST_AHEAD)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is left to return, or to put back."""
        return self._is_closed and self.ahead.index >= self.ahead.count

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is left to return."""
        return self.read_ahead <= 0 and self._rows is None and self._reader.exhausted

    def look(
        self, limit: int, settle: Callable[[AcquiredFetch, list[Acknowledged]], None]
    ) -> list[Record[Any, Any]]:
        """The next records, at most ``limit``.

        Args:
            settle: takes what is to be said of offsets without a record.

        Raises:
            KafkaError: what comes next cannot be read. It is settled, and the next call goes on behind it.
        """
        self._unlook()
        reader = self._reader
        if self.ahead.index >= self.ahead.count:
            self.ahead = _NOTHING
            try:
                while not (self.ahead.count or reader.exhausted):
                    records = reader.take(max(limit, self._at_once))
                    ahead = _ahead(records, is_last=reader.exhausted)
                    # Nothing comes between these two, not even Ctrl-C.
                    self.ahead, reader.begun = ahead, None
            except KafkaError as error:
                # What a consumer is advised to do does not fit a queue.
                told = str(error).partition(". The position stays")[0]
                raise type(error)(f"{told}; what cannot be read is released") from error
            finally:
                reader.undo()
                settle(self.fetch, reader.settled)
                if reader.exhausted:
                    # Records are copies.
                    self.close()
        index = self.ahead.index
        return self.ahead.records[index : index + limit]

    @property
    def read_ahead(self) -> int:
        """How many records were read and not returned."""
        return self.ahead.count - self.ahead.index

    def look_at_rows(self, limit: int, columns: Collection[str]) -> Rows | None:
        """As `look`, as columns. None: `look` has what comes next."""
        self._unlook()
        if self.read_ahead <= 0:
            reader = self._reader
            rows = reader.take_rows(limit, columns)
            # As above.
            self._rows, reader.begun = rows, None
        return self._rows

    def pass_rows(self) -> None:
        """What was looked at is returned. The bytes are kept for `put_rows_back` until the next look."""
        self._rows = None

    def put_rows_back(self, rows: Rows) -> None:
        """These were taken last, and are the next ones again. Twice is as once."""
        self._rows = None
        self._reader.untake(rows)

    def _unlook(self) -> None:
        rows = self._rows
        if rows is not None:
            self._reader.untake(rows)
            self._rows = None
        self._reader.undo()

    def behind(self, records: Sequence[Record[Any, Any]]) -> DecodedRecords:
        """These, which were taken, and behind them what is `ahead` now."""
        left = self.ahead.records[self.ahead.index :]
        return _ahead([*records, *left], is_last=self._reader.exhausted)

    def left(self) -> list[Acknowledged]:
        """What was not returned, as to be released, and what is settled and not said."""
        self._unlook()
        found = [
            Acknowledged(each.offset, each.offset, AcknowledgeType.RELEASE)
            for each in self.ahead.records[self.ahead.index :]
        ]
        return [*self._reader.settled, *found, *self._reader.rest()]

    def close(self) -> None:
        """Give its bytes back."""
        self._reader.close()
        self._is_closed = True


class Taken:
    """What a poll took of one fetch.

    Attributes:
        chunk: what it returns. raw: the same records as they came, to put them back. is_back: they were.
    """

    __slots__ = ("chunk", "is_back", "raw", "reading")

    def __init__(self, reading: Reading, raw: list[Record[Any, Any]], chunk: Chunk) -> None:
        self.reading = reading
        self.raw = raw
        self.chunk = chunk
        self.is_back = False


class Buffer:
    """The acquired fetches of one share consumer that polls have not used up.

    Args:
        decoding: None: polls return bytes.
    """

    def __init__(
        self,
        shared_state: ShareState,
        holding: Holding,
        decoding: Decoding | None,
        clock: Clock,
        *,
        check_crcs: bool,
        max_batch_bytes: int,
    ) -> None:
        self.decoding = decoding
        self._shared_state = shared_state
        self._holding = holding
        self._clock = clock
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._readings: deque[Reading] = deque()
        self._errors: deque[KafkaError] = deque() if decoding is None else decoding.errors
        self._waits: dict[Reading, AnswerPendingError] = {}
        self._topics: frozenset[str] = frozenset()
        """What is subscribed to. Fetches that were under way when that changed may bring other topics."""
        self._taken: list[Taken] = []
        """What the last take gave."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was fetched that polls have not used up, and no error waits."""
        return not (self._readings or self._shared_state.acquired_fetches or self._errors)

    def take(
        self, limit: int, *, decodes: bool = True, columns: Collection[str] | None = None
    ) -> list[Chunk]:
        """Up to ``limit`` records.

        Args:
            decodes: whether deserialisers are called.
            columns: make these where that is possible, instead of records; nothing is decoded then.

        Raises:
            KafkaError: what comes next cannot be read or decoded, and nothing came before it.
        """
        taken: list[Taken] = []
        self._taken = taken
        self._admit()
        decoding = self.decoding if decodes else None
        if decoding is not None and decoding.awaits_letters:
            decoding.settle_letters()
        if self._errors:
            self._raise_first()
        now = self._clock.now_ms()
        for reading in tuple(self._readings):
            if not self._is_wanted(reading, now) or (
                reading in self._waits and not self._is_answered(reading)
            ):
                continue
            try:
                if columns is not None:
                    if (read_ahead := reading.read_ahead) > 0:
                        limit -= self._take_of(reading, min(limit, read_ahead), None, taken)
                    count = self._take_rows(reading, limit, columns, taken)
                    limit -= count or self._take_of(reading, limit, None, taken)
                else:
                    limit -= self._take_of(reading, limit, decoding, taken)
            except KafkaError as error:
                if not taken:
                    raise
                if not isinstance(error, SchemaRegistryError | ConfigError):
                    # Settled already. The others come again by themselves.
                    self._errors.append(error)
                break
            if reading.is_empty and not reading.is_gone:
                self._readings.remove(reading)
            if limit <= 0 or self._errors:
                break
        if not taken and self._errors:
            self._raise_first()
        return [each.chunk for each in taken]

    def _raise_first(self) -> Never:
        error = self._errors[0]
        # Nothing stands in between: Ctrl-C must not take the place of an error that is told only once.
        del self._errors[0]
        raise error

    def _take_rows(self, reading: Reading, limit: int, columns: Collection[str], taken: list[Taken]) -> int:
        """As `_take_of`, as columns. No records are taken behind them: to put both back is not possible."""
        count = 0
        while count < limit and (rows := reading.look_at_rows(limit - count, columns)) is not None:
            one = Taken(reading, [], Chunk(reading.fetch, reading.partition, [], rows))
            fetch, passed, records = reading.fetch, one.chunk.count, self._counted(reading)
            now = self._clock.now_ms()
            # Nothing comes between these, not even Ctrl-C: what was taken can be put back.
            fetch.taken_at = now
            fetch.left -= passed
            records.total += passed
            taken.append(one)
            reading.pass_rows()
            count += passed
            self._shared_state.look_for_room(fetch)
        return count

    def _take_of(self, reading: Reading, limit: int, decoding: Decoding | None, taken: list[Taken]) -> int:
        """Take from one fetch. Returns how many records."""
        count = 0
        while count < limit and (raw := reading.look(limit - count, self._settle)):
            fetch = reading.fetch
            chunk = Chunk(fetch, reading.partition, raw)
            if decoding is None:
                passed = len(raw)
            else:
                chunk.is_decoded = True
                decoded = decoding.decode(fetch, raw, is_first=not taken)
                chunk.records, raw, passed = decoded.good, decoded.raw, decoded.passed
                if reading.is_gone:
                    # A deserialiser, or a signal handler, has ended the subscription: these were released.
                    if decoded.interrupted is not None:
                        raise decoded.interrupted
                    break
                if decoded.waits is not None:
                    self._waits[reading] = decoded.waits
            one = Taken(reading, raw, chunk)
            good, records = len(chunk.records), self._counted(reading)
            now = self._clock.now_ms()
            if decoding is not None and decoded.bad:
                for offset, _ in decoded.held:
                    self._holding.make_room(chunk, offset)
                skipped = len(decoded.settled)
                self._holding.settle(fetch, decoded.settled)
                # As above.
                decoding.skipped += skipped
                decoding.under_way += decoded.letters
                decoding.errors += decoded.errors
            # As above.
            fetch.taken_at = now
            fetch.left -= passed
            records.total += good
            reading.ahead.index += passed
            if good:
                taken += (one,)
                count += good
            if decoding is not None:
                # There is one at most: behind it no more are decoded.
                for offset, kind in decoded.held:
                    self._holding.marks.turn_bad(chunk, offset, kind)
            self._shared_state.look_for_room(fetch)
            if decoding is not None:
                if decoded.interrupted is not None:
                    raise decoded.interrupted
                if self._errors or reading in self._waits or not passed:
                    break
        return count

    def _is_wanted(self, reading: Reading, now: int) -> bool:
        """Whether polls may return what is left of it; else that is dropped or released."""
        if reading.is_gone:
            # Ctrl-C has kept it here.
            self._end(reading)
        elif not reading.fetch.is_locked(now):
            self._drop(reading)
        elif reading.partition.topic not in self._topics:
            self._release(reading)
        return not reading.is_gone

    def _is_answered(self, reading: Reading) -> bool:
        """Whether what the next record waits for is there. Raises the error that came in its place."""
        pending = self._waits[reading]
        if not pending.is_over:
            return False
        del self._waits[reading]
        pending.check()
        return True

    def _admit(self) -> None:
        """Begin with what has come."""
        fetches = self._shared_state.acquired_fetches
        while fetches:
            # Taken out last: an interruption loses none.
            fetch = fetches[0]
            if not self._readings or self._readings[-1].fetch is not fetch:
                reader = AcquiredReader(
                    fetch, check_crcs=self._check_crcs, max_batch_bytes=self._max_batch_bytes
                )
                self._readings.append(Reading(fetch, reader))
            fetches.popleft()

    def _settle(self, fetch: AcquiredFetch, ranges: list[Acknowledged]) -> None:
        if ranges:
            self._holding.settle(fetch, ranges, is_buffered=True)
            self._shared_state.look_for_room(fetch)

    def _drop(self, reading: Reading) -> None:
        """Its locks have ended."""
        fetch, measures = reading.fetch, self._shared_state.measures
        # Nothing comes between these, not even Ctrl-C.
        measures.dropped += fetch.left
        fetch.left, reading.is_gone = 0, True
        self._end(reading)
        self._shared_state.look_for_room(fetch)

    def _end(self, reading: Reading) -> None:
        """It is gone. Twice is as once."""
        self._settle(reading.fetch, reading.released)
        reading.close()
        self._waits.pop(reading, None)
        if reading in self._readings:
            self._readings.remove(reading)

    def _counted(self, reading: Reading) -> Tally:
        """What counts the records for the metrics."""
        return self._shared_state.measures.poll_measures.topic(reading.partition.topic).records

    def only_one(self) -> Reading | None:
        """Whose record the last take gave, if it gave one, and the next one there can be taken at once."""
        if len(self._taken) == 1 and len(self._taken[0].raw) == 1 and not self._errors:
            reading = self._taken[0].reading
            if reading not in self._waits:
                return reading
        return None

    def returned(self) -> None:
        """The application has what the last take gave: it is not put back any more."""
        taken, self._taken = self._taken, []
        for each in taken:
            if each.chunk.rows is not None and each.reading.is_read:
                # Its bytes are not needed for that any more.
                each.reading.close()
                if each.reading in self._readings:
                    self._readings.remove(each.reading)

    def put_back(self) -> None:
        """The poll that took last does not return: what it took comes with the next one (C7)."""
        taken = self._taken
        while taken:
            self._put_back(taken[-1])
            taken.pop()

    def _put_back(self, each: Taken) -> None:
        """Put back what was taken last. What a second Ctrl-C ends is done again, from its beginning."""
        reading, rows, count = each.reading, each.chunk.rows, each.chunk.count
        fetch, records = reading.fetch, self._counted(reading)
        if each.is_back:
            return
        if reading.is_gone:
            # The subscription has changed in the midst of the poll.
            if fetch.is_locked(self._clock.now_ms()):
                self._holding.settle(fetch, each.chunk.all_said(AcknowledgeType.RELEASE))
            # Nothing comes between these, not even Ctrl-C.
            records.total -= count
            each.is_back = True
            return
        if reading not in self._readings:
            self._readings.appendleft(reading)
        ahead = reading.ahead
        if rows is None:
            ahead = reading.behind(each.raw)
        else:
            reading.put_rows_back(rows)
        # As above.
        records.total -= count
        fetch.left += count
        reading.ahead, each.is_back = ahead, True

    def release_all_but(self, topics: frozenset[str]) -> None:
        """The subscription changes: others may have at once what was fetched of other topics."""
        self._topics = topics
        self._admit()
        for reading in tuple(self._readings):
            if reading.partition.topic not in topics:
                self._release(reading)

    def _release(self, reading: Reading) -> None:
        if not reading.is_gone:
            left = reading.left()
            # Nothing comes between these two, not even Ctrl-C.
            reading.released, reading.is_gone = left, True
        self._end(reading)

    def drop_all(self) -> None:
        """It is closed: give all bytes back."""
        self._admit()
        for reading in tuple(self._readings):
            reading.is_gone = True
            self._end(reading)
