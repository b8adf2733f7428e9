"""Judges the records of a batch once, and stores the verdict, from which sink and dead letter records are written.

Two outputs are two queries of Spark's, and each of them computes its rows. A condition such as
``at <= current_timestamp()``, ``rand()`` or a call of another system could differ between them, and a row could be in
both outputs or in neither. So the rows of both are computed in one query and written beside the checkpoint before
either output is written. ``persist`` is not enough: Spark recomputes, and so judges again, rows that were evicted or
lost with an executor. With ``localCheckpoint`` the batch would fail instead; but a batch that Spark repeats after a
crash would be judged again, while an output that has the batch already ignores it. A repeated batch uses the stored
files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.directory import settings
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.frames import (
    REASON,
    RECORD,
    decoded,
    expectation_counts,
    judged_rows,
    shaped,
    undecodable,
)
from kadence_spark.pipeline.model import Output, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

__all__ = ["ROWS", "Judge", "Verdict", "named", "observed", "record_counts"]

_TOLD_WITHIN_S: Final = 60.0
"""How long a batch waits for Spark's counters, which come within milliseconds after the write."""

_VERDICT: Final = "verdict.json"

ROWS: Final = Output(provenance=False)
"""An output that takes the rows as they are."""

_WHOLE_FILE: Final = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}
"""A task reads a whole file in order, so rows keep the order in which a task of the source read them."""


_SHAPE: Final = {"query": str, "plan": str, "counts": dict, "schema": dict, "files": dict}
"""The required keys of a verdict's file."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The stored decisions on the records of a batch. Reading them does not judge again.

    Attributes:
        rows: of the sink. undecoded: the struct `RECORD` of each record that could not be decoded.
        dropped: `RECORD` and `REASON` of each row that expectations drop.
        counts: records, undecoded, rows (of the sink and dropped), dropped, and expect.<name> for each expectation.
    """

    rows: DataFrame
    undecoded: DataFrame
    dropped: DataFrame
    counts: Mapping[str, int]


