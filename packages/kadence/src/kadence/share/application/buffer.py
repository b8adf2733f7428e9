"""Acquired fetches → records of one poll (KIP-41, KIP-932). Application side.

Fetches are read in the order in which they came, which is the broker's: it takes partitions in turns. What a poll took
and did not return is put back, and comes with the next one. A fetch whose locks have ended is dropped, for its records
may be with another member by now (Q4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kadence.clock import Clock
from kadence.errors import ConfigError, KafkaError, SchemaRegistryError
from kadence.errors.local import AnswerPendingError
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType
from kadence.share.acquired_reader import AcquiredReader
from kadence.share.application.bad_records import Decoding
from kadence.share.application.holding import Chunk, Holding
from kadence.share.share_state import AcquiredFetch, ShareState

__all__ = ["Buffer"]

_AHEAD: Final = 128
"""Records that are read at once for small polls."""


class Reading:
    """One fetch, and records that were read of it and not returned.

    Attributes:
        fetch, partition: whose they are. records: what was read. index: how many of these were returned.
        is_gone: what was not returned is not ours any more, or was released.
    """

    __slots__ = ("_reader", "fetch", "index", "is_gone", "partition", "records")

    def __init__(self, fetch: AcquiredFetch, reader: AcquiredReader) -> None:
        self.fetch = fetch
        self.partition = fetch.partition.topic_partition
        self.records: list[Record[Any, Any]] = []
        self.index = 0
        self.is_gone = False
        self._reader = reader

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is left to return."""
        return self.index >= len(self.records) and self._reader.exhausted

    def look(
        self, limit: int, settle: Callable[[AcquiredFetch, list[Acknowledged]], None]
    ) -> list[Record[Any, Any]]:
        """The next records, at most ``limit``.

        Args:
            settle: takes what is to be said of offsets without a record.

        Raises:
            KafkaError: what comes next cannot be read. It is settled, and the next call goes on behind it.
        """
        if self.index >= len(self.records):
            self.records, self.index = [], 0
            try:
                while not (self.records or self._reader.exhausted):
                    self.records = self._reader.take(max(limit, _AHEAD))
            except KafkaError as error:
                # What a consumer is advised to do does not fit a queue.
                told = str(error).partition(". The position stays")[0]
                raise type(error)(f"{told}; what cannot be read is released") from error
            finally:
                if settled := self._reader.settled():
                    settle(self.fetch, settled)
                if self._reader.exhausted:
                    # Records are copies.
                    self.close()
        return self.records[self.index : self.index + limit]

    def put_back(self, records: Sequence[Record[Any, Any]]) -> None:
        """These were taken, and are the next ones again."""
        self.records, self.index = [*records, *self.records[self.index :]], 0

    def left(self) -> list[Acknowledged]:
        """What was not returned, as to be released."""
        found = [
            Acknowledged(each.offset, each.offset, AcknowledgeType.RELEASE)
            for each in self.records[self.index :]
        ]
        return found + self._reader.rest()

    def close(self) -> None:
        """Give its bytes back."""
        self._reader.close()


class Taken:
    """What a poll took of one fetch: the chunk that it returns, and the records as they came, to put them back."""

    __slots__ = ("chunk", "raw", "reading")

    def __init__(self, reading: Reading, raw: list[Record[Any, Any]], chunk: Chunk) -> None:
        self.reading = reading
        self.raw = raw
        self.chunk = chunk


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

    def take(self, limit: int, *, decodes: bool = True) -> list[Chunk]:
        """Up to ``limit`` records.

        Args:
            decodes: whether deserialisers are called.

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
            raise self._errors.popleft()
        now = self._clock.now_ms()
        for reading in tuple(self._readings):
            if reading.is_gone:
                continue
            if not reading.fetch.is_locked(now):
                self._drop(reading)
                continue
            if reading.partition.topic not in self._topics:
                self._release(reading)
                continue
            if reading in self._waits and not self._is_answered(reading):
                continue
            try:
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
            raise self._errors.popleft()
        self._count(taken, 1)
        return [each.chunk for each in taken]

    def _take_of(self, reading: Reading, limit: int, decoding: Decoding | None, taken: list[Taken]) -> int:
        """Take from one fetch. Returns how many records."""
        count = 0
        while count < limit and (raw := reading.look(limit - count, self._settle)):
            chunk = Chunk(reading.fetch, reading.partition, raw)
            if decoding is None:
                passed = len(raw)
            else:
                decoded = decoding.decode(reading.fetch, chunk, raw)
                chunk.records, raw, passed = decoded.good, decoded.raw, decoded.passed
                if reading.is_gone:
                    # A deserialiser, or a signal handler, has ended the subscription: these were released.
                    if decoded.interrupted is not None:
                        raise decoded.interrupted
                    break
                if decoded.waits is not None:
                    self._waits[reading] = decoded.waits
            one = Taken(reading, raw, chunk)
            self._shared_state.took(reading.fetch, self._clock.now_ms(), passed)
            # Nothing comes between these two, not even Ctrl-C: what was taken can be put back.
            reading.index += passed
            if chunk.records:
                taken.append(one)
                count += len(chunk.records)
            if decoding is not None:
                if decoded.interrupted is not None:
                    raise decoded.interrupted
                if self._errors or reading in self._waits or not passed:
                    break
        return count

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
        self._holding.settle(fetch, ranges)
        self._shared_state.took(
            fetch, self._clock.now_ms(), sum(each.last - each.first + 1 for each in ranges)
        )

    def _drop(self, reading: Reading) -> None:
        """Its locks have ended."""
        self._shared_state.measures.dropped += reading.fetch.left
        self._shared_state.took(reading.fetch, self._clock.now_ms(), reading.fetch.left)
        self._remove(reading)

    def _remove(self, reading: Reading) -> None:
        reading.is_gone = True
        reading.close()
        self._waits.pop(reading, None)
        self._readings.remove(reading)

    def _count(self, taken: list[Taken], sign: int) -> None:
        """Tell the metrics."""
        poll_measures = self._shared_state.measures.poll_measures
        for each in taken:
            poll_measures.topic(each.chunk.partition.topic).records.total += sign * len(each.chunk.records)

    def returned(self) -> None:
        """The application has what the last take gave: it is not put back any more."""
        self._taken = []

    def put_back(self) -> None:
        """The poll that took last does not return: what it took comes with the next one (C7)."""
        taken, self._taken = self._taken, []
        self._count(taken, -1)
        now = self._clock.now_ms()
        for each in reversed(taken):
            if each.reading.is_gone:
                continue
            self._shared_state.took(each.reading.fetch, now, -len(each.raw))
            each.reading.put_back(each.raw)
            if each.reading not in self._readings:
                self._readings.appendleft(each.reading)

    def release_all_but(self, topics: frozenset[str]) -> None:
        """The subscription changes: others may have at once what was fetched of other topics."""
        self._topics = topics
        self._admit()
        for reading in tuple(self._readings):
            if reading.partition.topic not in topics:
                self._release(reading)

    def _release(self, reading: Reading) -> None:
        left = reading.left()
        self._remove(reading)
        self._settle(reading.fetch, left)

    def drop_all(self) -> None:
        """It is closed: give all bytes back."""
        self._admit()
        for reading in tuple(self._readings):
            self._remove(reading)
