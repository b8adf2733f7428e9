"""Iceberg tables by the library PyIceberg. The only module that imports it.

The number of a writer's last batch is a property of the table, set by the commit that adds the batch's files. It is
also in the summary of the snapshot, for readers of the history; but snapshots expire, and the property stays.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import ConfigError, IllegalStateError, KafkaError, MissingDependencyError
from kadence.logs import logger
from kadence_spark.lakehouse.columns import Columns, fit, null_where
from kadence_spark.lakehouse.commit import ConflictError, RefusedError, until_unopposed
from kadence_spark.lakehouse.options import TableOptions, hidden
from kadence_spark.stamp import Stamp

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LAST_BATCH", "IcebergFile", "IcebergFiles", "IcebergTarget", "all_or_none", "opened", "prepared"]

_log = logger("kadence.spark")

LAST_BATCH: Final = "kadence.last-batch."
"""The prefix of the property with the number of a writer's last batch; the writer follows."""

_FIRST_FILE: Final = "kadence.file"
"""The key in a snapshot's summary with its first file, which identifies the commit."""

_END_S: Final = 60
"""How long a write that has failed waits for its other files."""

_LOOK_S: Final = 0.02
"""How often it looks at them: the library's threads report nothing."""


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A file of rows.

    Attributes:
        data: PyIceberg's own description of it. table, spec: ids of the table and the partitioning it was written for.
    """

    data: Any
    table: str
    spec: int


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """Writes the files of one table.

    Attributes:
        metadata: the table's, as JSON, without its history. settings: of its store; not in the repr, because there may
            be passwords. columns: the table's.
    """

    metadata: str
    settings: Mapping[str, Any] = field(repr=False)
    columns: Columns

    def write(self, rows: pa.Table) -> list[IcebergFile]:
        """Write one file for each partition of the rows."""
        # append() does the same, but commits at once. This half of it has no public name.
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import _dataframe_to_data_files
        from pyiceberg.table.metadata import TableMetadataUtil

        _keep_nulls()
        with _told(self.settings):
            metadata = TableMetadataUtil.parse_raw(self.metadata)
            ids = str(metadata.table_uuid), metadata.default_spec_id
            with all_or_none(load_file_io(self.settings, metadata.location), self.settings) as io:
                return [
                    IcebergFile(each, *ids)
                    for part in _apart(rows, metadata)
                    for each in _dataframe_to_data_files(metadata, part, io)
                ]

    def remove(self, files: Sequence[IcebergFile]) -> None:
        """Delete files; the table's maintenance removes those that cannot be deleted."""
        from pyiceberg.io import load_file_io

        paths = [each.data.file_path for each in files]
        _remove(load_file_io(dict(self.settings)), paths, self.settings)


class IcebergTarget:
    """A table at one version."""

    def __init__(self, table: Any, settings: Mapping[str, str]) -> None:
        self._table = table
        self._settings = settings

    def last_batch(self, writer: str) -> int | None:
        found = self._table.properties.get(LAST_BATCH + writer)
        return None if found is None else int(found)

    def commit(self, files: Sequence[IcebergFile], stamp: Stamp | None, *, overwrite: bool) -> None:
        from pyiceberg.expressions import AlwaysTrue

        now = self._table.metadata
        if any((each.table, each.spec) != (str(now.table_uuid), now.default_spec_id) for each in files):
            raise RefusedError(
                "the table was replaced, or its partitioning changed, while files were written for it as it was; "
                "nothing was added"
            )
        for item in self._table.schema().fields:
            if item.required and any(
                (each.data.null_value_counts or {}).get(item.field_id) for each in files
            ):
                raise RefusedError(
                    f"column {item.name} of the table must not be null since files were written for it, and a row's is"
                )
        # A retry inside the library would not check whether the batch was added meanwhile. This copy is not written.
        self._table.metadata = now.model_copy(
            update={"properties": {**now.properties, "commit.retry.num-retries": "0"}}
        )
        summary = {_FIRST_FILE: files[0].data.file_path} if files else {}
        if stamp is not None:
            summary |= {"kadence.writer": stamp.writer, "kadence.batch": str(stamp.batch)}
        with _changing(self._table, self._settings), warnings.catch_warnings():
            # The table may have no rows to replace.
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            with self._table.transaction() as change:
                if stamp is not None:
                    change.set_properties({LAST_BATCH + stamp.writer: str(stamp.batch)})
                if overwrite:
                    change.delete(AlwaysTrue(), snapshot_properties=summary)
                with change.update_snapshot(snapshot_properties=summary).fast_append() as added:
                    for each in files:
                        added.append_data_file(each.data)

    def remove(self, files: Sequence[IcebergFile]) -> None:
        _remove(self._table.io, [each.data.file_path for each in files], self._settings)

    def has(self, files: Sequence[IcebergFile]) -> bool:
        firsts = {each.summary.get(_FIRST_FILE) for each in self._table.snapshots() if each.summary}
        return bool(files) and files[0].data.file_path in firsts


