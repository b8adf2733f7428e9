"""Deserialises keys and values, and handles bad records. Application side.

When a deserialiser is set, it works between a partition's decoded records and the poll. It looks at the next of them,
still raw, and moves their index past those that were returned or skipped. So commits, `position` and a seek past a bad
record behave as documented (A4), and records that a poll could not return are decoded again by the next one. Polls that
are steps call the same decoder, and leave refused records to this.

raise        the records before a bad one are returned; then polls raise, until the application seeks past it
skip         it is counted, logged and skipped
dead-letter  it goes to another topic; no record of its partition after it is returned before that is acknowledged

On an event loop a deserialiser does not wait for a schema registry. Its record, and those after it in its partition,
are returned once the answer has come; other partitions continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kadence.clock import FOREVER, Clock, SystemClock, add_ms
from kadence.config import ConsumerConfig
from kadence.consumer.decoded_records import Decoder
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.fetch._partition_reader import PartitionReader
from kadence.consumer.fetch.dead_letters import BadRecord, DeadLetters, Delivery
from kadence.errors import ConfigError, DeadLetterError, RecordDeserializationError, SchemaRegistryError
from kadence.errors.local import AnswerPendingError
from kadence.errors.remedies import may_pass
from kadence.logs import logger
from kadence.records import Record
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.config import ShareConsumerConfig

__all__ = ["Chunks", "Decoding", "decoding_one", "refused", "said_of"]

log = logger("kadence.consumer")

Chunks = list[tuple[TopicPartition, list[Record]]]


class _Letters:
    """Bad records of one partition that are being written to the dead letter topic.

    ``settled``: offsets of acknowledged ones; a poll whose records are put back meets them again.
    """

    __slots__ = ("delivery", "fetch_epoch", "settled")

    def __init__(self, fetch_epoch: int) -> None:
        self.fetch_epoch = fetch_epoch
        self.delivery: Delivery | None = None
        self.settled: set[int] = set()


class Decoding:
    """Deserialises keys and values, and handles records that a deserialiser refuses.

    Args:
        wake: makes a poll that waits look again. Any thread.

    Attributes:
        decoder: calls the deserialisers, also for steps.
        until: the deadline (ms) of the current poll. Decoding ends with it, and returns the records so far.
        skipped: bad records skipped, ever. dead_lettered: those acknowledged by the dead letter topic.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        collector: FetchCollector,
        dead_letters: DeadLetters | None,
        wake: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.until = self._ends_at = FOREVER
        self._has_taken = False
        self.skipped = 0
        self.dead_lettered = 0
        self._collector = collector
        self._dead_letters = dead_letters
        self._raises = config.deserialization_errors == "raise"
        self.decoder = collector.steps.decoder = Decoder(config.key_deserializer, config.value_deserializer)
        self._letters: dict[TopicPartition, _Letters] = {}
        self._wake = wake
        self._pending: dict[TopicPartition, tuple[int, AnswerPendingError]] = {}
        """The answer that a partition's next record waits for, and the fetch epoch."""

    def take(self, limit: int) -> Chunks:
        """At most ``limit`` records, decoded.

        Raises:
            RecordDeserializationError: the next record is bad, and no record came before it.
            SchemaRegistryError: the next record needs a registry that does not answer, and no record came before it.
            DeadLetterError: it could not be written to the dead letter topic; the next poll tries again.
        """
        self._ends_at = max(self.until, add_ms(self._clock.now_ms(), _LEAST_MS))
        self._has_taken = False
        return self._collector.take(limit, self._give)

    def _give(self, reader: PartitionReader, limit: int) -> list[Record]:
        """The next records of one partition; none while bad ones are being written, or a schema is being fetched."""
        while raw := reader.look(limit):
            if self._has_taken and self._is_over():
                break
            if self._awaits_answer(reader):
                break
            letters = self._letters_of(reader)
            if letters is not None and letters.delivery is not None and not letters.delivery.done:
                break
            good, bad = self._decode(raw, reader)
            if not (good or bad):
                break
            try:
                if bad and not self._pass_over(reader, bad):
                    break
            except DeadLetterError:
                # As with `raise`: the records before it are returned, and the next poll raises.
                good = [each for each in good if each.offset < bad[0].record.offset]
                if not good:
                    raise
                bad = []
            if bad:
                self._collector.passed(reader.shared_partition)
            if not reader.give(self._collector.steps.touched, len(good) + len(bad)):
                break
            self._has_taken = True
            if good:
                return good
            self._collector.advanced = True
        return []

    def held_up(self) -> set[TopicPartition]:
        """Partitions of which no record is returned before dead letters are acknowledged, or a schema has come."""
        return {
            partition for partition, letters in self._letters.items() if letters.delivery is not None
        } | self._pending.keys()

    def _awaits_answer(self, reader: PartitionReader) -> bool:
        """Whether the next record still waits for an answer. Raises the error if that came."""
        if (waits := self._pending.get(reader.partition)) is None:
            return False
        fetch_epoch, pending = waits
        is_the_next = fetch_epoch == reader.shared_partition.fetch_epoch
        if is_the_next and not pending.is_over:
            return True
        del self._pending[reader.partition]
        if is_the_next:
            pending.check()
        return False

    def _letters_of(self, reader: PartitionReader) -> _Letters | None:
        """The deliveries to wait for: not those sent under an old fetch epoch."""
        letters = self._letters.get(reader.partition)
        if letters is not None and letters.fetch_epoch != reader.shared_partition.fetch_epoch:
            del self._letters[reader.partition]
            return None
        return letters

    # ------------------------------------------------------------ bytes to objects

    def _decode(self, raw: list[Record], reader: PartitionReader) -> tuple[list[Record], list[BadRecord]]:
        """The good ones and the bad ones, up to the end, or to one that must be raised or must wait.

        If deserialisers take long, for example to fetch schemas, up to the poll's deadline.
        """
        good: list[Record] = []
        bad: list[BadRecord] = []
        decoder, end = self.decoder, len(raw)
        at, count, looked_at = 0, _LEAST, self._clock.now_ms()
        while True:
            stop = min(at + count, end)
            at = decoder.run(raw, at, stop, good)
            if at == stop:
                if at == end or (now := self._clock.now_ms()) >= self._ends_at:
                    break
                count = count * 2 if now - looked_at <= _QUICK_MS else _LEAST
                looked_at = now
                continue
            assert decoder.failed is not None
            (record, field, error), decoder.failed = decoder.failed, None
            if isinstance(error, AnswerPendingError):
                if not (good or bad):
                    # Its traceback refers to the records.
                    waits = reader.shared_partition.fetch_epoch, error.with_traceback(None)
                    self._pending[reader.partition] = waits
                    error.call_back(self._wake)
                break
            assert isinstance(error, Exception)
            if isinstance(error, SchemaRegistryError | ConfigError):
                # The registry or our settings are at fault: the record is not bad, and the next poll tries again.
                if not good:
                    raise error
                break
            if self._raises:
                if not good:
                    raise refused(record, field, error, _SEEK) from error
                break
            bad.append(BadRecord(record, field, error))
            at += 1
            if at == end or self._is_over():
                break
        return good, bad

    def _is_over(self) -> bool:
        """Whether the poll's deadline has come."""
        return self._clock.now_ms() >= self._ends_at

    def _pass_over(self, reader: PartitionReader, bad: list[BadRecord]) -> bool:
        """Whether these need not be reported to the application (any more)."""
        if self._dead_letters is None:
            for each in bad:
                self.skipped += 1
                log.warning("skipped: %s", said_of(each.record, each.field, each.error))
            return True
        letters = self._letters.setdefault(reader.partition, _Letters(reader.shared_partition.fetch_epoch))
        if letters.delivery is not None:
            delivery, letters.delivery = letters.delivery, None
            letters.settled |= self.delivered(delivery)
        settled = letters.settled
        unsettled = [each for each in bad if each.record.offset not in settled]
        if unsettled:
            letters.delivery = self._dead_letters.deliver(unsettled)
        return not unsettled

    def deliver(self, bad: list[BadRecord]) -> Delivery:
        """Begin to write bad records to the dead letter topic; see `delivered` once it is done."""
        assert self._dead_letters is not None
        return self._dead_letters.deliver(bad)

    def delivered(self, delivery: Delivery) -> set[int]:
        """Count the acknowledged dead letters. Returns their offsets.

        Raises:
            DeadLetterError: it could not be written. No record is lost or skipped: the next poll sends it again.
        """
        assert self._dead_letters is not None
        topic = self._dead_letters.topic
        for line in delivery.shortened:
            log.warning("%s", line)
        if delivery.error is not None:
            first = delivery.bad[0].record
            raise DeadLetterError(
                f"{len(delivery.bad)} bad records of {first.topic}-{first.partition}, from offset {first.offset} on, "
                f"could not be written to dead.letter.topic {topic!r}: {delivery.error}"
                + (
                    ""
                    if may_pass(delivery.error)
                    else "; trying again will not help: seek() past them, or correct the topic's settings"
                )
            ) from delivery.error
        for each in delivery.bad:
            self.dead_lettered += 1
            log.warning("to %s: %s", topic, said_of(each.record, each.field, each.error))
        return {each.record.offset for each in delivery.bad}


