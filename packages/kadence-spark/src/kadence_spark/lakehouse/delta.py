"""Delta tables by the library deltalake. The only module that imports it.

The number of a writer's last batch is Delta's own transaction identifier (the action ``txn``), which Delta's jar reads
and writes, too, under the options txnAppId and txnVersion.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import ConfigError, IllegalStateError, MissingDependencyError, SerializationError
from kadence.logs import logger
from kadence_spark.lakehouse.columns import Columns, fit
from kadence_spark.lakehouse.commit import ConflictError, RefusedError, until_unopposed
from kadence_spark.lakehouse.options import TableOptions, hidden
from kadence_spark.stamp import Stamp

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeltaFile", "DeltaFiles", "DeltaTarget", "check_partitions", "opened", "prepared"]

_log = logger("kadence.spark")

_NEEDS_MORE: Final = {
    "delta.columnMapping.mode": "column mapping",
    "delta.enableRowTracking": "row tracking",
}
"""Properties of tables that need features which this sink does not write."""

_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""Delta's writer features with which this sink can append; some only if no property or column uses them."""

_FIELD_NEEDS_MORE: Final = {
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity",
    "delta.invariants": "has an invariant",
}

_INDEXED: Final = 32
"""Delta's own number of columns whose smallest and largest values are kept for each file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table for which files are written.

    Attributes:
        table: its id, which changes if the table is recreated. columns: the columns of the files.
    """

    table: str
    partition_by: tuple[str, ...]
    columns: pa.Schema

    def check(self, table: Any) -> None:
        """Check that the files still fit a table.

        Raises:
            IllegalStateError: it was replaced, or has other columns or another partitioning.
        """
        import pyarrow as pa

        metadata = table.metadata()
        is_same = (self.table, self.partition_by) == (str(metadata.id), tuple(metadata.partition_columns))
        try:
            # Columns and fields that other writers have added meanwhile are null in these files.
            now = pa.schema(table.schema().to_arrow())
            takes = is_same and not fit(self.columns, now, may_add=False)
            takes = takes and all(now.field(item.name).nullable or not item.nullable for item in self.columns)
        except ConfigError:
            takes = False
        if not takes:
            raise RefusedError(
                "the table was replaced, or its columns or partitioning changed, while files were written for it as it "
                "was; nothing was added"
            )


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of rows, with the fields of its entry in the table's log."""

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...]
    stats: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """Writes the files of one table.

    Attributes:
        uri, settings: the table's place and store. columns: the table's.
    """

    uri: str
    settings: Mapping[str, str] = field(repr=False)
    columns: Columns
    layout: Layout

    def write(self, rows: pa.Table) -> list[DeltaFile]:
        """Write one file for each partition of the rows."""
        import pyarrow.parquet as pq

        files = []
        path = ""
        try:
            with _told(self.settings):
                store = _store(self.uri, self.settings)
                for partition, part in _split(rows, self.layout.partition_by):
                    path = f"part-{uuid.uuid4()}.parquet"
                    with store.open_output_stream(path) as out:
                        pq.write_table(part, out, store_schema=False)
                        size = out.tell()
                    files.append(DeltaFile(path, size, partition, _stats(part), self.layout))
        except BaseException:
            _remove(self.uri, self.settings, [path, *(each.path for each in files if each.path != path)])
            raise
        return files

    def remove(self, files: Sequence[DeltaFile]) -> None:
        """Delete files; VACUUM removes those that cannot be deleted."""
        _remove(self.uri, self.settings, [each.path for each in files])


