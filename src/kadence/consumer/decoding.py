"""Keys and values from bytes, and what becomes of records that are bad. Application side.

It stands between the collector and the poll only where a deserialiser is set. What was taken from the buffer and
cannot be returned yet is *kept* here, and the partition's position goes back to the first record that is kept; so
commits, `position` and a seek past a bad record mean what they say (A4). A seek or a revocation ends the lease, and
with it what is kept. Kafka's client does the same with its "next in line".

raise        the records before a bad one are returned; then each poll raises, until the application seeks past it
skip         it is counted and logged, and passed over
dead-letter  it goes to another topic; nothing after it is returned before that is acknowledged
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kadence.config import ConsumerConfig
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell, Origin
from kadence.consumer.collector import Collector
from kadence.consumer.dead_letters import BadRecord, DeadLetters, Delivery
from kadence.errors import DeadLetterError, KafkaError, RecordDeserializationError
from kadence.records import Record
from kadence.types import TopicPartition

__all__ = ["Chunks", "Decoding"]

log = logging.getLogger("kadence.consumer")

Chunks = list[tuple[TopicPartition, list[Record]]]
_Simple = Callable[[bytes], Any] | None
_Full = Callable[[str, Any, bytes], Any] | None


class _Kept:
    """Raw records of one partition, in order. ``end``: the position once all of them are returned.

    ``settled``: offsets of the bad ones that the dead letter topic has.
    """

    __slots__ = ("cell", "delivery", "end", "lease", "records", "settled")

    def __init__(self, cell: Cell, end: Origin, records: list[Record]) -> None:
        self.cell = cell
        self.lease = end.lease
        self.end = end
        self.records = records
        self.delivery: Delivery | None = None
        self.settled: set[int] = set()


class Decoding:
    """See the head of this file.

    Attributes:
        skipped: bad records passed over, ever. dead_lettered: those acknowledged by the dead letter topic.
    """

    def __init__(
        self, config: ConsumerConfig, border: Border, collector: Collector, dead_letters: DeadLetters | None
    ) -> None:
        self.skipped = 0
        self.dead_lettered = 0
        self._border = border
        self._collector = collector
        self._dead_letters = dead_letters
        self._raises = config.deserialization_errors == "raise"
        self._key, self._key_in_full = _readers(config.key_deserializer)
        self._value, self._value_in_full = _readers(config.value_deserializer)
        self._kept: dict[TopicPartition, _Kept] = {}

    def take(self, limit: int) -> Chunks:
        """At most ``limit`` records, decoded.

        Raises:
            RecordDeserializationError: the next record is bad, and no record came before it.
            DeadLetterError: it could not be written to the dead letter topic; the next poll tries again.
        """
        given: Chunks = []
        collector = self._collector
        collector.advanced, collector.returned = False, 0
        while True:
            waiting = self._serve(given, limit) if self._kept else False
            if given or waiting:
                collector.returned = sum(len(records) for _, records in given)
                return given
            fresh = collector.take_records(limit)
            if not fresh:
                return given
            for partition, records in fresh:
                self._keep(partition, records)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What is kept of these will be fetched again."""
        for partition in partitions:
            self._kept.pop(partition, None)

    def release(self) -> None:
        """Somebody else reads on (`poll_arrow`): what is kept is fetched again, from where the position stands."""
        for kept in self._kept.values():
            if kept.lease == kept.cell.lease:
                self._collector.refetch(kept.cell)
        self._kept.clear()

    # ------------------------------------------------------------ what is kept

    def _keep(self, partition: TopicPartition, records: list[Record]) -> None:
        """Take them over from the collector. Until they are returned the position is that of the first of them."""
        cell = self._border.assignment.get(partition)
        end = None if cell is None else cell.position
        if cell is None or end is None:
            return  # taken away since it was taken: nobody may commit it, so nobody needs it
        kept = self._kept.get(partition)
        if kept is not None and kept.cell is cell and kept.lease == end.lease:
            # Paused when it was looked at and resumed since: in order behind what is kept.
            kept.records = kept.records + records
            kept.end = end
        else:
            kept = self._kept[partition] = _Kept(cell, end, records)
        first = kept.records[0]
        self._collector.move(cell, Origin(kept.lease, first.offset, first.leader_epoch))

    def _serve(self, given: Chunks, limit: int) -> bool:
        """Return what can be returned of what is kept. True: something waits for the dead letter topic."""
        waiting = False
        for partition, kept in list(self._kept.items()):
            cell = kept.cell
            if cell.lease != kept.lease or self._border.assignment.get(partition) is not cell:
                del self._kept[partition]
                self._give_back(kept)
                continue
            if cell.paused or cell.revoking or cell.held or limit <= 0:
                continue
            try:
                records = self._decode(kept, limit)
            except KafkaError:
                if given:
                    break
                raise
            if records is None:
                waiting = True
            elif records:
                given.append((partition, records))
                limit -= len(records)
            if not kept.records:
                del self._kept[partition]
        return waiting

    def _give_back(self, kept: _Kept) -> None:
        """Of an old lease. A truncation may have begun the new one before `_keep` put the position back: behind these.

        They are read again then. A seek says by itself where to go on, and is behind nothing.
        """
        if not kept.records:
            return
        cell, first = kept.cell, kept.records[0]
        at = cell.current()
        if at is not None and at is cell.origin and at.proved is not None and first.offset < at.offset:
            self._collector.move(cell, Origin(at.lease, first.offset, first.leader_epoch))
            self._collector.refetch(cell)

    # ------------------------------------------------------------ bytes to objects

    def _decode(self, kept: _Kept, limit: int) -> list[Record] | None:
        """The next records of a partition; None while its bad ones are on their way."""
        if kept.delivery is not None and not kept.delivery.done:
            return None
        raw = kept.records if len(kept.records) <= limit else kept.records[:limit]
        good: list[Record] = []
        bad: list[BadRecord] = []
        key_of, key_in_full, value_of, value_in_full = (
            self._key,
            self._key_in_full,
            self._value,
            self._value_in_full,
        )
        for record in raw:
            field = "key"
            try:
                key, value = record.key, record.value
                if key is not None:
                    if key_of is not None:
                        key = key_of(key)
                    elif key_in_full is not None:
                        key = key_in_full(record.topic, record.headers, key)
                field = "value"
                if value is not None:
                    if value_of is not None:
                        value = value_of(value)
                    elif value_in_full is not None:
                        value = value_in_full(record.topic, record.headers, value)
            except MemoryError:
                # Nobody's fault, and no reason to pass over a record.
                raise
            except Exception as error:
                if self._raises:
                    if not good:
                        raise _bad(record, field, error) from error
                    break
                bad.append(BadRecord(record, field, error))
                continue
            good.append(
                Record(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    key,
                    value,
                    record.headers,
                    record.leader_epoch,
                )
            )
        if bad and not self._pass_over(kept, bad):
            return None
        self._advance(kept, len(good) + len(bad))
        return good

    def _advance(self, kept: _Kept, count: int) -> None:
        if count == len(kept.records):
            kept.records = []
            self._collector.move(kept.cell, kept.end)
            return
        last = kept.records[count - 1]
        kept.records = kept.records[count:]
        self._collector.move(kept.cell, Origin(kept.lease, kept.records[0].offset, last.leader_epoch))

    def _pass_over(self, kept: _Kept, bad: list[BadRecord]) -> bool:
        """Whether the application need not hear of these (any more)."""
        if self._dead_letters is None:
            for each in bad:
                self.skipped += 1
                log.warning("skipped: %s", _said_of(each.record, each.field, each.error))
            return True
        delivery, kept.delivery = kept.delivery, None
        if delivery is not None:
            if delivery.error is not None:
                # The next poll sends them again: nothing is lost, and nothing goes on.
                first = delivery.bad[0].record
                raise DeadLetterError(
                    f"{len(delivery.bad)} bad records of {first.topic}-{first.partition}, from offset "
                    f"{first.offset} on, could not be written to dead.letter.topic "
                    f"{self._dead_letters.topic!r}: {delivery.error}"
                ) from delivery.error
            for each in delivery.bad:
                self.dead_lettered += 1
                kept.settled.add(each.record.offset)
                log.warning(
                    "to %s: %s", self._dead_letters.topic, _said_of(each.record, each.field, each.error)
                )
        unsettled = [each for each in bad if each.record.offset not in kept.settled]
        if unsettled:
            kept.delivery = self._dead_letters.deliver(unsettled)
        return not unsettled


def _readers(deserializer: Any) -> tuple[_Simple, _Full]:
    """The one of the two kinds that it is; neither leaves the bytes."""
    full: _Full = getattr(deserializer, "deserialize", None)
    return (deserializer, None) if full is None else (None, full)


def _said_of(record: Record, field: str, error: Exception) -> str:
    """Never the bytes, nor what an exception says of them: they may be secret."""
    return f"the {field} of {record.topic}-{record.partition} at offset {record.offset} is bad ({type(error).__name__})"


def _bad(record: Record, field: str, error: Exception) -> RecordDeserializationError:
    return RecordDeserializationError(
        f"{_said_of(record, field, error)}; seek past it, or set deserialization.errors to skip or dead-letter",
        partition=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        field=field,
        record=record,
    )