def opened(options: TableOptions) -> IcebergTarget:
    """The present version of the table."""
    with _told(options.settings):
        return IcebergTarget(_catalog(options).load_table(options.place), options.settings)


def prepared(options: TableOptions, rows: pa.Schema) -> IcebergFiles:
    """The table, created or widened if necessary, for rows of this schema.

    Raises:
        ConfigError: the rows do not fit.
    """
    import pyarrow as pa

    with _told(options.settings):
        table = _made(_catalog(options), options, rows)

    def widen() -> None:
        with _told(options.settings):
            found = table.refresh().schema().as_arrow()
        changed = fit(_as_iceberg(rows), found, may_add=options.merge_schema, may_widen=options.merge_schema)
        if changed:
            with _changing(table, options.settings), table.update_schema() as change:
                change.union_by_name(pa.schema(changed))

    until_unopposed(widen, "add columns to the table")
    with _told(options.settings):
        found = table.schema().as_arrow()
        names = (
            tuple(found.names[place] for place in _identities(table, found)) if options.partition_by else ()
        )
        if names != options.partition_by:
            raise ConfigError(
                f"option partitionBy: the table is partitioned by {table.spec()}; leave the option out"
            )
        history: dict[str, Any] = {"snapshots": [], "refs": {}, "snapshot_log": [], "metadata_log": []}
        metadata = table.metadata.model_copy(update={**history, "current_snapshot_id": None})
        plain = pa.schema(item.remove_metadata() for item in found)
        return IcebergFiles(metadata.model_dump_json(), dict(table.io.properties), Columns(plain))


def _made(catalog: Any, options: TableOptions, rows: pa.Schema) -> Any:
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(options.place)
    except NoSuchTableError:
        pass
    for name in options.partition_by:
        if name not in rows.names:
            raise ConfigError(f"option partitionBy: there is no column {name}")
    namespace = options.place.rpartition(".")[0]
    if not namespace:
        raise ConfigError(f"option table: {options.place!r} has no namespace, as in shop.orders")
    with _made_once(lambda: catalog.namespace_exists(namespace)):
        catalog.create_namespace_if_not_exists(namespace)
    with _made_once(lambda: catalog.table_exists(options.place)):
        creation = catalog.create_table_transaction(options.place, schema=_as_iceberg(rows))
        with creation as change, change.update_spec() as spec:
            for name in options.partition_by:
                spec.add_identity(name)
    return catalog.load_table(options.place)


@contextmanager
def _made_once(is_there: Callable[[], bool]) -> Iterator[None]:
    """Create an object unless another writer creates it first, for which each catalogue has an exception of its own."""
    try:
        yield
    except Exception as problem:
        if not is_there():
            raise
        _log.info("another writer has created it first: %s", type(problem).__name__)