class DeltaTarget:
    """A table at one version."""

    def __init__(self, table: Any, settings: Mapping[str, str]) -> None:
        self._table = table
        self._settings = settings

    def last_batch(self, writer: str) -> int | None:
        found: int | None = self._table.transaction_version(writer)
        return found

    def commit(self, files: Sequence[DeltaFile], stamp: Stamp | None, *, overwrite: bool) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        for layout in {each.layout for each in files}:
            layout.check(self._table)
        try:
            _check_features(self._table)
        except ConfigError as problem:
            raise RefusedError(f"{problem}; it has come to the table since the files were written") from None
        if overwrite and self._table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
            raise RefusedError(
                "the table is append-only (delta.appendOnly), so its rows cannot be replaced: write with mode append"
            )
        now = time.time_ns() // 1_000_000
        actions = [
            AddAction(each.path, each.size, dict(each.partition), now, True, each.stats) for each in files
        ]
        # A retry inside the library would not check whether the batch was added meanwhile.
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[] if stamp is None else [Transaction(stamp.writer, stamp.batch)],
        )
        with _changing(self._table, self._settings):
            self._table.create_write_transaction(
                actions,
                "overwrite" if overwrite else "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties,
            )

    def remove(self, files: Sequence[DeltaFile]) -> None:
        _remove(self._table.table_uri, self._settings, [each.path for each in files])

    def has(self, files: Sequence[DeltaFile]) -> bool:
        uris = {uri.rpartition("/")[2] for uri in self._table.file_uris()}
        return any(each.path in uris for each in files)


def opened(options: TableOptions) -> DeltaTarget:
    """The present version of the table."""
    deltalake = _library()
    with _told(options.settings):
        return DeltaTarget(
            deltalake.DeltaTable(_uri(options.place), storage_options=dict(options.settings)),
            options.settings,
        )


def prepared(options: TableOptions, rows: pa.Schema) -> DeltaFiles:
    """The table, created or widened if necessary, for rows of this schema.

    Raises:
        ConfigError: the rows do not fit, or the table needs features that this sink does not write.
    """
    import pyarrow as pa

    deltalake = _library()
    uri, settings = _uri(options.place), dict(options.settings)
    with _told(settings):
        if not deltalake.DeltaTable.is_deltatable(uri, settings):
            check_partitions(rows, options.partition_by)
            _create(uri, settings, rows, options.partition_by)
        table = deltalake.DeltaTable(uri, storage_options=settings)
    _check_features(table)

    def widen() -> None:
        table.update_incremental()
        changed = fit(rows, pa.schema(table.schema().to_arrow()), may_add=options.merge_schema)
        if changed:
            with _changing(table, settings):
                table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(changed)).fields)

    until_unopposed(widen, "add columns to the table")
    partition_by = tuple(table.metadata().partition_columns)
    if options.partition_by and options.partition_by != partition_by:
        raise ConfigError(
            f"option partitionBy: the table is partitioned by {', '.join(partition_by) or 'nothing'}; "
            "leave the option out"
        )
    found = pa.schema(table.schema().to_arrow())
    check_partitions(found, partition_by)
    return DeltaFiles(uri, settings, Columns(found), Layout(str(table.metadata().id), partition_by, found))


def _create(uri: str, settings: dict[str, str], rows: pa.Schema, partition_by: Sequence[str]) -> None:
    """Create a table unless another writer creates it first.

    A retry inside the library would replace the other one's columns and id.
    """
    import deltalake
    from deltalake.exceptions import DeltaError

    try:
        deltalake.DeltaTable.create(
            uri,
            deltalake.Schema.from_arrow(rows),
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=settings,
            commit_properties=deltalake.CommitProperties(max_commit_retries=0),
        )
    except DeltaError as problem:
        if not deltalake.DeltaTable.is_deltatable(uri, settings):
            raise
        _log.info("another writer has created the table first: %s", _said(problem, settings))


def _library() -> Any:
    try:
        import deltalake
    except ImportError as problem:
        raise MissingDependencyError(
            f"format 'kadence-delta' needs deltalake ({problem}): pip install 'kadence[delta]'"
        ) from None
    return deltalake


@contextmanager
def _told(settings: Mapping[str, str], *passed: type[BaseException]) -> Iterator[None]:
    """The library's errors without the values of settings."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except passed:
        raise
    except (DeltaError, OSError, ValueError) as problem:
        if isinstance(problem, ConfigError):
            raise
        raise IllegalStateError(f"Delta: {_said(problem, settings)}") from None


_COLOURS: Final = re.compile("\x1b\\[[0-9;]*m")


def _said(problem: Exception, settings: Mapping[str, str]) -> str:
    """The library's message in one line, without colours and values of settings."""
    return hidden(" ".join(_COLOURS.sub("", str(problem)).split()), settings)


