"""A source in Python that reads nothing: it gives Spark the same Arrow batch again and again, made before.

Faster than this no source in Python can be, so its figures are the floor of Kadence's. Batches are about as large as
Kadence's are. Spark's workers do not find this file, so `register` has it travel with the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
TASKS = 2
BATCH_ROWS = {"values-100": 5_900, "values-1024": 1_900}
BATCH_ROWS_OF_JSON = 5_000


def register(spark: Any) -> None:
    """Make ``format("memory")`` known to the session. Its options: topic, rows."""
    import spark_memory

    cloudpickle.register_pickle_by_value(spark_memory)  # type: ignore[no-untyped-call]
    spark.dataSource.register(MemorySource)


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> str:
        return KAFKA

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(self.options["topic"], int(self.options["rows"]), schema)


class MemoryReader(DataSourceReader):
    def __init__(self, topic: str, rows: int, schema: StructType) -> None:
        self._topic, self._rows, self._schema = topic, rows, schema

    def partitions(self) -> list[InputPartition]:
        each = self._rows // TASKS
        return [
            InputPartition(each if number else self._rows - each * (TASKS - 1)) for number in range(TASKS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        rows = BATCH_ROWS.get(self._topic, BATCH_ROWS_OF_JSON)
        batch = pa.RecordBatch.from_arrays(
            [_column(item, self._topic, rows) for item in schema], schema=schema
        )
        whole, rest = divmod(partition.value, rows)
        for _ in range(whole):
            yield batch
        yield batch.slice(0, rest)


def _column(item: pa.Field, topic: str, rows: int) -> pa.Array:
    import pyarrow as pa

    if item.name == "value":
        size = int(topic.rpartition("-")[2])
        return pa.array([(bytes(range(256)) * (size // 256 + 1))[:size]] * rows)
    if item.name == "key":
        return pa.array([b"%016d" % row for row in range(rows)])
    if item.name in ("topic", "partition", "timestampType"):
        return pa.array([topic if item.name == "topic" else 0] * rows, item.type)
    if pa.types.is_string(item.type):
        return pa.array([("UA", "EWR", "N14228")[row % 3] for row in range(rows)])
    if pa.types.is_timestamp(item.type):
        return pa.array([1_700_000_000_000_000 + row for row in range(rows)], item.type)
    return pa.array([row % 2_000 for row in range(rows)], pa.int64()).cast(item.type)
