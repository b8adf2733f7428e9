"""The stream's writer. Apart from the batch writer because its base class exists from PySpark 4.1 on only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kadence.spark.sink.options import SinkOptions
from kadence.spark.sink.writers import Writes, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamWriter"]


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``. In the output mode complete, too, rows are appended, as Spark's connector does it."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writes = Writes.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._writes.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: each task has waited for its acknowledgements."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be done: what was acknowledged is written."""