@contextmanager
def _changing(table: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """A context for a commit. The library has one error for conflicts and refused commits.

    Raises:
        ConflictError: the table has changed since it was opened.
        RefusedError: the table refuses the commit.
        IllegalStateError: a remote store failed, and may have the commit all the same.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    version = table.version()
    try:
        yield
    except ConfigError:
        raise
    except (DeltaError, OSError, ValueError) as problem:
        said = _said(problem, settings)
        with _told(settings):
            table.update_incremental()
        if table.version() != version:
            raise ConflictError(said) from None
        # The library has one error for commits that the table refuses and for failures of its store.
        is_known = isinstance(problem, CommitFailedError) and not _OF_STORES.search(said)
        kind = RefusedError if is_known or _is_here(table.table_uri) else IllegalStateError
        raise kind(f"Delta: {said}") from None


_OF_STORES: Final = re.compile("object store|log storage", re.IGNORECASE)


def _is_here(uri: str) -> bool:
    """Whether a table is in the local file system, where a failed commit has no later effect."""
    return "://" not in uri or uri.startswith("file://")


def _uri(place: str) -> str:
    """The address for the library, which on an executor has another working directory than on the driver.

    Hadoop writes ``file:/table`` where others write ``file:///table``.
    """
    if place.startswith("file:/") and not place.startswith("file://"):
        return f"file://{place[5:]}"
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - links stay as they are


def _store(uri: str, settings: Mapping[str, str]) -> Any:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(uri, dict(settings)))


def _remove(uri: str, settings: Mapping[str, str], paths: Sequence[str]) -> None:
    for path in filter(None, paths):
        try:
            _store(uri, settings).delete_file(path)
        except FileNotFoundError:
            continue
        except Exception as problem:  # noqa: BLE001 - no reader sees the file
            _log.warning("%s was not deleted: %s", path, _said(problem, settings))


# ---------------------------------------------------------------- what a table asks of its writers


def _check_features(table: Any) -> None:
    said = {
        name for key, name in _NEEDS_MORE.items() if _is_on(table.metadata().configuration.get(key, "none"))
    }
    if any(key.startswith("delta.constraints.") for key in table.metadata().configuration):
        said.add("CHECK constraints")
    said |= {f"the writer feature {each}" for each in set(table.protocol().writer_features or ()) - _FEATURES}
    if said:
        raise ConfigError(f"the table has {', '.join(sorted(said))}, which this sink cannot keep up")
    for item in json.loads(table.schema().to_json())["fields"]:
        for key, meaning in _FIELD_NEEDS_MORE.items():
            if key in item.get("metadata", {}):
                raise ConfigError(
                    f"column {item['name']} of the table {meaning}, which this sink cannot keep up"
                )


def _is_on(value: str) -> bool:
    return value.lower() not in ("none", "false")


def check_partitions(schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
    """Check the columns that partition a table.

    Raises:
        ConfigError: one is missing, or has a type that Delta does not allow there.
    """
    from pyarrow import types

    for name in partition_by:
        if name not in schema.names:
            raise ConfigError(f"option partitionBy: there is no column {name}")
        kind = schema.field(name).type
        if not (
            types.is_string(kind)
            or types.is_signed_integer(kind)
            or types.is_date(kind)
            or types.is_boolean(kind)
        ):
            raise ConfigError(
                f"column {name} is {kind}: tables are partitioned by texts, integers, dates and booleans"
            )
    if partition_by and len(partition_by) == len(schema.names):
        raise ConfigError("option partitionBy: a table needs a column beside those that partition it")


# ---------------------------------------------------------------- files


def _split(
    rows: pa.Table, partition_by: tuple[str, ...]
) -> Iterator[tuple[tuple[tuple[str, str | None], ...], pa.Table]]:
    """Groups rows by the values of the partition columns, which are in the log and not in the files."""
    if not partition_by:
        yield (), rows
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = rows.select(list(partition_by)).group_by(list(partition_by)).aggregate([])
    try:
        found = keys.to_pylist()
    except (OverflowError, ValueError):
        raise SerializationError(
            "a row's date, by which the table is partitioned, is before the year 1 or after 9999"
        ) from None
    for key in found:
        chosen = None
        for name, value in key.items():
            if value == "" and not rows.schema.field(name).nullable:
                raise SerializationError(
                    f"column {name} of the table must not be null, and a row's is empty: Delta makes null of an empty "
                    "text by which a table is partitioned"
                )
            column = rows[name]
            here = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
            chosen = here if chosen is None else pc.and_(chosen, here)
        partition = tuple((name, _partition_text(value)) for name, value in key.items())
        yield partition, rows.filter(chosen).drop_columns(list(partition_by))


def _partition_text(value: Any) -> str | None:
    """A partition value in the form of the log, in which an empty text is the same as null."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stats(rows: pa.Table) -> str:
    """The statistics of a file: rows, nulls, and bounds of its values, with which readers skip files."""
    from pyarrow import types

    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for item in list(rows.schema)[:_INDEXED]:
        if types.is_nested(item.type):
            continue
        column = rows[item.name]
        nulls[item.name] = column.null_count
        bounds = _bounds(column, item.type) if column.null_count < len(column) else None
        if bounds is not None:
            lowest[item.name], highest[item.name] = bounds
    return json.dumps(
        {"numRecords": rows.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    )


def _bounds(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[Any, Any] | None:
    """The bounds of the values in the form of the log, or slightly wider; None: the type has no bounds there."""
    import pyarrow.compute as pc
    from pyarrow import types

    if types.is_string(kind) or types.is_signed_integer(kind):
        found = pc.min_max(column).as_py()
        return _cut(found["min"]), _above(found["max"])
    if types.is_date(kind) or types.is_timestamp(kind):
        found = pc.min_max(column)
        days = types.is_date(kind)
        low, high = ((_day if days else _instant)(found[which].value) for which in ("min", "max"))
        zone = "Z" if not days and kind.tz is not None else ""
        return None if low is None or high is None else (low + zone, high + zone)
    if types.is_floating(kind):
        found = pc.min_max(column).as_py()
        # NaN is the largest value in Delta, but Arrow's bounds ignore it.
        has_nan = pc.any(pc.is_nan(column)).as_py()
        # Zeros of both signs may be there: some readers order them, and Arrow's bounds do not.
        bounds = (found["min"] or -0.0, found["max"] or 0.0)
        return bounds if all(map(math.isfinite, bounds)) and not has_nan else None
    if types.is_decimal(kind) and kind.precision <= _EXACT:
        found = pc.min_max(column).as_py()
        return _plain(found["min"], -_SMALL), _plain(found["max"], _SMALL)
    return None


_EXACT: Final = 15
"""Decimals up to this precision pass through JSON's floating numbers unchanged."""

_SMALL: Final = Decimal("0.0001")
"""Numbers below it have an exponent in JSON. In a decimal's bound deltalake reads that as null, and finds no row."""


def _plain(value: Decimal, wider: Decimal) -> float:
    """A bound without an exponent. ``wider`` or 0 stands for a small number: it is on the outer side of it."""
    if 0 < abs(value) < _SMALL:
        return float(wider) if (value < 0) == (wider < 0) else 0.0
    return float(value)


_LONGEST: Final = 32
"""The length at which texts are cut, as in Delta itself."""

_LAST: Final = "\U0010ffff"


def _cut(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else value


def _above(value: Any) -> Any:
    """A text that is not below any text with the same beginning up to the cut."""
    if not isinstance(value, str) or len(value) <= _LONGEST:
        return value
    begin = value[:_LONGEST]
    return begin + _LAST if value[_LONGEST] != _LAST else value


_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - the log has no zones


def _instant(micros: int) -> str | None:
    """In whole milliseconds, as Delta stores them: readers add a millisecond to the upper bound."""
    try:
        at = _EPOCH + datetime.timedelta(milliseconds=micros // 1000)
    except OverflowError:
        return None
    return at.isoformat(timespec="milliseconds")


def _day(days: int) -> str | None:
    try:
        return (_EPOCH + datetime.timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None
