"""The picklable value with which executors read the tasks of a query; and the reader of a batch.

A process that only makes and pickles it imports neither the clients nor the decoding.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from kadence_spark.pool import Pool
from kadence_spark.source import schema as columns
from kadence_spark.source.executor import MAX_ROWS, ReadSettings, read_ranges
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.planning import Task
from kadence_spark.source.ports import RecordClient
from kadence_spark.source.same_topics import SameTopics
from kadence_spark.worker_log import log_as_spark_does

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kadence_spark.source.clients import ConsumerRecords

__all__ = ["CONSUMERS", "BatchReader", "KadencePartition", "Reads", "spark_version"]

CONSUMERS: Final[Pool[RecordClient]] = Pool()
"""Those of this process."""


class KadencePartition(InputPartition):
    """One task: only offset ranges. The common parts of all tasks are in `Reads`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)

    @property
    def task(self) -> Task:
        """The ranges to read."""
        task: Task = self.value
        return task

    def __repr__(self) -> str:
        return f"KadencePartition({', '.join(map(str, self.task))})"


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads the tasks of a query; it can be pickled.

    Attributes:
        client: Kafka's keys and values; not in the repr, because there may be passwords.
        name: the default client.id.
        schema: Spark's schema of the rows: all columns, or the user's choice.
    """

    client: tuple[tuple[str, str], ...] = field(repr=False)
    name: str
    reading: ReadSettings
    schema: StructType

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> Reads:
        """For a query with these options.

        Raises:
            ConfigError: the schema names a column that the source does not have.
        """
        decoding = None
        if options.decode is None:
            chosen = columns.projection(
                ((item.name, item.dataType.simpleString()) for item in schema.fields),
                include_headers=options.include_headers,
            )
        else:
            from kadence_spark.decode.batches import SourceDecoding
            from kadence_spark.decode.layout import layout_of

            known = columns.all_columns() if options.include_headers else columns.COLUMNS
            layout = layout_of(options.decode, schema, known)
            decoding, chosen = SourceDecoding(options.decode, layout), layout.columns
        rows = int(options.client.get("max.poll.records", MAX_ROWS))
        return cls(
            client=tuple(sorted(options.client.items())),
            name=options.group_id_prefix,
            reading=ReadSettings(
                columns=chosen,
                decoding=decoding,
                fail_on_data_loss=options.fail_on_data_loss,
                poll_timeout_ms=options.poll_timeout_ms,
                max_rows=rows if 0 < rows < MAX_ROWS else MAX_ROWS,
            ),
            schema=schema,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task."""
        log_as_spark_does()
        if not isinstance(partition, KadencePartition):
            return  # Spark's partition for a plan without partitions
        with CONSUMERS.borrow((self.client, self.name, self.reading.columns), self._connect) as client:
            if TaskContext.get() is not None:
                _spare_collections()
            same = SameTopics(client, partition.task, fail_on_data_loss=self.reading.fail_on_data_loss)
            reading = self.reading
            if reading.decoding is not None:
                reading = replace(reading, zone=_session_zone())
            yield from read_ranges(partition.task, same, reading, self._arrow_schema())

    def _connect(self) -> ConsumerRecords:
        from kadence_spark.source.clients import executor_client

        return executor_client(dict(self.client), self.name, self.reading.columns)

    def _arrow_schema(self) -> pa.Schema:
        """The Arrow schema, by Spark's own conversion: Spark compares the first batch with it, strictly."""
        zone: dict[str, Any] = {"timezone": "UTC"} if spark_version() >= (4, 2) else {}
        return to_arrow_schema(self.schema, **zone)


class BatchReader(DataSourceReader):
    """``spark.read``: plans once, so that all actions on one ``load()`` read the same offsets.

    It does not push down filters. Spark 4.1 to 4.3 keeps a plan with filters in the table's object, and uses it for the
    next query of the same ``load()`` without filters; the source cannot distinguish them.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reads = Reads.of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        from kadence_spark.source.batch import plan_batch
        from kadence_spark.source.clients import driver_client

        # A batch is planned only once, so a restarting broker gets the client's whole timeout.
        brokers = driver_client(self._options, answer_seconds=None)
        try:
            return [KadencePartition(task) for task in plan_batch(self._options, brokers)]
        finally:
            brokers.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reads.read(partition)


@cache
def _spare_collections() -> None:
    """Spark's workers run the garbage collector after each task, which takes 25 ms, mostly for imported modules."""
    gc.freeze()


def _session_zone() -> str | None:
    """The time zone of the session that runs this task; None: not set, so it is the driver's."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.sql.session.timeZone")


def spark_version() -> tuple[int, ...]:
    """(major, minor) of the PySpark in this process."""
    return tuple(int(part) for part in pyspark.__version__.split(".")[:2])