class Judge:
    """Judges batches of a pipeline.

    Args:
        place: the directory with the verdict of one batch at a time.
    """

    def __init__(self, pipeline: Pipeline, files: Files, place: str) -> None:
        self._pipeline = pipeline
        self._files = files
        self._place = place

    @contextlib.contextmanager
    def verdict(self, source: DataFrame, number: int, query: str, plan: str) -> Iterator[Verdict]:
        """The verdict on a batch, which is stored until that of another batch or `forget`.

        Args:
            source: the records, as `frames.loaded` reads them. query: the id that Spark keeps in the checkpoint.
            plan: a digest of the offset ranges, as of `checkpoint.planned`.

        Raises:
            IllegalStateError: a record could be decoded at one time and not at another, or Spark did not report its
                counters; or the stored verdict is damaged, or is of other records under the same number, which an
                output may have already. Then the outputs were not written to.
        """
        place, half = f"{self._place}/{number}", f"{self._place}/_half"
        marker = self._marker(query)
        kept = self._kept(place)
        if kept is not None and kept["query"] == query and kept["plan"] != plan:
            raise IllegalStateError(
                f"batch {number} is planned with other offsets than those of {place}, and an output that has the batch "
                f"already would leave the new ones out: put offsets/{number} of the checkpoint back as it was, or, "
                f"only if neither output has the batch, delete {place}"
            )
        if kept is None or any(kept.get(name) != value for name, value in marker.items()):
            # The previous batch is committed, because this one has begun.
            self.forget()
            kept = marker | {"plan": plan} | self._judge(source, half)
            kept["files"] = self._stored_files(half)
            self._files.write(f"{half}/{_VERDICT}", json.dumps(kept) + "\n")
            # Atomically, because an aggregate may read the rows.
            self._files.move(half, place)
        self._check_whole(place, kept)
        session = source.sparkSession
        with settings(session, _WHOLE_FILE):
            yield _read(session, place, kept)

    def stream(self, session: SparkSession, schema: StructType) -> DataFrame:
        """The rows of the sink of all future verdicts, and of a stored one.

        Args:
            schema: of the rows.

        Raises:
            IllegalStateError: the stored verdict has other columns, or is damaged.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructType

        self.check_waiting(schema)
        whole = StructType(schema.fields).add(REASON, StringType())
        stored, columns = _stored(whole)
        # A pattern, because there may be no verdict yet. It must not match one that is being written.
        rows = session.readStream.schema(stored).parquet(f"{self._place}/[0-9]*/rows")
        return rows.where(f.col(f"c{len(columns) - 1}").isNull()).select(*columns[:-1])

    def check_waiting(self, schema: StructType) -> None:
        """Check that rows of this schema can follow those of the stored verdict.

        Raises:
            IllegalStateError: it has other columns, or is damaged.
        """
        from pyspark.sql.types import StructType

        for number in self._numbers():
            place = f"{self._place}/{number}"
            kept = self._kept(place)
            if kept is None:
                continue
            # Checked here, too: the aggregate would read the remaining files before the batch checks them.
            self._check_whole(place, kept)
            if _types(StructType.fromJson(kept["schema"]).fields[:-2]) != _types(schema.fields):
                raise IllegalStateError(
                    "rows of the last batch wait for the aggregate with the columns that the file had then; run the "
                    "file as it was once more, and change its columns after that"
                )

    def _numbers(self) -> list[int]:
        """Of the batches that have a stored verdict."""
        return [int(name) for name in self._files.names(self._place) if name.isdecimal()]

    def forget_ended(self, batch: int) -> None:
        """Delete the stored verdict unless it is of a later batch than this one, which has ended.

        A run that was stopped, or killed after its last batch, has left it. Spark does not repeat that batch.
        """
        if all(number <= batch for number in self._numbers()):
            self.forget()

    def forget(self) -> None:
        """Delete the stored verdict."""
        self._files.delete(self._place)

    def _marker(self, query: str) -> dict[str, str]:
        """The key of a verdict: a batch is judged again if the file has changed since."""
        each = self._pipeline
        decode = each.decode and (each.decode, sorted(each.decode.options.items()))
        if each.aggregate is not None:
            # Its rows may be in groups already, which cannot be undone.
            return {"query": query}
        rules = repr((query, decode, each.decode_action, each.transform, each.expect, each.sink))
        return {"query": query, "rules": hashlib.sha256(rules.encode()).hexdigest()}

    def _kept(self, place: str) -> dict[str, Any] | None:
        """Read the file of a verdict; None: there is no verdict."""
        text = self._files.read(f"{place}/{_VERDICT}")
        if text is None and not self._files.names(place):
            return None
        try:
            kept = json.loads(text or "")
            if all(isinstance(kept[name], kind) for name, kind in _SHAPE.items()):
                return dict(kept)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        state = "missing" if text is None else "damaged"
        raise IllegalStateError(f"{place}/{_VERDICT} is {state}: {_mend(place)}")

    def _check_whole(self, place: str, kept: Mapping[str, Any]) -> None:
        """Check that all files are there: Spark reads the existing ones, and would ignore a lost one."""
        there = self._stored_files(place)
        for name, size in sorted((kept["files"] | there).items()):
            was, now = kept["files"].get(name), there.get(name)
            if was == now:
                continue
            what = f"has {size} bytes instead of {was}"
            if now is None:
                what = "is missing"
            elif was is None:
                what = "is not a file of this verdict"
            raise IllegalStateError(f"{place}/{name} {what}: {_mend(place)}")

    def _stored_files(self, place: str) -> dict[str, int]:
        """The bytes of each file that Spark reads; it ignores names that begin with these signs."""
        return {
            f"{part}/{name}": size
            for part in ("rows", "undecoded")
            for name, size in self._files.sizes(f"{place}/{part}").items()
            if not name.startswith(("_", "."))
        }

    def _judge(self, source: DataFrame, place: str) -> dict[str, Any]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen, told = Observation(), Observation()
        records = decoded(source, self._pipeline).observe(seen, *named(record_counts()), _which())
        rows = judged_rows(records, self._pipeline)
        rows = rows.observe(told, *named(expectation_counts(self._pipeline.expect)))
        # Groups are made of the rows as the transforms left them.
        sink = self._pipeline.sink if self._pipeline.aggregate is None else ROWS
        verdict = shaped(rows, sink, REASON, RECORD)
        # Rows of the sink do not need their record any more.
        verdict = verdict.withColumn(RECORD, f.when(f.col(REASON).isNotNull(), f.col(RECORD)))
        _write(verdict, f"{place}/rows")
        counts = observed(seen) | observed(told)
        which = counts.pop("which")
        if counts["undecoded"]:
            again = Observation()
            bad = undecodable(decoded(source, self._pipeline)).select(RECORD).observe(again, _which())
            _write(bad, f"{place}/undecoded")
            if observed(again)["which"] != which:
                raise IllegalStateError(
                    "records of this batch could be decoded at one time and not at another, as where a schema registry "
                    "learns of a schema meanwhile; nothing of the batch was written, and the next run judges it again"
                )
        return {"counts": counts, "schema": verdict.schema.jsonValue()}


def record_counts() -> dict[str, Column]:
    """The counters over the rows of `decoded`, by name."""
    from pyspark.sql import functions as f

    return {"records": f.count(f.lit(1)), "undecoded": f.count(f"{RECORD}.error")}


def _which() -> Column:
    """A number for the set of records that could not be decoded, independent of their order."""
    from pyspark.sql import functions as f

    place = (f.col(f"{RECORD}.{name}") for name in ("topic", "partition", "offset"))
    return f.bit_xor(f.when(f.col(f"{RECORD}.error").isNotNull(), f.xxhash64(*place))).alias("which")


def named(counts: Mapping[str, Column]) -> list[Column]:
    """The columns under their names."""
    return [column.alias(name) for name, column in counts.items()]


def _write(rows: DataFrame, place: str) -> None:
    """Columns named by position: files allow neither names that differ only in case, nor columns without a type."""
    from pyspark.sql.types import NullType

    kept = rows.toDF(*(f"c{at}" for at in range(len(rows.columns))))
    void = [f"c{at}" for at, each in enumerate(rows.schema) if isinstance(each.dataType, NullType)]
    kept.drop(*void).write.mode("overwrite").option("compression", "lz4_raw").parquet(place)


def _stored(schema: StructType) -> tuple[StructType, list[Column]]:
    """The columns of the files, and how those of the rows are made of them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import NullType, StructField, StructType

    fields, columns = [], []
    for at, each in enumerate(schema):
        is_void = isinstance(each.dataType, NullType)
        columns.append((f.lit(None) if is_void else f.col(f"c{at}")).alias(each.name))
        if not is_void:
            fields.append(StructField(f"c{at}", each.dataType))
    return StructType(fields), columns


