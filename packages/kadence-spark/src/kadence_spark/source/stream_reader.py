"""The stream's reader. Separate from the batch reader, because its base classes exist only from PySpark 4.2 on."""

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
from kadence_spark.source.driver import StreamDriver
from kadence_spark.source.offsets import NOT_BEGUN
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.reads import KadencePartition, Reads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kadence_spark.source.clients import AdminOffsets

__all__ = ["RefusedReader", "StreamReader"]


def _client(options: SourceOptions) -> AdminOffsets:
    # Only the query's runner needs these imports, and not the process that pickles readers.
    from kadence_spark.source.clients import driver_client

    return driver_client(options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``. `kadence_spark.source.driver` describes Spark's calls and their handling."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reads = Reads.of(options, schema)
        self._driver = StreamDriver(options, partial(_client, options))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as below
        """Always the same: the starts of partitions are written into the end of the first batch."""
        return dict(NOT_BEGUN)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Declares *that* there is a limit; `latestOffset` decides the offsets."""
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
        """Spark calls it one batch late and never for the last one: `latestOffset` commits instead."""

    def stop(self) -> None:
        self._driver.close()
        if isinstance(sys.exc_info()[1], EOFError):
            # The query was stopped: Spark has closed the connection, and ends this process next. Otherwise the process
            # would try to report the closed connection to Spark, over that connection, and print a traceback.
            os._exit(0)


class RefusedReader(DataSourceStreamReader):
    """Replaces a reader that cannot be made, and raises the error at the first call.

    Spark calls stop() on the reader even if making it failed, and the user would see an UnboundLocalError.
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
