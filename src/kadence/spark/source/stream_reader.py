"""The stream's reader. Apart from the batch reader because its base classes exist from PySpark 4.2 on only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kadence.errors import KafkaError
from kadence.spark.source.driver import StreamDriver
from kadence.spark.source.offsets import NOT_BEGUN
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.reads import KadencePartition, Reads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kadence.spark.source.clients import AdminOffsets

__all__ = ["RefusedReader", "StreamReader"]


def _client(options: SourceOptions) -> AdminOffsets:
    # Only the query's runner asks brokers; the process that pickles readers is spared these imports.
    from kadence.spark.source.clients import driver_client

    return driver_client(options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``. `kadence.spark.source.driver` says what Spark calls when, and what is made of it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reads = Reads.of(options, schema)
        self._driver = StreamDriver(options, partial(_client, options))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as below
        """Always the same: where partitions start is written into the end of the first batch."""
        return dict(NOT_BEGUN)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tells Spark *that* there is a limit; which offsets that are is decided in `latestOffset`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._driver.prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._driver.latest(start, unlimited=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [KadencePartition(task) for task in self._driver.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reads.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Comes one batch late and never for the last: `latestOffset` commits instead."""

    def stop(self) -> None:
        self._driver.close()
        if isinstance(sys.exc_info()[1], EOFError):
            # The query was stopped: Spark has hung up and is about to end this process, which has nothing left to do.
            # Left alone it would tell Spark of the end of the connection, over that connection, and print a traceback.
            os._exit(0)


class RefusedReader(DataSourceStreamReader):
    """Stands for a reader that cannot be, and says why when it is first asked.

    Spark stops the reader even where making it failed, and what the user would see then is an UnboundLocalError.
    """

    def __init__(self, reason: KafkaError) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._reason

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._reason
