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
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.model import Output
from kadence_spark.pipeline.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BATCH", "batches_of", "must_be_replaceable", "must_fit", "recover", "replace"]

BATCH: Final = "batch"
"""The column of the directories of batches, ``batch=<number>``, in a directory of files."""

REPLACEABLE: Final = ("parquet", "orc")
"""Formats that keep types, so that replay can replace rows: those of text formats that remain would change."""

_ASIDE: Final = "_replay"


def replace(
    rows: DataFrame,
    output: Output,
    place: str,
    options: dict[str, str],
    ranges: Sequence[Range],
    names: tuple[str, str, str],
    files: Files,
) -> int:
    """Put ``rows`` in place of the rows of these ranges; returns how many rows there were before.

    Args:
        names: the columns that hold topic, partition and offset.

    Raises:
        IllegalStateError: the table has no such columns.
    """
    condition = _condition(ranges, names)
    table = _Directory(rows.sparkSession, output, place.rstrip("/"), options, files)
    return table.replace(rows, condition, names)


def _condition(ranges: Sequence[Range], names: tuple[str, str, str]) -> str:
    topic, partition, offset = names
    return " OR ".join(
        f"({topic} = '{each.partition.topic}' AND {partition} = {each.partition.partition} "
        f"AND {offset} >= {each.start} AND {offset} < {each.end})"
        for each in ranges
    )


def _must_have(table: DataFrame, names: tuple[str, str, str]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise IllegalStateError(
            f"the table has no column {missing[0]}, by which replay finds the rows of a record; it was written with "
            "provenance = false"
        )


def recover(files: Files, path: str) -> None:
    """Finish an exchange of directories that a crash interrupted, or discard one without a journal."""
    path = path.rstrip("/")
    if not files.names(f"{path}/{_ASIDE}"):
        return
    journal = files.read(f"{path}/{_ASIDE}/journal.json")
    if journal is not None:
        for name in json.loads(journal)["directories"]:
            # A directory that is no longer there was exchanged before the crash.
            if files.names(f"{path}/{_ASIDE}/new/{name}"):
                files.delete(f"{path}/{name}")
                files.move(f"{path}/{_ASIDE}/new/{name}", f"{path}/{name}")
    files.delete(f"{path}/{_ASIDE}")


def must_fit(rows: DataFrame, form: str, path: str, batches: Sequence[str]) -> None:
    """Refuse rows whose columns have other types than those of a directory of files, which would become unreadable.

    JSON and CSV have no types to compare: Spark guesses them when it reads, `bigint` for an `int`.

    Raises:
        IllegalStateError: with the column and both types.
    """
    from pyspark.errors import AnalysisException

    if form not in REPLACEABLE:
        return
    types = {each.name: each.dataType.simpleString() for each in rows.schema}
    # The newest batch with a file; an empty batch may have none.
    for name in reversed(batches):
        try:
            table = rows.sparkSession.read.format(form).load(f"{path}/{name}")
        except AnalysisException:
            continue
        files = [each for each in table.schema if each.name in types]
        # Partition columns are read from directory names, with inferred types.
        layout = {part.partition("=")[0] for part in str(table.inputFiles()[:1]).split("/") if "=" in part}
        for each in files:
            kind = each.dataType.simpleString()
            if each.name not in layout and kind != types[each.name]:
                raise IllegalStateError(
                    f"column {each.name} is {types[each.name]} now, and {kind} in the table {path}: cast it in a "
                    "transform, or begin a new table with a checkpoint of its own"
                )
        return


class _Directory:
    """Files below ``path/batch=<number>``; see `kadence_spark.pipeline.outputs`."""

    def __init__(
        self, session: SparkSession, output: Output, path: str, options: dict[str, str], files: Files
    ) -> None:
        # Values in directory names stay texts: "007" must not become 7.
        self._session = session.newSession()
        self._session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        self._output = output
        self._path = path
        self._options = options
        self._files = files

    def replace(self, rows: DataFrame, condition: str, names: tuple[str, str, str]) -> int:
        recover(self._files, self._path)
        batches = batches_of(self._files, self._path)
        must_fit(rows, self._output.written_as, self._path, batches)
        before = 0
        changed: list[str] = []
        if batches:
            table = self._session.read.format(self._output.written_as).load(self._path)
            _must_have(table, names)
            found = table.where(condition).groupBy(BATCH).count().collect()
            before = sum(row["count"] for row in found)
            changed = [f"{BATCH}={row[BATCH]}" for row in found]
        for name in changed:
            kept = self._session.read.format(self._output.written_as).load(f"{self._path}/{name}")
            self._aside(kept.where(f"NOT ({condition})"), name)
        # Spark's batches do not have negative numbers.
        fresh = f"{BATCH}={min([0, *map(_number, batches)]) - 1}"
        self._aside(rows, fresh)
        document = json.dumps({"directories": [*changed, fresh]}) + "\n"
        self._files.write(f"{self._path}/{_ASIDE}/journal.json", document)
        recover(self._files, self._path)
        return before

    def _aside(self, rows: DataFrame, name: str) -> None:
        saver = rows.write.mode("overwrite").format(self._output.written_as).options(**self._options)
        if self._output.partition_by:
            saver = saver.partitionBy(*self._output.partition_by)
        saver.save(f"{self._path}/{_ASIDE}/new/{name}")


def _number(batch: str) -> int:
    return int(batch.partition("=")[2])


def batches_of(files: Files, path: str) -> list[str]:
    """The directories of a table's batches, oldest first; those of replays before them."""
    return sorted((name for name in files.names(path) if name.startswith(f"{BATCH}=")), key=_number)


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
    if output.written_as not in REPLACEABLE:
        raise ConfigError(
            f"{what} is of format {output.written_as}; replay works on {', '.join(REPLACEABLE)}"
        )
    if not output.provenance:
        raise ConfigError(f"{what} has provenance = false, so replay cannot find the rows of a record")
