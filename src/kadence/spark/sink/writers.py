"""The writer classes that Spark loads. Everything is checked when a writer is made, on the driver.

Spark makes a writer for each batch, pickles it, and runs `write` in a worker for each task. `commit` and `abort` run on
the driver afterwards, when everything is decided already: what brokers have acknowledged cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kadence.errors import ConfigError
from kadence.spark.sink.clients import PRODUCERS, executor_sink
from kadence.spark.sink.columns import RecordColumns
from kadence.spark.sink.options import SinkOptions
from kadence.spark.sink.task import write_rows
from kadence.spark.worker_log import log_as_spark_does

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "Writes", "Written"]


@dataclass
class Written(WriterCommitMessage):
    """What a task reports: how many rows brokers have acknowledged."""

    rows: int


@dataclass(frozen=True, slots=True)
class Writes:
    """What travels to the executors: how to write any task of a query, as a picklable value.

    Attributes:
        client: Kafka's keys and values; not shown, there may be passwords among them.
        transactional_prefix: as `SinkOptions.transactional_prefix`.
    """

    client: tuple[tuple[str, str], ...] = field(repr=False)
    columns: RecordColumns
    transactional_prefix: str | None = None

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> Writes:
        """For a query with these options and columns.

        Raises:
            ConfigError: the columns do not make records.
        """
        columns = ((item.name, item.dataType.simpleString()) for item in schema.fields)
        return cls(
            tuple(sorted(options.client.items())),
            RecordColumns.of(columns, options.topic),
            options.transactional_prefix,
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """One task."""
        log_as_spark_does()
        connect = partial(executor_sink, dict(self.client), self.transactional_prefix)
        with PRODUCERS.borrow((self.client, self.transactional_prefix), connect) as sink:
            return Written(write_rows(batches, self.columns, sink))


class BatchWriter(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                'a topic cannot be overwritten: use .mode("append"), and delete the topic first if its records '
                "shall go"
            )
        self._writes = Writes.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._writes.write(iterator)
