"""`read` and `read_batches`: a topic, or its last hour, as Arrow tables. No group, nothing committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, Final, Literal

from kadence.clock import SystemClock, wall_ms
from kadence.config import ConsumerConfig
from kadence.consumer.application.arguments import columns_of, topic_names
from kadence.consumer.consumer import Consumer
from kadence.errors import ConfigError, KafkaTimeoutError, MissingDependencyError, RecordDeserializationError
from kadence.reading.places import Moment, Place, Ranges, place_of, planned
from kadence.reading.progress import bar
from kadence.reading.values import Decoder, KeyKind, ValueKind, decoder_of, without_registry
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read", "read_batches"]

_PLACE: Final = ("topic", "partition", "offset")
_LOOK_MS: Final = 100
"""How often the bar looks where each partition stands."""

_DEFAULTS: Final = {
    # A frame of what never happened is worth nothing.
    "isolation.level": "read_committed",
    # Where retention has deleted the beginning of a range, the rest of it is read.
    "auto.offset.reset": "earliest",
    # Who reads a topic whose name is mistyped does not want to make it.
    "allow.auto.create.topics": False,
}

Errors = Literal["raise", "null"]


def read(
    topics: str | Iterable[str],
    since: Moment = "earliest",
    until: Moment | None = None,
    *,
    columns: Sequence[str] | None = None,
    key: KeyKind = "bytes",
    value: ValueKind = "bytes",
    partitions: Iterable[int] | None = None,
    keys: str | bytes | Iterable[str | bytes | None] | None = None,
    errors: Errors = "raise",
    progress: bool = True,
    **settings: Any,
) -> pa.Table:
    """Read a topic, or a part of it, into one Arrow table. Without a group; nothing is committed.

    It reads what there is when it is called, and ends: records that come later are not in the table. A table of pyarrow
    has ``to_pandas()``; ``polars.from_arrow(table)`` takes it, and DuckDB finds it by the variable's name. Rows of one
    partition are in its order; those of several are mixed.

    Args:
        topics: one name, or several.
        since: the first records: ``"earliest"``; a time that long ago, such as ``"-90s"``, ``"-15m"``, ``"-1h"``,
            ``"-7d"`` (by this machine's clock); ISO 8601 with a zone; a datetime with a zone; or offsets, by
            partition (``{0: 1200}``, or ``{("orders", 0): 1200}``), where the others begin at their first record. A
            time means the first record of each partition that has this time or a later one.
        until: the first records that are not read, in the same words. None, or ``"latest"``: it reads to the end as
            it is now. A record behind the first of that time is not read, even if its own time is earlier.
        columns: make only these columns, in this order: ``key``, ``value``, ``topic``, ``partition``, ``offset``,
            ``timestamp`` (UTC), ``timestampType``, ``headers``. None: all but headers. Few columns are quicker.
        key: ``"bytes"``, or ``"text"``: keys are UTF-8.
        value: ``"bytes"``; ``"text"``: UTF-8; ``"json"``: typed columns, whose types are found in the values;
            ``"avro"`` or ``"protobuf"``: by the schemas of a registry (``schema_registry_url=``, or a
            ``value_deserializer`` with a reader's schema). An object becomes a struct: ``table.flatten()`` makes a
            column of each field. In JSON, a field whose values have types that do not go together is a text.
        partitions: read only these partitions, by number. None: all.
        keys: keep only records with one of these keys; None among them means no key. All records are read for it.
        errors: ``"raise"``, or ``"null"``: a bad key or value is null, and a column ``error`` says why.
        progress: show a bar in a terminal or a notebook, if tqdm is installed (``pip install kadence[notebook]``).
        settings: of a consumer, e.g. ``bootstrap_servers="localhost:9092"``; ``isolation_level`` is
            ``"read_committed"`` unless it is given.

    Raises:
        MissingDependencyError: pyarrow is not installed (``pip install kadence[arrow]``).
        RecordDeserializationError: a key or a value is bad; it names partition and offset.
        UnknownTopicOrPartitionError: there is no such topic or partition.
        KafkaTimeoutError: no broker answers, or none sends records, for default.api.timeout.ms.
        ConfigError, TypeError, ValueError: arguments that are not allowed.
    """
    reading = _reading(
        topics, since, until, columns, key, value, partitions, keys, errors, progress, settings
    )
    import pyarrow as pa

    # The first one has the columns where nothing is read.
    tables = [reading.decoded(reading.nothing()), *reading.tables()]
    return pa.concat_tables(map(reading.fit, tables), promote_options="permissive")


def read_batches(
    topics: str | Iterable[str],
    since: Moment = "earliest",
    until: Moment | None = None,
    *,
    columns: Sequence[str] | None = None,
    key: KeyKind = "bytes",
    value: ValueKind = "bytes",
    partitions: Iterable[int] | None = None,
    keys: str | bytes | Iterable[str | bytes | None] | None = None,
    errors: Errors = "raise",
    progress: bool = True,
    **settings: Any,
) -> Iterator[pa.Table]:
    """As `read`, in tables of some thousand rows one after the other, for what does not fit into memory.

    Each has at least one row. max.poll.arrow.bytes, 2 MiB by default, bounds the bytes of one. With ``value="json"``,
    ``"avro"`` or ``"protobuf"`` later tables may have fields that earlier ones lack, or wider types. The consumer is
    made when the first table is asked for, and closed with the last one or when the iterator is closed.

    Args:
        topics, since, until, columns, key, value, partitions, keys, errors, progress, settings: as for `read`.

    Raises:
        as `read`: of arguments at once, all else while it reads.
    """
    reading = _reading(
        topics, since, until, columns, key, value, partitions, keys, errors, progress, settings
    )
    return reading.tables()


def _reading(
    topics: str | Iterable[str],
    since: Moment,
    until: Moment | None,
    columns: Sequence[str] | None,
    key: KeyKind,
    value: ValueKind,
    partitions: Iterable[int] | None,
    keys: str | bytes | Iterable[str | bytes | None] | None,
    errors: Errors,
    progress: bool,
    settings: Mapping[str, Any],
) -> _Reading:
    """Everything that can be wrong with the arguments is told here."""
    try:
        import pyarrow  # noqa: F401 - whether it is there
    except ImportError as problem:
        raise MissingDependencyError("read() needs pyarrow: pip install kadence[arrow]") from problem
    if errors not in ("raise", "null"):
        raise ValueError(f"errors is 'raise' or 'null', not {errors!r}")
    names = sorted(topic_names(topics)) if not isinstance(topics, str) else list(topic_names(topics))
    if not names:
        raise ValueError("read() needs a topic")
    config = _DEFAULTS | {name.replace("_", "."): given for name, given in settings.items()}
    if config.get("group.id") is not None:
        raise ConfigError("read() joins no group and commits nothing: leave out group.id", key="group.id")
    if config.get("key.deserializer") is not None:
        raise ConfigError(
            "read() decodes keys by key='text'; leave out key.deserializer", key="key.deserializer"
        )
    now_ms = wall_ms()
    places = place_of(since, "since", now_ms), place_of("latest" if until is None else until, "until", now_ms)
    if isinstance(places[0], int) and isinstance(places[1], int) and 0 <= places[1] < places[0]:
        raise ValueError(f"until, {until!r}, is earlier than since, {since!r}")
    own = without_registry(config)
    return _Reading(
        topics=names,
        since=places[0],
        until=places[1],
        numbers=None if partitions is None else _numbers(partitions),
        columns=columns_of(columns, headers=False),
        decoders={
            side: decoder
            for side, decoder in (
                ("key", decoder_of(key, config, "key")),
                ("value", decoder_of(value, config)),
            )
            if decoder is not None
        },
        keys=None if keys is None else _keys(keys),
        keeps_bad=errors == "null",
        progress=progress,
        patience_ms=ConsumerConfig.parse(own).default_api_timeout_ms,
        config=own,
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is to be read, and how.

    Attributes:
        patience_ms: so long it waits for a partition of which nothing comes.
        config: of the consumer.
    """

    topics: list[str]
    since: Place
    until: Place
    numbers: tuple[int, ...] | None
    columns: tuple[str, ...]
    decoders: Mapping[str, Decoder]
    keys: tuple[bytes | None, ...] | None
    keeps_bad: bool
    progress: bool
    patience_ms: int
    config: Mapping[str, Any]

    @property
    def polled(self) -> tuple[str, ...]:
        """The columns to poll: also those that name a bad record."""
        needed = [*self.columns]
        if self.keys is not None:
            needed.append("key")
        if self.decoders.keys() & set(self.columns):
            needed += _PLACE
        return tuple(dict.fromkeys(needed))

    def tables(self) -> Iterator[pa.Table]:
        """What is polled, decoded; none is empty."""
        with Consumer(self.config) as consumer:
            ranges = planned(consumer, self.topics, self.numbers, self.since, self.until, self.config)
            ranges = {p: (start, end) for p, (start, end) in ranges.items() if start < end}
            if ranges:
                consumer.assign(ranges)
                for table in self._polled(consumer, ranges):
                    decoded = self.decoded(table)
                    if decoded.num_rows:
                        yield decoded

    def _polled(self, consumer: Consumer[Any, Any], ranges: Ranges) -> Iterator[pa.Table]:
        clock = SystemClock()
        total = sum(end - start for start, end in ranges.values())
        shown = bar(", ".join(self.topics), total, is_wanted=self.progress)
        names = self.polled
        looked_at = alive_at = clock.now_ms()
        done = 0
        try:
            while True:
                table = consumer.poll_arrow(0.5, columns=names)
                if table.num_rows:
                    yield table
                    # Only now: what the caller does with a table may take long.
                    alive_at = clock.now_ms()
                now = clock.now_ms()
                is_over = not table.num_rows and consumer.finished() == consumer.assignment()
                if is_over or now - looked_at >= _LOOK_MS:
                    looked_at = now
                    at = total if is_over else _done(consumer, ranges)
                    if at > done:
                        shown.update(at - done)
                        # Positions also move over what is never returned, such as aborted transactions.
                        alive_at, done = now, at
                if is_over:
                    return
                if not table.num_rows and now - alive_at >= self.patience_ms:
                    raise KafkaTimeoutError(_stuck(consumer, self.patience_ms))
        finally:
            shown.close()

    def nothing(self) -> pa.Table:
        """A table without rows of the columns that are polled."""
        from kadence.records import arrow

        return arrow.schema(self.polled).empty_table()

    def decoded(self, table: pa.Table) -> pa.Table:
        """The rows that are wanted, with the columns that are, decoded."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.keys is not None:
            table = table.filter(pc.is_in(table["key"], value_set=pa.array(self.keys, pa.binary())))
        reasons: dict[int, str] = {}
        for side, decoder in self.decoders.items():
            if side not in self.columns:
                continue
            made = decoder.decode(table[side].combine_chunks())
            if made.bad and not self.keeps_bad:
                raise _refused(table, side, made.bad)
            for row, reason in made.bad.items():
                reasons[row] = f"{reasons[row]}; {side}: {reason}" if row in reasons else f"{side}: {reason}"
            table = table.set_column(table.column_names.index(side), side, made.column)
        table = table.select(list(self.columns))
        if not self.keeps_bad:
            return table
        said = pa.array([reasons.get(row) for row in range(table.num_rows)], pa.string())
        return table.append_column("error", said)

    def fit(self, table: pa.Table) -> pa.Table:
        """A table that was decoded earlier, with the types of now."""
        for side, decoder in self.decoders.items():
            if side in self.columns:
                at = table.column_names.index(side)
                table = table.set_column(at, side, decoder.fit(table[side]))
        return table


def _numbers(partitions: Iterable[int]) -> tuple[int, ...]:
    whatever: object = partitions
    if isinstance(whatever, str | bytes) or not isinstance(whatever, Iterable):
        raise TypeError(f"partitions are numbers, such as [0, 2], not {partitions!r}")
    given = tuple(partitions)
    for number in given:
        # Numbers of numpy, as of a column of pandas, are no ints.
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"partitions are numbers, such as [0, 2], not {partitions!r}")
    return tuple(map(index, given))


def _keys(keys: str | bytes | Iterable[str | bytes | None]) -> tuple[bytes | None, ...]:
    given = (keys,) if isinstance(keys, str | bytes) else tuple(keys)
    for each in given:
        if each is not None and not isinstance(each, str | bytes):
            raise TypeError(f"keys are texts or bytes, not {each!r}")
    return tuple(each.encode() if isinstance(each, str) else each for each in given)


def _done(consumer: Consumer[Any, Any], ranges: Ranges) -> int:
    """How many offsets lie behind; 0 while a position is looked up."""
    try:
        at = {p: consumer.position(p, timeout=0) for p in ranges}
    except KafkaTimeoutError:
        return 0
    return sum(min(max(at[p], start), end) - start for p, (start, end) in ranges.items())


def _refused(table: pa.Table, side: str, bad: Mapping[int, str]) -> RecordDeserializationError:
    row = min(bad)
    topic, number, offset = (table[name][row].as_py() for name in _PLACE)
    return RecordDeserializationError(
        f"the {side} of {topic}-{number} at offset {offset} is bad ({bad[row]}); errors='null' keeps such records, "
        "with the reason in a column error",
        partition=TopicPartition(topic, number),
        offset=offset,
        field=side,
    )


def _stuck(consumer: Consumer[Any, Any], patience_ms: int) -> str:
    left = sorted(consumer.assignment() - consumer.finished())
    why = consumer.not_fetched()
    first = left[0]
    reason = f": {why[first]}" if first in why else ""
    more = f", and of {len(left) - 1} more partitions," if len(left) > 1 else ""
    return (
        f"of {first.topic}-{first.partition}{more} nothing came for {patience_ms / 1000:g} s "
        f"(default.api.timeout.ms){reason}"
    )
