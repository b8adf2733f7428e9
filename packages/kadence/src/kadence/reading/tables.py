"""`read` and `read_batches`: a topic, or its last hour, as Arrow tables. No group, nothing committed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import signature
from operator import index
from typing import TYPE_CHECKING, Any, Final, Literal

from kadence.clock import SystemClock, wall_ms
from kadence.config import ConsumerConfig
from kadence.config import keys as keys_of
from kadence.config.table import unknown
from kadence.consumer.application.arguments import columns_of, topic_names
from kadence.consumer.consumer import Consumer
from kadence.environment import REACHED_S, REGISTRY, servers_of
from kadence.errors import (
    ClosedError,
    ConfigError,
    KafkaTimeoutError,
    MissingDependencyError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from kadence.lazy_dataclasses import dataclass
from kadence.reading.fields import field_of, fit_field, path_to, top_level
from kadence.reading.json_schema import Schema, type_of
from kadence.reading.newest import newest
from kadence.reading.places import Moment, Place, Ranges, place_of, planned
from kadence.reading.progress import bar
from kadence.reading.values import Decoder, KeyKind, ValueKind, decoder_of, without_registry
from kadence.records import ALL_COLUMNS
from kadence.types import TopicPartition
from kadence.where import Where

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read", "read_batches"]

_PLACE: Final = ("topic", "partition", "offset")
_LOOK_MS: Final = 100
"""How often the bar is updated from the positions."""

_DEFAULTS: Final = {
    # Records of aborted transactions do not belong into a table.
    "isolation.level": "read_committed",
    # Records that are deleted before they are read raise an error; they are not skipped.
    "auto.offset.reset": "none",
    # Reading a mistyped name must not create a topic.
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
    schema: Schema | None = None,
    limit: int | None = None,
    errors: Errors = "raise",
    progress: bool = True,
    **settings: Any,
) -> pa.Table:
    """Read a topic, or a part of it, into one Arrow table. It joins no group and commits no offsets.

    It reads up to the ends of the partitions at the call: later records are not in the table. A table of pyarrow
    has ``to_pandas()``; ``polars.from_arrow(table)`` takes it, and DuckDB finds it by the variable's name. Rows of one
    partition are in offset order; those of several partitions are mixed.

    Args:
        topics: one name, or several.
        since: where reading begins, in the words of ``kadence consume --from``: ``"earliest"``; a time that long ago,
            such as ``"-90s"``, ``"-15m"``, ``"1 hour ago"``, ``"-7d"`` (by this machine's clock); ``"today"``,
            ``"yesterday"``; a date or time, ``"2026-11-22"`` or ``"2026-11-22T10:30Z"``, a datetime or a date, which
            without a zone are meant in this machine's; ``"-10"``, the last ten offsets of each partition; ``"1200"``,
            an offset of each; or offsets by partition (``{0: 1200}``, or ``{("orders", 0): 1200}``), where the others
            begin at their first record. A time means the first record of each partition that has this time or a later
            one.
        until: the first records that are not read, in the same words. None, or ``"latest"``: it reads to the present
            end. A record behind the first of that time is not read, even if its own time is earlier.
        columns: make only these columns, in this order: ``key``, ``value``, ``topic``, ``partition``, ``offset``,
            ``timestamp`` (UTC), ``timestampType``, ``headers``. None: all but headers. Fewer columns are faster. Any
            other name is a field of the values (JSON, Avro, Protobuf), such as ``amount`` or ``from.city``; a field
            with the name of a column, such as key, is ``value.key``.
        key: ``"bytes"``, or ``"text"``: keys are UTF-8.
        value: ``"bytes"``; ``"text"``: UTF-8; ``"json"``: types are derived from the values;
            ``"avro"`` or ``"protobuf"``: by the schemas of a registry (``schema_registry_url=``, or a
            ``value_deserializer`` with a reader's schema). An object becomes a struct: ``table.flatten()`` makes a
            column of each field. In JSON, a field whose values have types that do not fit together becomes text, unless
            ``schema`` says its type.
        partitions: read only these partitions, by number. None: all.
        keys: keep only records with one of these keys; None among them means no key. All records are read for it.
        schema: of ``value="json"``, the types of fields: ``{"amount": "double", "id": int, "from": {"city": str}}``, or
            a ``pyarrow.Schema``. Fields that it does not name are left out; one that a value lacks is null. A field
            that has another type is bad: see ``errors``. None: types are found in the values.
        limit: only this many records, those with the latest timestamps; None: all. It reads back from the end of each
            partition until it has enough (with ``keys``, or if timestamps are equal: all of it), so it may miss a late
            timestamp far before the end. The rows of a partition keep its order.
        errors: ``"raise"``, or ``"null"``: a bad key or value is null, and a column ``error`` says why. With ``schema``
            the field alone is null.
        progress: show a bar in a terminal or a notebook, if tqdm is installed (``pip install 'kadence[notebook]'``).
        settings: of a consumer, e.g. ``bootstrap_servers="localhost:9092"``: by default $KADENCE_BOOTSTRAP_SERVERS,
            or else ``localhost:9092``. ``isolation_level`` is ``"read_committed"`` by default.

    Raises:
        MissingDependencyError: pyarrow is not installed (``pip install 'kadence[arrow]'``).
        RecordDeserializationError: a key or a value is bad; the error has partition and offset.
        UnknownTopicOrPartitionError: there is no such topic or partition.
        OffsetOutOfRangeError: records were deleted after the call began and before it read them. With
            ``auto_offset_reset="earliest"`` it reads those that are left.
        KafkaTimeoutError: no connection succeeds within 4 s; or no broker answers, or none sends records, for
            default.api.timeout.ms. If you set that, it replaces the 4 s, too.
        ClosedError: within `stop_on_signals`, a signal came before the end was read.
        ConfigError, TypeError, ValueError: an argument is not allowed.
    """
    reading = _reading(
        topics, since, until, columns, key, value, partitions, keys, schema, limit, errors, progress, settings
    )
    import pyarrow as pa

    # The empty first table has the columns, even if no record is read.
    tables = [reading.decoded(reading.nothing()), *reading.tables()]
    reading.check_fields()
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
    schema: Schema | None = None,
    limit: int | None = None,
    errors: Errors = "raise",
    progress: bool = True,
    **settings: Any,
) -> Iterator[pa.Table]:
    """As `read`, but yields many small tables, for topics that do not fit into memory.

    Each table has at least one row. max.poll.arrow.bytes, 2 MiB by default, limits the keys and values of one. With
    ``value="json"``, ``"avro"`` or ``"protobuf"`` later tables may have fields that earlier ones lack, or wider types.
    The consumer is made when the first table is requested, and closed with the last one or with the iterator.

    Args:
        topics, since, until, columns, key, value, partitions, keys, schema, limit, errors, progress, settings: as for
            `read`. With ``limit`` all rows are in memory before the first table comes.

    Raises:
        as `read`: errors about arguments at the call, all others while it reads.
    """
    reading = _reading(
        topics, since, until, columns, key, value, partitions, keys, schema, limit, errors, progress, settings
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
    schema: Schema | None,
    limit: int | None,
    errors: Errors,
    progress: bool,
    settings: Mapping[str, Any],
) -> _Reading:
    """Check the arguments. All errors about them are raised here."""
    try:
        import pyarrow  # noqa: F401 - whether it is there
    except ImportError as problem:
        raise MissingDependencyError("read() needs pyarrow: pip install 'kadence[arrow]'") from problem
    if errors not in ("raise", "null"):
        raise ValueError(f"errors is 'raise' or 'null', not {errors!r}")
    names = sorted(topic_names(topics)) if not isinstance(topics, str) else list(topic_names(topics))
    if not names:
        raise ValueError("read() needs a topic")
    config = _DEFAULTS | {name.replace("_", "."): given for name, given in settings.items()}
    _check_names(settings)
    config.setdefault("bootstrap.servers", servers_of(os.environ))
    reach_s = None if "default.api.timeout.ms" in config else REACHED_S
    if reach_s is not None:
        config.setdefault("socket.connection.setup.timeout.ms", int(reach_s * 900))
    if config.get("group.id") is not None:
        raise ConfigError("read() joins no group and commits nothing: leave out group.id", key="group.id")
    if config.get("key.deserializer") is not None:
        raise ConfigError(
            "read() decodes keys by key='text'; leave out key.deserializer", key="key.deserializer"
        )
    if config.get("deserialization.errors") not in (None, "raise"):
        raise ConfigError(
            "read() keeps bad records with errors='null'; leave out deserialization.errors",
            key="deserialization.errors",
        )
    now_ms = wall_ms()
    places = place_of(since, "since", now_ms), place_of("latest" if until is None else until, "until", now_ms)
    first, last = places
    if (
        isinstance(first, Where)
        and isinstance(last, Where)
        and first.kind == last.kind == "time"
        and last.number < first.number
    ):
        raise ValueError(f"until, {until!r}, is earlier than since, {since!r}")
    if limit is not None and (isinstance(limit, bool) or not hasattr(limit, "__index__") or index(limit) < 1):
        raise ValueError(f"limit is a number of records, at least 1, not {limit!r}")
    own = without_registry(config)
    shown, fields = _shown(columns, value)
    if errors == "null" and "error" in fields:
        raise ValueError("the column error has the reasons; name the field 'value.error'")
    kind = None if schema is None else type_of(schema)
    if kind is not None and value != "json":
        raise ValueError(f"schema is for value='json', not for value={value!r}")
    return _Reading(
        topics=names,
        since=places[0],
        until=places[1],
        numbers=None if partitions is None else _numbers(partitions),
        columns=tuple(
            dict.fromkeys([*(name for name in shown if name not in fields), *(["value"] if fields else [])])
        ),
        shown=shown,
        fields=fields,
        limit=None if limit is None else index(limit),
        decoders={
            side: decoder
            for side, decoder in (
                ("key", decoder_of(key, config, "key")),
                (
                    "value",
                    decoder_of(
                        value, config, schema=kind if not fields or kind is None else top_level(kind, fields)
                    ),
                ),
            )
            if decoder is not None
        },
        keys=None if keys is None else _keys(keys),
        keeps_bad=errors == "null",
        progress=progress,
        patience_ms=ConsumerConfig.parse(own).default_api_timeout_ms,
        reach_s=reach_s,
        config=own,
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    """The checked arguments of one reading.

    Attributes:
        columns: the columns that are polled and decoded. shown: the columns of the table. fields: those of them that
            are fields of the values. patience_ms: how long to wait for the next records of a partition.
        reach_s: how long to try to connect; None: as long as the consumer does. config: of the consumer.
    """

    topics: list[str]
    since: Place
    until: Place
    numbers: tuple[int, ...] | None
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    fields: tuple[str, ...]
    limit: int | None
    decoders: Mapping[str, Decoder]
    keys: tuple[bytes | None, ...] | None
    keeps_bad: bool
    progress: bool
    patience_ms: int
    reach_s: float | None
    config: Mapping[str, Any]

    @property
    def polled(self) -> tuple[str, ...]:
        """The columns to poll, with those that an error about a bad record needs."""
        needed = [*self.columns]
        if self.keys is not None:
            needed.append("key")
        if self.limit is not None:
            needed.append("timestamp")
        if self.limit is not None or self.decoders.keys() & set(self.columns):
            needed += _PLACE
        for side in self.decoders.keys() & set(self.columns):
            needed += self.decoders[side].beside
        return tuple(dict.fromkeys(needed))

    def tables(self) -> Iterator[pa.Table]:
        """The polled tables, decoded; none is empty."""
        with Consumer(self.config) as consumer:
            ranges = planned(
                consumer, self.topics, self.numbers, self.since, self.until, self.config, self.reach_s
            )
            ranges = {p: (start, end) for p, (start, end) in ranges.items() if start < end}
            if not ranges:
                return
            if self.limit is None:
                polled: Iterable[pa.Table] = map(self._wanted, self._polled(consumer, ranges))
            else:
                polled = newest(ranges, self.limit, partial(self._polled, consumer), self._wanted)
            for table in polled:
                if table.num_rows:
                    yield self.decoded(table)

    def _wanted(self, table: pa.Table) -> pa.Table:
        """The rows with one of the wanted keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.keys is None:
            return table
        return table.filter(pc.is_in(table["key"], value_set=pa.array(self.keys, pa.binary())))

    def _polled(self, consumer: Consumer[Any, Any], ranges: Ranges) -> Iterator[pa.Table]:
        consumer.assign(ranges)
        clock = SystemClock()
        total = sum(end - start for start, end in ranges.values())
        shown = bar(", ".join(self.topics), total, is_wanted=self.progress)
        names = self.polled
        looked_at = alive_at = clock.now_ms()
        done = 0
        try:
            while True:
                table = _next_table(consumer, names)
                if table.num_rows:
                    yield table
                    # Only now, because the caller may have taken long over the last table.
                    alive_at = clock.now_ms()
                now = clock.now_ms()
                is_over = not table.num_rows and consumer.finished() == consumer.assignment()
                if is_over or now - looked_at >= _LOOK_MS:
                    looked_at = now
                    at = total if is_over else _done(consumer, ranges)
                    if at > done:
                        shown.update(at - done)
                        # Positions also pass records that are never returned, such as those of aborted transactions.
                        alive_at, done = now, at
                if is_over:
                    return
                if consumer.stopping:
                    raise ClosedError("reading ended early: stop() was called, perhaps by a signal")
                if not table.num_rows and now - alive_at >= self.patience_ms:
                    raise KafkaTimeoutError(_stuck(consumer, self.patience_ms))
        finally:
            shown.close()

    def nothing(self) -> pa.Table:
        """A table without rows of the columns that are polled."""
        from kadence.records import arrow

        return arrow.schema(self.polled).empty_table()

    def decoded(self, table: pa.Table) -> pa.Table:
        """The wanted columns, decoded."""
        import pyarrow as pa

        reasons: dict[int, str] = {}
        for side, decoder in self.decoders.items():
            if side not in self.columns:
                continue
            values, *beside = (table[name].combine_chunks() for name in (side, *decoder.beside))
            made = decoder.decode(values, *beside)
            if made.bad and not self.keeps_bad:
                raise _refused(table, side, made.bad)
            for row, reason in made.bad.items():
                reasons[row] = f"{reasons[row]}; {side}: {reason}" if row in reasons else f"{side}: {reason}"
            table = table.set_column(table.column_names.index(side), side, made.column)
        table = pa.table({name: self._column(table, name) for name in self.shown})
        if not self.keeps_bad:
            return table
        said = pa.array([reasons.get(row) for row in range(table.num_rows)], pa.string())
        return table.append_column("error", said)

    def _column(self, table: pa.Table, name: str) -> Any:
        return field_of(table["value"], name) if name in self.fields else table[name]

    def check_fields(self) -> None:
        """Check that the values had all wanted fields.

        Raises:
            ValueError: no value had one of them.
        """
        import pyarrow as pa

        kind = self._kind
        for name in self.fields if kind is not None and not pa.types.is_null(kind) else ():
            if path_to(kind, name) is None:
                there = ", ".join(field.name for field in kind) if pa.types.is_struct(kind) else "none"
                raise ValueError(f"columns: no value has a field {name!r}; there are: {there}")

    @property
    def _kind(self) -> Any:
        """The type of the values as far as known."""
        return getattr(self.decoders.get("value"), "kind", None)

    def fit(self, table: pa.Table) -> pa.Table:
        """A table that was decoded earlier, cast to the present types."""
        for at, name in enumerate(self.shown):
            if name in self.decoders:
                table = table.set_column(at, name, self.decoders[name].fit(table[name]))
            elif name in self.fields and self._kind is not None:
                table = table.set_column(at, name, fit_field(table[name], self._kind, name))
        return table


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuse a name that is neither a consumer setting nor an argument.

    Raises:
        ConfigError: the message lists the arguments.
    """
    rows = {row.name: row for row in keys_of(ConsumerConfig)}
    arguments = [name for name in signature(read).parameters if name != "settings"]
    for name in settings:
        key = name.replace("_", ".")
        if key in rows or key.startswith(REGISTRY):
            continue
        near = get_close_matches(name, arguments, n=1, cutoff=0.7)
        said = (
            f"there is no {name!r}: did you mean {near[0]!r}?"
            if near
            else f"{unknown(name, ConsumerConfig, rows)}."
        )
        raise ConfigError(f"{said} read() itself has {', '.join(arguments)}", key=key)


def _shown(columns: Sequence[str] | None, value: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the table, and those of them that are fields of the values."""
    if columns is None or isinstance(columns, str) or value in ("bytes", "text"):
        return columns_of(columns, headers=False), ()
    if len(set(columns)) < len(columns) or not columns:
        return columns_of(columns, headers=False), ()
    return tuple(columns), tuple(name for name in columns if name not in ALL_COLUMNS)


def _numbers(partitions: Iterable[int]) -> tuple[int, ...]:
    whatever: object = partitions
    if isinstance(whatever, str | bytes) or not isinstance(whatever, Iterable):
        raise TypeError(f"partitions are numbers, such as [0, 2], not {partitions!r}")
    given = tuple(partitions)
    for number in given:
        # numpy's numbers, as in a column of pandas, are not ints.
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
    """How many offsets have been passed; 0 while a position is looked up."""
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


def _next_table(consumer: Consumer[Any, Any], names: Sequence[str]) -> pa.Table:
    try:
        return consumer.poll_arrow(0.5, columns=names)
    except OffsetOutOfRangeError as problem:
        if problem.partition is None:
            raise
        raise OffsetOutOfRangeError(
            f"offset {problem.position} of {problem.partition} was deleted before it was read, by retention or a "
            "DeleteRecords request; auto_offset_reset='earliest' reads the records that are left",
            partition=problem.partition,
            position=problem.position,
        ) from problem


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