def _mend(place: str) -> str:
    return (
        f"put the file back as it was, or delete {place} to have the batch judged again; if an output has the batch "
        "already, a row may then be in both outputs or in neither, and in a group twice"
    )


def _types(fields: Sequence[StructField]) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in fields]


def _read(session: SparkSession, place: str, kept: Mapping[str, Any]) -> Verdict:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructField, StructType

    schema = StructType.fromJson(kept["schema"])
    stored, columns = _stored(schema)
    reason, record = columns[-2:]
    rows = session.read.schema(stored).parquet(f"{place}/rows")
    no_reason = f.col(f"c{len(columns) - 2}").isNull()
    good = rows.where(no_reason).select(*columns[:-2])
    dropped = rows.where(~no_reason).select(record, reason)
    undecoded = dropped.select(RECORD).limit(0)
    if kept["counts"]["undecoded"]:
        shape = StructType([StructField("c0", schema[-1].dataType)])
        undecoded = session.read.schema(shape).parquet(f"{place}/undecoded").select(f.col("c0").alias(RECORD))
    return Verdict(good, undecoded, dropped, kept["counts"])


def observed(observation: Any, within: float = _TOLD_WITHIN_S) -> dict[str, Any]:
    """Spark's counters of a write.

    Raises:
        IllegalStateError: Spark did not report them. Assuming 0 would lose dead letter records.
    """
    future = observation._jo.future()
    deadline = time.monotonic() + within
    while not future.isCompleted():
        if time.monotonic() >= deadline:
            raise IllegalStateError(
                f"Spark did not report within {within:g} s how many records it has read and written; the next run "
                "repeats the batch"
            )
        time.sleep(0.002)
    return dict(observation.get)
