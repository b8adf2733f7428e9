"""The batch's readers, one for each way of being told filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kadence.spark.source.batch import plan_batch
from kadence.spark.source.clients import driver_client
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.pushdown import EVERYTHING
from kadence.spark.source.reads import KadencePartition, Reads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReader", "PushdownReader"]


class BatchReader(DataSourceReader):
    """``spark.read``: plans once, so that all actions on one ``load()`` read the same offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reads = Reads.of(options, schema)
        self.bounds = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        # Nobody plans a batch a second time: a broker that restarts gets the time that the client gives it.
        brokers = driver_client(self._options, answer_seconds=None)
        try:
            return [KadencePartition(task) for task in plan_batch(self._options, brokers, self.bounds)]
        finally:
            brokers.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reads.read(partition)


class PushdownReader(BatchReader):
    """With ``pushdown=true``: told the filters of the query, it reads less.

    A class of its own, because Spark refuses a reader that merely has `pushFilters` unless
    ``spark.sql.python.filterPushdown.enabled`` is on.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """All filters come back: Spark checks every row again."""
        decode = self._options.decode
        prefix = "" if decode is None else decode.prefix.lower()
        for each in filters:
            operator = _OPERATORS.get(type(each))
            if operator is None or len(each.attribute) != 1:  # type: ignore[attr-defined]
                continue
            column = each.attribute[0].lower()  # type: ignore[attr-defined]
            # With a prefix a bare name is a field of the value.
            if column.startswith(prefix):
                condition = (column.removeprefix(prefix), operator, each.value)  # type: ignore[attr-defined]
                self.bounds = self.bounds.and_also(condition)
        return filters


_OPERATORS: Final[dict[type[Filter], str]] = {
    EqualNullSafe: "=",
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
