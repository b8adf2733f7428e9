"""Checks the columns of an output's rows before anything is read: what its first batch would fail at, or damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError
from kadence_spark.pipeline.directory import BATCH, FILE_FORMATS
from kadence_spark.pipeline.model import Output
from kadence_spark.pipeline.outputs import LAKEHOUSE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["check_columns"]

_NESTED: Final = ("struct", "array", "map", "variant")

_UTC: Final = ("UTC", "Etc/UTC", "Z", "+00:00", "GMT")


def check_columns(schema: StructType, output: Output, table: str, zone: str) -> None:
    """Check the rows of an output.

    Args:
        table: the output's in the file, sink or dead_letters. zone: the session's time zone.

    Raises:
        ConfigError: its key is the one of the file that is wrong.
    """
    try:
        if output.topic is not None:
            from kadence_spark.sink.columns import RecordColumns

            RecordColumns.of(((each.name, each.dataType.simpleString()) for each in schema), output.topic)
        elif output.written_as in LAKEHOUSE:
            _check_lakehouse(schema, output, is_new=table == "dead_letters")
    except ConfigError as problem:
        raise ConfigError(f"{table}: {problem}", key=table) from None
    if output.written_as not in FILE_FORMATS:
        return
    for text in _mistakes(schema, output, zone):
        is_of_partitions = text.startswith("partition_by")
        raise ConfigError(f"{table}: {text}", key=f"{table}.partition_by" if is_of_partitions else table)


def _check_lakehouse(schema: StructType, output: Output, *, is_new: bool) -> None:
    from kadence_spark.lakehouse.columns import arrow_schema

    kind = output.written_as.removeprefix("kadence-")
    rows = arrow_schema(schema, kind)
    # Rows may lack columns that a table has. Dead letter records always have the same.
    if is_new and kind == "delta":
        from kadence_spark.lakehouse.delta import check_partitions

        check_partitions(rows, output.partition_by)
    elif is_new:
        import pyarrow as pa

        for name in output.partition_by:
            if name not in rows.names or pa.types.is_nested(rows.field(name).type):
                raise ConfigError(f"partition_by: there is no plain column {name}")


def _mistakes(schema: StructType, output: Output, zone: str) -> Iterator[str]:
    """What is wrong with rows for files."""
    kinds = {each.name.lower(): each.dataType.simpleString() for each in schema}
    by = [name.lower() for name in output.partition_by]
    if BATCH in kinds:
        yield f"the rows have a column {BATCH!r}, which is the name of the directories; rename it"
    for name in by:
        if name not in kinds:
            yield f"partition_by: there is no column {name}"
        elif kinds[name] == "binary" or kinds[name].startswith(_NESTED):
            # Bytes that are no text would become U+FFFD.
            yield f"partition_by: column {name} is {kinds[name]}, and names of directories are texts: cast it"
        elif kinds[name] == "timestamp" and zone not in _UTC:
            # Where clocks are put back, two hours have one name; in another zone it is another time.
            yield (
                f"partition_by: column {name} is a timestamp, and names of directories have the local time of {zone}: "
                "partition by a date, or set sql.session.timeZone of [spark] to UTC"
            )
    if len(set(by)) < len(by):
        yield "partition_by names a column twice"
    if by and len(by) == len(kinds):
        yield "partition_by: a table needs a column beside those that partition it"
    if output.written_as == "csv":
        for name, kind in kinds.items():
            if kind == "void" or kind.startswith(_NESTED):
                yield f"column {name} is {kind}, which CSV does not have; cast it, or take another format"
