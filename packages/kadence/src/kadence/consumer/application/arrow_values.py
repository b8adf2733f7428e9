"""Values of `poll_arrow` as typed columns, and the handling of rows whose value is bad. Application side.

The deserialiser of values decodes them, a whole table at once. A bad value is handled as in a poll, by
``deserialization.errors``: with ``raise`` a table ends before the first bad record of each partition, and a poll raises
once it would be the first; with ``skip`` bad rows are left out; with ``dead-letter`` they are left out once their topic
has acknowledged them, and the other rows wait for that. Where the topic refuses them, or the registry does not answer,
a table ends as with ``raise``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.config import ConsumerConfig
from kadence.consumer.fetch.dead_letters import BadRecord, Delivery
from kadence.consumer.fetch.decoding import Decoding
from kadence.errors import (
    ConfigError,
    DeadLetterError,
    RecordDeserializationError,
    SchemaRegistryError,
    SerializationError,
)
from kadence.errors.local import AnswerPendingError
from kadence.logs import logger
from kadence.records import ALL_COLUMNS, Record
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowValues", "LettersPendingError"]

log = logger("kadence.consumer")

_PLACE: Final = ("topic", "partition", "offset")


class LettersPendingError(Exception):
    """Bad rows are being written to the dead letter topic. Take the table again after that."""

    def __init__(self, values: ArrowValues, deliveries: list[Delivery]) -> None:
        super().__init__("dead letters are on their way")
        self._values = values
        self._deliveries = deliveries

    @property
    def is_over(self) -> bool:
        """Whether the broker has answered for all of them."""
        return all(delivery.done for delivery in self._deliveries)

    def settle(self) -> None:
        """Record which are acknowledged, and which are refused: `ArrowValues.decoded` raises for the latter."""
        for delivery in self._deliveries:
            self._values.delivered(delivery)


class ArrowValues:
    """Decodes the column ``value`` of a consumer's tables.

    Args:
        decoding: counts the bad rows that are left out. kind: the format that the application asked for.

    Raises:
        ConfigError: the consumer's deserialiser of values is not of this kind.
    """

    def __init__(self, config: ConsumerConfig, decoding: Decoding | None, kind: str) -> None:
        deserializer = config.value_deserializer
        columns = getattr(deserializer, "columns", None)
        if decoding is None or columns is None or getattr(deserializer, "kind", None) != kind:
            raise ConfigError(
                f"poll_arrow(value={kind!r}) needs the value.deserializer of this format, such as "
                "AvroDeserializer(registry) of kadence_schemas for 'avro', or ProtobufDeserializer(registry) for "
                "'protobuf'",
                key="value.deserializer",
            )
        self._columns = columns()
        self._decoding = decoding
        self._raises = config.deserialization_errors == "raise"
        self._writes_letters = config.deserialization_errors == "dead-letter"
        self._settled: dict[TopicPartition, set[int]] = {}
        """Offsets of rows that the dead letter topic has acknowledged and the next table must skip."""
        self._refused: dict[TopicPartition, tuple[int, DeadLetterError]] = {}
        """The first bad record of each partition whose dead letter was refused, until that has been raised."""
        self.raised_for: tuple[TopicPartition, ...] = ()
        """The partitions with refused dead letters in the last error of `decoded`."""

    def needed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The columns to poll, given those asked for. A dead letter contains the whole record."""
        if self._writes_letters:
            return (*names, *(name for name in ALL_COLUMNS if name not in names))
        return (*names, *(name for name in ("value", "headers", *_PLACE) if name not in names))

    def decoded(
        self, table: pa.Table, names: tuple[str, ...]
    ) -> tuple[pa.Table, Mapping[TopicPartition, int]]:
        """The table with typed values, and where partitions must be read again from: their first bad records.

        Raises:
            RecordDeserializationError: no good record comes before the bad ones.
            DeadLetterError: none comes before those whose dead letters were refused. The next call sends them again.
            SchemaRegistryError: none comes before those whose schemas the registry did not return.
            LettersPendingError: take the table again once the bad rows are dead letters.
        """
        index = table.column_names.index("value")
        values, *beside = (table[name].combine_chunks() for name in ("value", *self._columns.beside))
        try:
            made = self._columns.decode(values, *beside)
        except (AnswerPendingError, SchemaRegistryError, ConfigError):
            firsts = _firsts(table, self._columns.unknown(values, *beside))
            kept = table.filter(_before(table, firsts)) if firsts else table
            if not firsts or not kept.num_rows:
                raise
            table, earlier = self.decoded(kept, names)
            return table, firsts | dict(earlier)
        typed = table.set_column(index, "value", made.column)
        firsts = {}
        if made.bad and self._writes_letters:
            typed, firsts = self._with_letters(table, typed, made.bad)
        elif made.bad:
            typed, firsts = self._without(typed, made.bad)
        return typed.select(list(names)), firsts

    def _with_letters(
        self, table: pa.Table, typed: pa.Table, bad: dict[int, str]
    ) -> tuple[pa.Table, dict[TopicPartition, int]]:
        """Typed rows without the bad ones, which are dead letters by then; ends before a refused one."""
        unsettled: dict[TopicPartition, list[BadRecord]] = {}
        settled: list[tuple[TopicPartition, int]] = []
        refused: dict[TopicPartition, int] = {}
        for row in sorted(bad):
            partition, offset = _place(table, row)
            # Rows after a refused one are read again.
            if partition in refused:
                continue
            if offset in self._settled.get(partition, ()):
                settled.append((partition, offset))
            elif self._refused.get(partition, (-1,))[0] == offset:
                refused[partition] = offset
            else:
                letter = BadRecord(_record(table, row), "value", SerializationError(bad[row]))
                unsettled.setdefault(partition, []).append(letter)
        if unsettled:
            raise LettersPendingError(self, [self._decoding.deliver(each) for each in unsettled.values()])
        kept = typed.filter(_other_than(typed, bad))
        if refused:
            kept = kept.filter(_before(kept, refused))
            if not kept.num_rows:
                self.raised_for = tuple(refused)
                raise self._refused.pop(self.raised_for[0])[1]
        for partition, offset in settled:
            self._settled[partition].discard(offset)
        return kept, refused

    def delivered(self, delivery: Delivery) -> None:
        """Record whether the dead letter topic has acknowledged or refused it."""
        record = delivery.bad[0].record
        partition = TopicPartition(record.topic, record.partition)
        try:
            offsets = self._decoding.delivered(delivery)
        except DeadLetterError as error:
            self._refused[partition] = record.offset, error
        else:
            self._settled.setdefault(partition, set()).update(offsets)

    def _without(self, table: pa.Table, bad: dict[int, str]) -> tuple[pa.Table, dict[TopicPartition, int]]:
        """Without the bad rows, which are skipped, or up to the first of each partition."""
        places = {row: _place(table, row) for row in sorted(bad)}
        if not self._raises:
            self._decoding.skipped += len(bad)
            for row, (partition, offset) in places.items():
                log.warning("skipped: %s", _said_of(partition, offset, bad[row]))
            return table.filter(_other_than(table, bad)), {}
        firsts = _firsts(table, places)
        kept = table.filter(_before(table, firsts))
        if not kept.num_rows:
            row = min(bad)
            partition, offset = places[row]
            raise RecordDeserializationError(
                f"{_said_of(partition, offset, bad[row])}; seek past it, or set deserialization.errors to skip",
                partition=partition,
                offset=offset,
                field="value",
            )
        return kept, firsts


