"""The stream's writer. Separate from the batch writer, because its base class exists only from PySpark 4.1 on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kadence_spark.sink.decision import Names
from kadence_spark.sink.ending import abort_batch, abort_unknown
from kadence_spark.sink.options import SinkOptions
from kadence_spark.sink.spark_task import stream_batch
from kadence_spark.sink.writers import BatchWritten, Writes, Written, told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamWriter"]


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``. In the output mode complete, too, rows are appended, as in Spark's connector.

    Spark makes one for a batch's tasks, and another one to commit or abort it: they share nothing but the messages.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._writes = Writes.of(options, schema)
        self._checkpoint = options.checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._writes.transactional_prefix is None:
            return self._writes.write(iterator)
        of = stream_batch()
        names = Names(self._writes.transactional_prefix, of.query, self._checkpoint)
        return self._writes.write_of_batch(iterator, names, of)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the transactions of all tasks; without transactions there is nothing to do."""
        self._writes.commit_of_batch(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort open transactions; without transactions acknowledged records cannot be undone."""
        prefix = self._writes.transactional_prefix
        if prefix is None:
            return
        of = next((each for each in messages if isinstance(each, BatchWritten)), None)
        with self._writes.coordinators() as cluster, told():
            if of is not None:
                abort_batch(cluster, of.names)
            elif self._checkpoint:
                abort_unknown(cluster, prefix, self._checkpoint)
