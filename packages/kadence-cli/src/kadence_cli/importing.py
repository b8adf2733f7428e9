"""``kadence produce -i FILE``: rows of a file with columns as records. Memory does not grow with the file.

A file with a column ``value`` has the parts of records in its columns; each row of any other file is a JSON document.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kadence_cli.common import CommandError, UsageError, bytes_of
from kadence_cli.values import plain

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rows"]

_PARTS: Final = ("key", "value", "headers", "partition", "timestamp")
_OF_ELSEWHERE: Final = ("topic", "offset", "timestampType", "leader_epoch", "error")
"""Columns about the origin or decoding of a record, which are ignored."""

_NOT_OF_TYPE: Final = re.compile(r"In CSV column #(\d+):.* conversion error to ")
"""pyarrow's error for a cell whose type differs from that of the first ones."""

_BATCH_ROWS: Final = 16_384
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Rows:
    """The rows of a file.

    Args:
        form: one of `files.TABLES`. key: of documents, the column whose value is the key. typed: values are documents,
            for a serialiser.

    Raises:
        CommandError: it cannot be read, or has columns that are not parts of records. UsageError: ``key`` does not fit.
    """

    def __init__(self, name: str, form: str, key: str | None, *, typed: bool) -> None:
        self._name = name
        self._form = form
        self._typed = typed
        self._key = key
        with self._told():
            names, self._batches = _opened(name, form)
        self.has_parts = "value" in names
        unknown = [each for each in names if each not in _PARTS and each not in _OF_ELSEWHERE]
        if self.has_parts and key is not None:
            raise UsageError(f"--key is for files whose rows are documents; {name} has a column value")
        if self.has_parts and unknown:
            raise CommandError(
                f"{name} has a column {unknown[0]!r} beside value, and a record has none; its parts are "
                f"{', '.join(_PARTS)}. Without a column value each row is written as a JSON document"
            )
        if key is not None and key not in names:
            raise CommandError(f"{name} has no column {key!r} for the key; it has {', '.join(names)}")
        # A partition beside an offset is that of another topic, so it is ignored.
        self._parts = [
            each for each in _PARTS if each in names and not (each == "partition" and "offset" in names)
        ]

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The rows as tables for `Producer.send_arrow`, each with the number of its first row, from 1."""
        import pyarrow as pa

        row = 1
        with self._told():
            for batch in self._batches:
                table = pa.table(batch)
                if table.num_rows:
                    yield row, self._with_parts(table, row) if self.has_parts else self._documents(table, row)
                row += table.num_rows

    def records(self) -> Iterator[dict[str, Any]]:
        """The parts of each row's record, by name; the value as a document if it is for a serialiser."""
        for _, table in self.tables():
            for parts in table.to_pylist():
                if self._typed:
                    parts["value"] = plain(parts["value"]) if self.has_parts else json.loads(parts["value"])
                if "headers" in parts:
                    parts["headers"] = [(pair["key"], pair["value"]) for pair in parts["headers"] or ()]
                if isinstance(moment := parts.get("timestamp"), datetime):
                    parts["timestamp"] = (moment - _EPOCH) // timedelta(milliseconds=1)
                if isinstance(key := parts.get("key"), str):
                    parts["key"] = key.encode()
                if isinstance(value := parts["value"], str) and not self._typed:
                    parts["value"] = value.encode()
                yield parts

    def _with_parts(self, table: pa.Table, row: int) -> pa.Table:
        import pyarrow as pa

        return pa.table({name: self._part(table[name], name, row) for name in self._parts})

    def _part(self, column: Any, name: str, row: int) -> Any:
        if name == "headers" or (name == "value" and self._typed):
            return column
        make = _MAKERS[name]
        try:
            return make(column)
        except _REFUSALS as problem:
            for place in range(len(column)):
                try:
                    make(column.slice(place, 1))
                except _REFUSALS as refusal:
                    at = f"row {row + place:,}"
                    raise CommandError(f"{self._name}, {at}, column {name}: {refusal}") from None
            raise CommandError(f"{self._name}, column {name}: {problem}") from None

    def _documents(self, table: pa.Table, row: int) -> pa.Table:
        import pyarrow as pa

        values: list[Any] = []
        keys: list[bytes | None] = []
        for number, cells in enumerate(table.to_pylist(), row):
            document = {name: plain(value) for name, value in cells.items()}
            try:
                keys.append(None if self._key is None else bytes_of(document[self._key]))
                values.append(
                    json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
                )
            except ValueError as problem:
                raise CommandError(f"{self._name}, row {number:,}: {problem}") from None
        return pa.table({"value": pa.array(values, pa.string()), "key": pa.array(keys, pa.binary())})

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except pa.ArrowException as problem:
            where = _uneven_line(self._name) if self._form == "csv" else ""
            raise CommandError(f"{self._name}{where} cannot be read: {problem}") from None


