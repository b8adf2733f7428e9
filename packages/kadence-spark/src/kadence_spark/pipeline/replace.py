"""Replaces a table's rows of some offsets. The provenance columns of each row name its record.

A directory of files has no commits, so it takes three steps: new files are written to another directory, then a journal
is written, then directories are exchanged. A crash before the journal leaves the table unchanged; after it, the next
run or replay finishes the exchange (`recover`). Readers may see a part of it meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError, IllegalStateError
from kadence_spark.pipeline.directory import ASIDE, BATCH, TYPED, Directory, batches_of, number_of, recover
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.model import Output
from kadence_spark.pipeline.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["must_be_replaceable", "replace"]

_AS_THEY_ARE: Final = {
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


def replace(
    rows: DataFrame,
    output: Output,
    ranges: Sequence[Range],
    names: tuple[str, str, str],
    table: Directory,
    files: Files,
    seen: DataFrame | None = None,
) -> int:
    """Put ``rows`` in place of the rows of these ranges; returns how many rows there were before.

    Args:
        names: the columns that hold topic, partition and offset. table: of the output, claimed.
        seen: topics, partitions and offsets of the records; rows of all others stay. None: no record is gone.

    Raises:
        IllegalStateError: the table has no such columns, or rows of another kind.
    """
    return _Exchange(rows.sparkSession, output, table, files).replace(
        rows, _condition(ranges, names), names, seen
    )


def _condition(ranges: Sequence[Range], names: tuple[str, str, str]) -> str:
    topic, partition, offset = names
    return " OR ".join(
        f"({topic} = '{each.partition.topic}' AND {partition} = {each.partition.partition} "
        f"AND {offset} >= {each.start} AND {offset} < {each.end})"
        for each in ranges
    )


def _must_have(columns: Sequence[str], names: tuple[str, str, str]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise IllegalStateError(
            f"the table, or a batch of it, has no column {missing[0]}, by which replay finds the rows of a record; it "
            "was written with provenance = false"
        )


class _Exchange:
    """Of a directory of files; see `kadence_spark.pipeline.directory`."""

    def __init__(self, session: SparkSession, output: Output, table: Directory, files: Files) -> None:
        # Values in directory names stay texts: "007" must not become 7. What cannot be read is not to be deleted.
        self._session = session.newSession()
        for name, value in _AS_THEY_ARE.items():
            self._session.conf.set(name, value)
        self._form = output.written_as
        self._table = table
        self._files = files

    def replace(
        self, rows: DataFrame, condition: str, names: tuple[str, str, str], seen: DataFrame | None
    ) -> int:
        from pyspark.sql import functions as f

        path = self._table.path
        batches = batches_of(self._files, path)
        self._table.check(rows)
        before = 0
        changed: list[str] = []
        if batches:
            table = self._session.read.format(self._form).load(path)
            _must_have(table.columns, names)
            # A batch that was written with provenance = false has nulls.
            found = table.where(f"{names[0]} IS NULL OR {condition}").groupBy(BATCH)
            counts = found.agg(f.count(names[0]).alias("known"), f.count(f.lit(1)).alias("all")).collect()
            _must_have(names if all(row["known"] == row["all"] for row in counts) else (), names)
            before = sum(row["all"] for row in counts)
            changed = [f"{BATCH}={row[BATCH]}" for row in counts]
        for name in changed:
            kept = self._session.read.format(self._form).load(f"{path}/{name}")
            if seen is None:
                kept = kept.where(f"NOT ({condition})")
            else:
                pairs = zip(names, seen.columns, strict=True)
                is_same = [kept[own] == seen[other] for own, other in pairs]
                kept = kept.join(seen, is_same, "left_anti")
            self._aside(kept, name)
        # Spark's batches do not have negative numbers.
        number = min([0, *map(number_of, batches)]) - 1
        self._aside(rows, f"{BATCH}={number}")
        document = json.dumps({"directories": [*changed, f"{BATCH}={number}"]}) + "\n"
        self._files.write(f"{path}/{ASIDE}/journal.json", document)
        self._table.keep(rows, number)
        recover(self._files, path)
        return before

    def _aside(self, rows: DataFrame, name: str) -> None:
        place = f"{self._table.path}/{ASIDE}/new/{name}"
        self._table.save(rows, place)
        if not self._files.names(place):
            # An object store has no directories without files, and the old one would stay.
            self._files.write(f"{place}/_empty", "")


def must_be_replaceable(output: Output, what: str) -> None:
    """Refuse what cannot be replaced.

    Raises:
        ConfigError: with the reason.
    """
    if output.topic is not None:
        raise ConfigError(
            f"{what} is the topic {output.topic}: a topic keeps what it has, so replay would write its records again. "
            "Run the pipeline with another checkpoint into another topic instead"
        )
    # The types of rows that remain would change.
    if output.written_as not in TYPED:
        raise ConfigError(f"{what} is of format {output.written_as}; replay works on {', '.join(TYPED)}")
    if not output.provenance:
        raise ConfigError(f"{what} has provenance = false, so replay cannot find the rows of a record")
