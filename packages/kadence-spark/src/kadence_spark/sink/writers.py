"""The writer classes that Spark loads. Everything is checked when a writer is made, on the driver.

Spark makes a writer for each batch, pickles it, and runs `write` in a worker for each task. `commit` and `abort` run on
the driver afterwards, with the results of the tasks that count.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kadence.errors import ConfigError, KafkaError
from kadence.logs import logger
from kadence.types import OpenTransaction, TopicPartition
from kadence_spark.sink.clients import (
    COORDINATORS,
    PRODUCERS,
    WRITERS,
    Coordinators,
    ProducerSink,
    TransactionalSink,
)
from kadence_spark.sink.columns import RecordColumns
from kadence_spark.sink.decision import Names, Slice, marker
from kadence_spark.sink.digest import RowsDigest
from kadence_spark.sink.ending import Before, abort_batch, abort_job, commit_batch, commit_job, look_back
from kadence_spark.sink.options import SinkOptions
from kadence_spark.sink.spark_task import NumberedBatch, attempt, check_input_ended
from kadence_spark.sink.task import write_rows
from kadence_spark.worker_log import log_as_spark_does

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "BatchWritten", "JobWritten", "Writes", "Written", "told"]

_log = logger("kadence.spark")


@dataclass
class Written(WriterCommitMessage):
    """A task's result: how many rows brokers have acknowledged."""

    rows: int


@dataclass
class JobWritten(Written):
    """The same of a task with a transaction, in a batch job. None: it had no rows."""

    transaction: OpenTransaction | None


@dataclass
class BatchWritten(Written):
    """The same of a task of a numbered batch: a stream's, or one with the application's number."""

    slice: Slice
    names: Names
    run: str
    before: Before


_WRITERS: Final = uuid.UUID("5f6b2c3e-8a5d-4b0e-9d50-6f2f3f7a1c11")
"""The namespace of the UUIDs of txnAppIds."""

_LOOKED_BACK: dict[tuple[str, str, str], Before] = {}
"""This worker's findings about earlier runs of a query, by servers, prefix and run."""

_QUERIES: Final = 100
"""How many runs' findings are kept; a worker may write for several queries in turn."""


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes the tasks of a query; a picklable value that is sent to the executors.

    Attributes:
        client: Kafka's keys and values; not in the repr, because there may be passwords.
        transactional_prefix: as `SinkOptions.transactional_prefix`.
    """

    client: tuple[tuple[str, str], ...] = field(repr=False)
    columns: RecordColumns
    transactional_prefix: str | None = None

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> Writes:
        """For a query with these options and columns.

        Raises:
            ConfigError: a required column is missing, or one has another type.
        """
        columns = ((item.name, item.dataType.simpleString()) for item in schema.fields)
        return cls(
            tuple(sorted(options.client.items())),
            RecordColumns.of(columns, options.topic),
            options.transactional_prefix,
        )

    def coordinators(self) -> AbstractContextManager[Coordinators]:
        """A client that ends transactions. It is kept for the next batch."""
        return COORDINATORS.borrow(self.client, partial(Coordinators, dict(self.client)))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write one task without transactions."""
        log_as_spark_does()
        with PRODUCERS.borrow(self.client, partial(ProducerSink, dict(self.client))) as sink:
            return Written(write_rows(batches, self.columns, sink))

    def write_of_job(self, batches: Iterator[pa.RecordBatch], prefix: str) -> JobWritten:
        """Write one task of a batch job in a transaction, for the driver to commit. ``prefix``: of the job's ids."""
        log_as_spark_does()
        partition, number = attempt()
        with WRITERS.borrow(self.client, partial(TransactionalSink, dict(self.client))) as sink:
            rows = write_rows(batches, self.columns, sink.use(f"{prefix}{partition}-{number}"))
            check_input_ended()
            return JobWritten(rows, sink.leave())

    def write_of_batch(
        self, batches: Iterator[pa.RecordBatch], names: Names, of: NumberedBatch
    ) -> BatchWritten:
        """Write one task of a numbered batch in a transaction, for the driver to commit."""
        log_as_spark_does()
        before = self._looked_back(names, of)
        partition, number = attempt()
        digest = RowsDigest()
        with WRITERS.borrow(self.client, partial(TransactionalSink, dict(self.client))) as sink:
            sink.use(names.transaction(before.side, partition, number))
            write_rows(batches, self.columns, sink, digest)
            check_input_ended()
            written = Slice(partition, digest.rows, digest.text(), digest.topic)
            at = TopicPartition(written.topic, 0)
            sink.mark(names.marker(before.side, partition), at, of.batch, marker(of.run, written))
            found = Slice(partition, digest.rows, written.digest, digest.topic, sink.leave())
            return BatchWritten(digest.rows, found, names, of.run, before)

    def commit_of_batch(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        """Commit the transactions of a numbered batch."""
        written = [each for each in messages if isinstance(each, BatchWritten)]
        if written:
            of = written[0]
            # Any worker's findings about an earlier run: others may have started later.
            before = next((each.before for each in written if each.before.repeats == batch), of.before)
            with self.coordinators() as cluster:
                commit_batch(cluster, of.names, of.run, batch, before, [each.slice for each in written])

    def _looked_back(self, names: Names, of: NumberedBatch) -> Before:
        key = (dict(self.client)["bootstrap.servers"], names.decisions, of.run)
        before = _LOOKED_BACK.get(key)
        if before is None:
            with self.coordinators() as cluster:
                before = look_back(cluster, names, of.run, of.batch)
            while len(_LOOKED_BACK) >= _QUERIES:
                del _LOOKED_BACK[next(iter(_LOOKED_BACK))]
            _LOOKED_BACK[key] = before
        return before


@contextmanager
def told() -> Iterator[None]:
    """A context that logs a failed abort: raising would hide the error for which Spark has called it."""
    try:
        yield
    except KafkaError as problem:
        _log.warning(
            "transactions that do not count could not be aborted; the next start of the query does it, or brokers "
            "after transaction.timeout.ms: %s",
            problem,
        )


class BatchWriter(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                'a topic cannot be overwritten: use .mode("append"), and delete the topic first if its records '
                "shall go"
            )
        self._writes = Writes.of(options, schema)
        prefix, job = options.transactional_prefix, uuid.uuid4().hex
        # Ids of its own for each job, because several may run at once.
        self._prefix = None if prefix is None else f"{prefix}-{job}-"
        self._batch: tuple[Names, NumberedBatch] | None = None
        if prefix is not None and options.stamp is not None:
            # UUIDs have the same length, so a writer's ids are not a prefix of another's.
            query = str(uuid.uuid5(_WRITERS, options.stamp.writer))
            self._batch = Names(prefix, query, ""), NumberedBatch(query, job, options.stamp.batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._batch is not None:
            return self._writes.write_of_batch(iterator, *self._batch)
        if self._prefix is None:
            return self._writes.write(iterator)
        return self._writes.write_of_job(iterator, self._prefix)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transactions of all tasks; without transactions there is nothing to do."""
        if self._batch is not None:
            self._writes.commit_of_batch(messages, self._batch[1].batch)
        elif self._prefix is not None:
            written = [each.transaction for each in messages if isinstance(each, JobWritten)]
            with self._writes.coordinators() as cluster:
                commit_job(cluster, self._prefix, [each for each in written if each is not None])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort open transactions; without transactions acknowledged records cannot be undone."""
        if self._prefix is not None:
            with self._writes.coordinators() as cluster, told():
                if self._batch is not None:
                    abort_batch(cluster, self._batch[0])
                else:
                    abort_job(cluster, self._prefix)