def _as_iceberg(rows: pa.Schema) -> pa.Schema:
    """Iceberg has no integers below 32 bits."""
    import pyarrow as pa

    return pa.schema(item.with_type(_widened(item.type)) for item in rows)


def _widened(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    types = pa.types
    if types.is_int8(kind) or types.is_int16(kind):
        return pa.int32()
    if types.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_widened(kind.key_type), _widened(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([(item.name, _widened(item.type)) for item in kind])
    return kind


def _apart(rows: pa.Table, metadata: Any) -> list[pa.Table]:
    """Rows of which the library can make files, one part after the other.

    It finds the rows of a partition by equality, which also holds between 0.0 and -0.0, and never for NaN.

    Raises:
        IllegalStateError: a row's partition is NaN.
    """
    import pyarrow.compute as pc
    from pyarrow import types

    parts = [rows]
    for name in (metadata.schema().find_column_name(each.source_id) for each in metadata.spec().fields):
        if name not in rows.column_names or not types.is_floating(rows[name].type):
            continue
        if pc.any(pc.is_nan(rows[name])).as_py():
            raise IllegalStateError(
                f"Iceberg: PyIceberg cannot write a row whose {name}, which the table is partitioned by, is NaN"
            )
        split = []
        for part in parts:
            is_negative = pc.fill_null(
                pc.and_(pc.equal(part[name], 0), pc.less(pc.divide(1, part[name]), 0)), fill_value=False
            )
            split += [part.filter(pc.invert(is_negative)), part.filter(is_negative)]
        parts = [part for part in split if part.num_rows]
    return parts


def _keep_nulls() -> None:
    """Mend PyIceberg 0.12, which writes an empty list for a null one if elements are structs, and so for maps.

    No public call writes files without that step, and the rows that it loses nulls of cannot be told from others.
    """
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    for name in ("list", "map"):
        method = getattr(ArrowProjectionVisitor, name)
        if not hasattr(method, "__wrapped__"):
            setattr(ArrowProjectionVisitor, name, _with_nulls(method))


def _with_nulls(method: Callable[..., Any]) -> Callable[..., Any]:
    """A step of the library that makes a list or map of another one and its new parts, with the nulls of the former."""

    @functools.wraps(method)
    def made_with_nulls(self: Any, kind: Any, array: Any, *parts: Any) -> Any:
        made = method(self, kind, array, *parts)
        if made is None or made.null_count == array.null_count:
            return made
        return null_where(made, array)

    return made_with_nulls


def _identities(table: Any, found: pa.Schema) -> list[int]:
    """The indexes of columns by whose identity a table is partitioned; none with other transforms."""
    names = [table.schema().find_column_name(each.source_id) for each in table.spec().fields]
    if any(str(each.transform) != "identity" for each in table.spec().fields):
        return []
    return [found.get_field_index(name) for name in names]


def _catalog(options: TableOptions) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as problem:
        raise MissingDependencyError(
            f"format 'kadence-iceberg' needs PyIceberg ({problem}): pip install 'kadence[iceberg]'"
        ) from None
    return load_catalog(options.catalog, **options.settings)


def _remove(io: Any, paths: Sequence[str], settings: Mapping[str, Any]) -> None:
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except Exception as problem:  # noqa: BLE001 - no reader sees the file
            _log.warning("%s was not deleted: %s", path, _hidden(problem, settings))


class _Outputs:
    """A store that remembers its written files, and does not delete any.

    The library writes files on several threads, and raises when the first of them fails, while it writes the others.
    """

    def __init__(self, io: Any) -> None:
        self._io = io
        self._lock = threading.Lock()
        self.streams: list[Any] = []
        self.has_ended = False
        self.paths: list[str] = []
        self.unwanted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_output(self, location: str) -> Any:
        self.paths.append(location)
        return _Output(self, self._io.new_output(location))

    def begin(self, create: Callable[[], Any]) -> Any:
        """Create a file, unless the write has failed."""
        with self._lock:
            if self.has_ended:
                raise IllegalStateError("another file of the same write has failed")
            stream = create()
            self.streams.append(stream)
        return stream

    def delete(self, location: str) -> None:
        self.unwanted.append(location)

    def remove_all(self, settings: Mapping[str, Any]) -> None:
        """The write has failed: begin no file, wait for those that are being written, and delete all."""
        with self._lock:
            self.has_ended = True
        until = time.monotonic() + _END_S
        while not all(stream.closed for stream in self.streams) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        _remove(self._io, self.paths, settings)


class _Output:
    """A file of such a store, before it is created."""

    def __init__(self, outputs: _Outputs, output: Any) -> None:
        self._outputs = outputs
        self._output = output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)

    def __len__(self) -> int:
        return len(self._output)

    def create(self, overwrite: bool = False) -> Any:
        return self._outputs.begin(lambda: self._output.create(overwrite=overwrite))


@contextmanager
def all_or_none(io: Any, settings: Mapping[str, Any]) -> Iterator[_Outputs]:
    """A context with a store, whose written files are deleted if the block fails."""
    outputs = _Outputs(io)
    try:
        yield outputs
    except BaseException:
        outputs.remove_all(settings)
        raise


@contextmanager
def _changing(table: Any, settings: Mapping[str, Any]) -> Iterator[None]:
    """A context for a commit.

    If the catalogue's client repeats a request whose answer was lost, it reports its own commit as a conflict. The
    library would then delete files of the snapshot in the table; so no file is deleted before the table was checked.

    Raises:
        ConflictError: the table has changed since it was opened, or another writer holds its lock.
        RefusedError: the table refuses the commit, which is not in it.
        IllegalStateError: the catalogue failed, and may have the commit all the same.
    """
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    before, io = table.metadata_location, table.io
    table.io = outputs = _Outputs(io)
    try:
        with _told(settings, CommitFailedException, ValidationException, OSError):
            yield
    except (CommitFailedException, ValidationException, OSError) as problem:
        said = f"Iceberg: {type(problem).__name__}: {_hidden(problem, settings)}"
        # Files are written before the catalogue is called; other errors are of the connection to it.
        if isinstance(problem, OSError) and type(problem) not in _OF_FILES:
            raise IllegalStateError(said) from None
        with _told(settings):
            table.refresh()
        if {each.manifest_list for each in table.snapshots()}.isdisjoint(outputs.paths):
            outputs.remove_all(settings)
            is_locked = str(problem).startswith(_LOCKED)
            raise (
                ConflictError(said) if is_locked or table.metadata_location != before else RefusedError(said)
            ) from None
        _log.warning("the commit failed, but it is in the table: %s", said)
    else:
        _remove(io, outputs.unwanted, settings)
    finally:
        table.io = io


_LOCKED: Final = ("Failed to acquire lock", "Failed to check lock")
"""Errors of Hive's catalogue when another writer holds the lock."""

_OF_FILES: Final = (OSError, FileNotFoundError, PermissionError)
"""The errors of PyArrow's stores. A subclass of another library may be of a connection to a catalogue."""


@contextmanager
def _told(settings: Mapping[str, Any], *passed: type[BaseException]) -> Iterator[None]:
    """The library's errors, and those of catalogues and stores behind it, without the values of settings."""
    try:
        yield
    except passed:
        raise
    except KafkaError:
        raise
    except Exception as problem:  # noqa: BLE001 - it comes from PyIceberg, SQLAlchemy, requests, PyArrow, …
        raise IllegalStateError(f"Iceberg: {type(problem).__name__}: {_hidden(problem, settings)}") from None


def _hidden(problem: Exception, settings: Mapping[str, Any]) -> str:
    """A library's message, without the values of settings."""
    return hidden(str(problem), {name: str(text) for name, text in settings.items()})