def _uneven_line(name: str) -> str:
    """The first line of a CSV file whose columns differ from the header, in words; pyarrow's error lacks it."""
    with Path(name).open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(lines)
        count = len(next(reader, []))
        return next((f", line {reader.line_num:,}," for row in reader if row and len(row) != count), "")


def _opened(name: str, form: str) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The columns' names, and the rows."""
    import pyarrow as pa

    # Python's error for a missing file is shorter.
    with Path(name).open("rb"):
        pass
    if form == "parquet":
        import pyarrow.parquet

        file = pyarrow.parquet.ParquetFile(name)
        return file.schema_arrow.names, file.iter_batches(batch_size=_BATCH_ROWS)
    if form == "arrow":
        reader = pa.ipc.open_file(pa.memory_map(name))
        return reader.schema.names, (reader.get_batch(index) for index in range(reader.num_record_batches))
    import pyarrow.csv

    with Path(name).open(encoding="utf-8-sig", newline="") as lines:
        names = next(csv.reader(lines), [])
    if len(set(names)) < len(names):
        raise CommandError(f"{name}: two columns have one name")
    # Parts of records are texts, and an empty cell is null. Documents get the inferred types.
    texts = "value" in names
    return names, iter(_csv(name, dict.fromkeys(names, pa.string()) if texts else _types_in(name, names)))


def _csv(name: str, types: Mapping[str, pa.DataType]) -> Any:
    """The rows of a CSV file; a column without a type gets that of its first MiB."""
    import pyarrow.csv

    convert = pyarrow.csv.ConvertOptions(
        column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.open_csv(name, convert_options=convert, parse_options=parse)


def _types_in(name: str, names: Sequence[str]) -> dict[str, pa.DataType]:
    """A type for each column that fits all its cells. The whole file is read for it before the first record is sent."""
    import pyarrow as pa

    ladder = [
        pa.null(),
        pa.int64(),
        pa.bool_(),
        pa.date32(),
        pa.time32("s"),
        pa.timestamp("s"),
        pa.timestamp("ns"),
        pa.float64(),
        pa.string(),
    ]
    types: dict[str, pa.DataType] = {}
    while True:
        try:
            stream = _csv(name, types)
            types = dict(zip(stream.schema.names, stream.schema.types, strict=True)) | types
            for _ in stream:
                pass
        except pa.ArrowInvalid as problem:
            told = _NOT_OF_TYPE.search(str(problem))
            column = None if told is None else names[int(told[1])]
            if column is None or types.get(column) in (None, pa.string()):
                raise
            at = types[column]
            types[column] = ladder[ladder.index(at) + 1] if at in ladder else pa.string()
        else:
            return types


def _bytes(column: Any) -> Any:
    """Keys and values as bytes or texts; other types as JSON."""
    import pyarrow as pa

    types = pa.types
    kind = column.type
    if types.is_string(kind) or types.is_binary(kind):
        return column
    if types.is_large_string(kind) or types.is_string_view(kind):
        return column.cast(pa.string())
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return column.cast(pa.binary())
    if types.is_dictionary(kind):
        return _bytes(column.cast(kind.value_type))
    if types.is_null(kind):
        return column.cast(pa.binary())
    return pa.chunked_array([pa.array([bytes_of(plain(each)) for each in column.to_pylist()], pa.binary())])


def _times(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind):
        return column.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise ValueError("the times have no zone; give the column one, such as UTC")
    return column.cast(pa.int64()) if pa.types.is_integer(kind) else column


def _numbers(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.int32())


_MAKERS: Final = {"key": _bytes, "value": _bytes, "partition": _numbers, "timestamp": _times}
_REFUSALS: Final = (ValueError, NotImplementedError)
"""pyarrow's are of these kinds."""
