"""In a worker: batches of Kafka's columns → the query's batches.

What a decoder learns (schemas of a registry, how types fit) is kept for the worker's life, by what it was made from:
a task of the next micro-batch begins with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kadence.errors import SerializationError
from kadence.logs import logger
from kadence_spark.decode.formats import SideDecoder, beside, decoder_of
from kadence_spark.decode.layout import Layout
from kadence_spark.decode.options import DecodeOptions, Mode

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SourceDecoding"]

_log = logger("kadence.spark")

_TOLD: Final = frozenset({":error", ":raw"})
"""The columns of bad records."""


@dataclass(frozen=True, slots=True)
class SourceDecoding:
    """How a query decodes, as it travels with its tasks (`kadence_spark.source.ports.Decoding`)."""

    options: DecodeOptions
    layout: Layout

    def decoder(
        self, schema: pa.Schema, zone: str | None = None
    ) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Of one task.

        Args:
            zone: the session's time zone; None: it is not known.
        """
        return _Batches(self, schema, zone).decode


@dataclass(slots=True)
class _Side:
    name: str
    column: int
    decoder: SideDecoder
    beside: tuple[int, ...]
    fields: dict[str, int] = field(default_factory=dict)


class _Batches:
    def __init__(self, decoding: SourceDecoding, schema: pa.Schema, zone: str | None) -> None:
        self._layout = decoding.layout
        self._schema = schema
        self._columns = {name: place for place, name in enumerate(decoding.layout.columns)}
        self._dropped = 0
        self._sides: list[_Side] = []
        for options in (decoding.options.value, decoding.options.key):
            target = _target_of(decoding.layout, f":{options.name}", schema)
            if target is None:
                continue
            side = _Side(
                options.name,
                self._columns[options.name],
                decoder_of(options, target, zone),
                tuple(self._columns[name] for name in beside(options)),
            )
            if options.name == "value":
                side.fields = {name: place for place, name in enumerate(decoding.layout.fields)}
            self._sides.append(side)

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The query's rows of these records."""
        import pyarrow as pa

        found: dict[str, pa.Array] = {}
        bad: dict[int, tuple[str, int]] = {}
        for side in self._sides:
            decoded = side.decoder.decode(batch.column(side.column), *map(batch.column, side.beside))
            if side.fields:
                flattened = decoded.column.flatten()
                found |= {f".{name}": flattened[place] for name, place in side.fields.items()}
            else:
                found[f":{side.name}"] = decoded.column
            for row, reason in decoded.bad.items():
                text = f"{side.name}: {reason}"
                before = bad.get(row)
                bad[row] = (f"{before[0]}; {text}", before[1]) if before else (text, side.column)
        if bad and self._layout.mode is Mode.FAIL:
            raise self._error(batch, bad)
        if not _TOLD.isdisjoint(self._layout.sources):
            found |= _reasons(batch, bad)
        arrays = [
            found[source] if source in found else batch.column(self._columns[source])
            for source in self._layout.sources
        ]
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return self._without(made, batch, bad) if bad and self._layout.mode is Mode.DROP else made

    def _without(
        self, made: pa.RecordBatch, batch: pa.RecordBatch, bad: dict[int, tuple[str, int]]
    ) -> pa.RecordBatch:
        import pyarrow as pa

        self._dropped += len(bad)
        _log.warning(
            "dropped %d records that cannot be decoded (%d in this task so far); the first: %s",
            len(bad),
            self._dropped,
            self._described(batch, bad),
        )
        good = [row not in bad for row in range(batch.num_rows)]
        return made.filter(pa.array(good))

    def _error(self, batch: pa.RecordBatch, bad: dict[int, tuple[str, int]]) -> SerializationError:
        return SerializationError(
            f"{self._described(batch, bad)}. With the option mode=permissive and the columns _error and _raw in the "
            "schema such records become rows, with mode=dropmalformed they are left out"
        )

    def _described(self, batch: pa.RecordBatch, bad: dict[int, tuple[str, int]]) -> str:
        row = min(bad)
        text, _ = bad[row]
        topic, partition, offset = (
            batch.column(self._columns[name])[row].as_py() for name in ("topic", "partition", "offset")
        )
        return f"record {topic}-{partition}@{offset} cannot be decoded: {text}"


def _reasons(batch: pa.RecordBatch, bad: Mapping[int, tuple[str, int]]) -> dict[str, pa.Array]:
    """The columns that say what is wrong with bad records, and what those hold."""
    import pyarrow as pa

    rows = batch.num_rows
    if not bad:
        return {":error": pa.nulls(rows, pa.string()), ":raw": pa.nulls(rows, pa.binary())}
    errors: list[str | None] = [None] * rows
    raw: list[bytes | None] = [None] * rows
    for row, (text, column) in bad.items():
        errors[row], raw[row] = text, batch.column(column)[row].as_py()
    return {":error": pa.array(errors, pa.string()), ":raw": pa.array(raw, pa.binary())}


def _target_of(layout: Layout, source: str, schema: pa.Schema) -> pa.DataType | None:
    """The Arrow type that a side is decoded to; a struct of the columns for a flat value; None for nothing."""
    import pyarrow as pa

    if source in layout.sources:
        return schema.field(layout.sources.index(source)).type
    if source != ":value" or not layout.fields:
        return None
    return pa.struct(
        [
            pa.field(layout.sources[place][1:], item.type, item.nullable)
            for place, item in enumerate(schema)
            if layout.sources[place].startswith(".")
        ]
    )
