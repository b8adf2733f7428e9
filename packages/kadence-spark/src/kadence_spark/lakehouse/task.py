"""A task: writes its rows to files, which are not in a table yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence_spark.lakehouse.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileWriter", "write_rows"]

CHUNK_BYTES: Final = 128 * 1024 * 1024
"""The bytes of rows that a task collects before it writes files, one for each partition of the table."""


class FileWriter(Protocol):
    """Writes files of one table; a picklable value that is sent to the tasks."""

    @property
    def columns(self) -> Columns:
        """The table's."""

    def write(self, rows: pa.Table) -> list[Any]:
        """Write files with these rows; returns their descriptions for the table's commit."""

    def remove(self, files: list[Any]) -> None:
        """Delete files."""


def write_rows(
    batches: Iterator[pa.RecordBatch], writer: FileWriter, chunk_bytes: int = CHUNK_BYTES
) -> list[Any]:
    """Write all rows of a task; returns the descriptions of its files for the commit.

    If the rows or the writing fail, the files are deleted.
    """
    import pyarrow as pa

    files: list[Any] = []
    held: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            held.append(writer.columns.align(batch))
            size += held[-1].nbytes
            if size >= chunk_bytes:
                files += writer.write(pa.Table.from_batches(held))
                held, size = [], 0
        if held:
            files += writer.write(pa.Table.from_batches(held))
    except BaseException:
        writer.remove(files)
        raise
    return files
