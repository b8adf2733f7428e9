"""``kadence consume -o FILE``: records to a file with columns. Memory does not grow with the file."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from kadence_cli.common import CommandError, UsageError
from kadence_cli.values import registry_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kadence import Consumer

__all__ = ["columns_written", "deserializer", "write_table"]

_KEPT: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_TEXTS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
"""CSV has no headers."""

_GROUP_BYTES: Final = 32 << 20
"""The least size of a Parquet row group: a file of many small ones is large and slow to read."""


def columns_written(form: str) -> tuple[str, ...]:
    """The columns of a file of this form."""
    return _TEXTS if form == "csv" else _KEPT


def deserializer(arguments: argparse.Namespace, config: dict[str, Any], form: str) -> Any:
    """The decoder of values with a schema.

    Raises:
        UsageError: the form cannot have such columns.
    """
    import kadence_schemas as formats

    if form == "csv":
        raise UsageError("CSV has no columns of structs: with --value write .parquet, .arrow or .jsonl")
    if arguments.value == "json-schema":
        raise UsageError(
            "--value json-schema makes lines: write .jsonl; as they are, values go into any file"
        )
    kind = formats.AvroDeserializer if arguments.value == "avro" else formats.ProtobufDeserializer
    return kind(registry_of(arguments, config))


def write_table(
    consumer: Consumer[Any, Any],
    file: BinaryIO,
    form: str,
    arguments: argparse.Namespace,
    total: int,
) -> int:
    """Write the records of the consumer's ranges; returns how many.

    Args:
        total: how many offsets the ranges have.

    Raises:
        CommandError: no more records came before the end, or a value does not fit the file.
    """
    from kadence.clock import SystemClock
    from kadence.reading.progress import bar

    clock = SystemClock()
    patience = arguments.timeout * 1000
    left = arguments.max_records
    count = 0
    alive_at = clock.now_ms()
    shown = bar(" ".join(arguments.topics), total if left is None else min(total, left), is_wanted=True)
    with contextlib.closing(shown), _Sheet(file, form) as sheet:
        while left is None or left > 0:
            table = consumer.poll_arrow(0.5, columns=columns_written(form), value=arguments.value)
            if not table.num_rows:
                if consumer.finished() == consumer.assignment():
                    break
                if clock.now_ms() - alive_at >= patience:
                    raise CommandError(f"nothing came for {patience / 1000:g} s, and the end is not reached")
                continue
            if left is not None:
                table = table.slice(0, left)
                left -= table.num_rows
            sheet.write(table)
            count += table.num_rows
            shown.update(table.num_rows)
            alive_at = clock.now_ms()
    return count


class _Sheet:
    """A file with columns that is being written."""

    def __init__(self, file: BinaryIO, form: str) -> None:
        self._file = file
        self._form = form
        self._writer: Any = None
        self._schema: pa.Schema | None = None
        self._gathered: list[pa.Table] = []
        self._bytes = 0

    def write(self, table: pa.Table) -> None:
        """Write the rows, maybe later."""
        self._gathered.append(_with_texts(table) if self._form == "csv" else table)
        self._bytes += table.nbytes
        if self._bytes >= _GROUP_BYTES or self._form != "parquet":
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        table = pa.concat_tables(self._gathered, promote_options="permissive").combine_chunks()
        self._gathered, self._bytes = [], 0
        if self._writer is None:
            self._schema = table.schema
            self._writer = _writer(self._file, self._form, table.schema)
        elif table.schema != self._schema:
            table = self._fitted(table)
        self._writer.write_table(table)

    def _fitted(self, table: pa.Table) -> pa.Table:
        """Cast values whose schema has changed to the file's type."""
        import pyarrow as pa

        schema = self._schema
        assert schema is not None
        try:
            both = pa.unify_schemas([schema, table.schema], promote_options="permissive")
            if both == schema:
                return table.cast(schema)
        except pa.ArrowException:
            pass
        topic, number, offset = (table[name][0].as_py() for name in ("topic", "partition", "offset"))
        raise CommandError(
            f"values from {topic}:{number}, offset {offset} on have new fields, and all rows of a file have the same "
            "columns: write two files (--to, --from), or .jsonl"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            # The missing records are reported already, and the file is removed.
            with contextlib.suppress(Exception):
                if self._writer is not None:
                    self._writer.close()
            return
        if self._writer is None and not self._gathered:
            from kadence.records import arrow

            self.write(arrow.schema(columns_written(self._form)).empty_table())
        if self._gathered:
            self._write()
        self._writer.close()


def _writer(file: BinaryIO, form: str, schema: pa.Schema) -> Any:
    import pyarrow as pa

    if form == "parquet":
        import pyarrow.parquet

        return pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")
    if form == "arrow":
        return pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
    import pyarrow.csv

    return pyarrow.csv.CSVWriter(file, schema)


def _with_texts(table: pa.Table) -> pa.Table:
    """Keys and values as texts.

    Raises:
        CommandError: one is not valid UTF-8; the message names the record.
    """
    import pyarrow as pa

    for side in ("key", "value"):
        at = table.column_names.index(side)
        try:
            table = table.set_column(at, side, table[side].cast(pa.string()))
        except pa.ArrowInvalid:
            raise CommandError(
                f"the {side} of {_first_without_text(table, side)} is not UTF-8, and CSV has texts only: write "
                ".parquet, .arrow or .jsonl"
            ) from None
    return table


def _first_without_text(table: pa.Table, side: str) -> str:
    for row, data in enumerate(table[side].to_pylist()):
        try:
            str(data or b"", "utf-8")
        except UnicodeDecodeError:
            topic, number, offset = (table[name][row].as_py() for name in ("topic", "partition", "offset"))
            return f"{topic}:{number} at offset {offset}"
    return "a record"