def said_of(record: Record, field: str, error: Exception) -> str:
    """What is logged of a bad record.

    Never the bytes, nor an exception's text about them: they may be secret. The place in the record may be shown.
    """
    kind = type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        kind += f" at byte {error.start}"
    elif isinstance(line := getattr(error, "lineno", None), int):  # of JSON
        kind += f" at line {line}, column {getattr(error, 'colno', None)}"
    return f"the {field} of {record.topic}-{record.partition} at offset {record.offset} is bad ({kind})"


def decoding_one(config: ConsumerConfig | ShareConsumerConfig) -> Callable[[Record], Record]:
    """Deserialises single records, for one thread.

    It raises RecordDeserializationError: a deserialiser refused the record. SchemaRegistryError, ConfigError: it needs
    a registry that does not answer, or refuses the request. AnswerPendingError: it is called on an event loop, and
    needs an answer that must be waited for.
    """
    decoder = Decoder(config.key_deserializer, config.value_deserializer)

    def decode(raw: Record) -> Record:
        out: list[Record] = []
        if decoder.run([raw], 0, 1, out) == 0:
            assert decoder.failed is not None
            (record, field, error), decoder.failed = decoder.failed, None
            if isinstance(error, SchemaRegistryError | ConfigError) or not isinstance(error, Exception):
                raise error
            raise refused(record, field, error, "") from error
        return out[0]

    return decode


_LEAST_MS: Final = 100
"""How long (ms) a poll decodes at least, whatever its timeout: with 0 it, too, returns more than one record."""

_LEAST: Final = 4
"""How many records are decoded between two looks at the clock; doubled each time while they take no longer than
`_QUICK_MS`."""
_QUICK_MS: Final = 2

_SEEK: Final = "; seek past it, or set deserialization.errors to skip or dead-letter"


def refused(record: Record, field: str, error: Exception, advice: str) -> RecordDeserializationError:
    """The error of a poll for a record that a deserialiser refuses."""
    return RecordDeserializationError(
        said_of(record, field, error) + advice,
        partition=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        field=field,
        record=record,
    )
