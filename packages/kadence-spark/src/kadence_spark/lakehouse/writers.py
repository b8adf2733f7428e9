"""The writer classes that Spark loads.

Spark makes a writer when it plans a batch, pickles it for the tasks, and calls `commit` or `abort` on the driver: for a
batch query on that writer, for a stream on another one, in another process. Only tasks know the id of the stream's
query, so it is in their messages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kadence.errors import IllegalStateError
from kadence_spark.lakehouse.columns import arrow_schema
from kadence_spark.lakehouse.commit import Table, back_out, commit_once
from kadence_spark.lakehouse.options import TableOptions
from kadence_spark.lakehouse.task import FileWriter, write_rows
from kadence_spark.stamp import Stamp

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "StreamWriter", "Written"]


@dataclass
class Written(WriterCommitMessage):
    """A task's result.

    Attributes:
        writer: the id of the stream's query. files: as returned by `FileWriter.write`.
    """

    writer: str | None
    files: list[Any]


def _library(kind: str) -> Any:
    """The module for delta or iceberg: ``prepared`` and ``opened``."""
    return importlib.import_module(f"kadence_spark.lakehouse.{kind}")


def _opener(kind: str, options: TableOptions) -> Callable[[], Table]:
    return partial(_library(kind).opened, options)


def _files_of(messages: Sequence[WriterCommitMessage | None]) -> list[list[Any] | None]:
    return [message.files if isinstance(message, Written) else None for message in messages]


class BatchWriter(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, kind: str, options: TableOptions, schema: StructType, *, overwrite: bool) -> None:
        self._kind = kind
        self._options = options
        self._overwrite = overwrite
        self._files: FileWriter = _library(kind).prepared(options, arrow_schema(schema, kind))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(None, write_rows(iterator, self._files))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [file for written in _files_of(messages) for file in written or ()]
        commit_once(_opener(self._kind, self._options), files, self._options.stamp, overwrite=self._overwrite)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        back_out(_opener(self._kind, self._options), _files_of(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``. In the output mode complete each batch replaces all rows of the table."""

    def __init__(self, kind: str, options: TableOptions, schema: StructType, *, overwrite: bool) -> None:
        self._kind = kind
        self._options = options
        self._overwrite = overwrite
        self._schema = schema
        self._files: FileWriter | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle for the tasks. Only a pickled writer needs the table before its commit."""
        if self._files is None:
            self._files = _library(self._kind).prepared(self._options, arrow_schema(self._schema, self._kind))
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from pyspark import TaskContext

        assert self._files is not None  # it was pickled
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise IllegalStateError("Spark did not give the task the id of its query")
        return Written(query, write_rows(iterator, self._files))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        writers = {message.writer for message in messages if isinstance(message, Written)}
        if not writers:  # no task, so no rows
            return
        (writer,) = writers
        assert writer is not None  # `write` has checked it
        files = [file for written in _files_of(messages) for file in written or ()]
        commit_once(
            _opener(self._kind, self._options), files, Stamp(writer, batchId), overwrite=self._overwrite
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        back_out(_opener(self._kind, self._options), _files_of(messages))