def _firsts(table: pa.Table, rows: Iterable[int]) -> dict[TopicPartition, int]:
    """The offset of the first of some rows in each partition that has one."""
    firsts: dict[TopicPartition, int] = {}
    for row in rows:
        partition, offset = _place(table, row)
        firsts.setdefault(partition, offset)
    return firsts


def _place(table: pa.Table, row: int) -> tuple[TopicPartition, int]:
    topic, partition, offset = (table[name][row].as_py() for name in _PLACE)
    return TopicPartition(topic, partition), offset


def _record(table: pa.Table, row: int) -> Record:
    """A row as a record in bytes."""
    found = {name: table[name][row] for name in ALL_COLUMNS}
    stamp, headers = found["timestamp"], found["headers"].as_py()
    return Record(
        found["topic"].as_py(),
        found["partition"].as_py(),
        found["offset"].as_py(),
        # Python's datetimes would end in the year 9999.
        -1 if not stamp.is_valid else stamp.value // 1000,
        found["timestampType"].as_py(),
        found["key"].as_py(),
        found["value"].as_py(),
        tuple((header["key"], header["value"]) for header in headers or ()),
    )


def _other_than(table: pa.Table, bad: Mapping[int, str]) -> Any:
    import pyarrow as pa

    return pa.array([row not in bad for row in range(table.num_rows)])


def _before(table: pa.Table, firsts: Mapping[TopicPartition, int]) -> Any:
    """Which rows come before the first bad record of their partition."""
    import pyarrow.compute as pc

    kept: Any = None
    for (topic, partition), offset in firsts.items():
        elsewhere = pc.or_(pc.not_equal(table["topic"], topic), pc.not_equal(table["partition"], partition))
        mine = pc.or_(elsewhere, pc.less(table["offset"], offset))
        kept = mine if kept is None else pc.and_(kept, mine)
    return kept


def _said_of(partition: TopicPartition, offset: int, reason: str) -> str:
    return f"the value of {partition.topic}-{partition.partition} at offset {offset} is bad ({reason})"
