"""Random queries over one load() to which Spark pushes filters; ``make parity-pushdown`` asks a thousand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType
from tests.luck import seeds
from tests.spark.source.pushdown import DELETED, Pair, fill
from tests.spark.source.queries import RECORDS, Queries

from kadence import Broker
from kadence_spark.datasource import KadenceDataSource

pytestmark = pytest.mark.shared_spark

if TYPE_CHECKING:
    import pyarrow as pa

QUERIES = 20
"""Of a seed."""


@pytest.fixture(scope="module")
def topic(embedded: Broker) -> str:
    fill(embedded.bootstrap_servers, "pushdown")
    return "pushdown"


@pytest.mark.parametrize("seed", seeds(1))
def test_random_queries_of_one_load(spark: SparkSession, embedded: Broker, topic: str, seed: int) -> None:
    pair = Pair(spark, embedded.bootstrap_servers, topic)
    try:
        assert pair.kept.count() == RECORDS - DELETED
        assert [str(each) for each in pair.ask(seed, QUERIES) if each] == []
    finally:
        pair.close()


def test_they_find_a_source_that_takes_filters(spark: SparkSession, embedded: Broker, topic: str) -> None:
    """It reads what the filters leave, as a source may; but Spark keeps that for the next query of the same load()."""

    class TakesFilters(DataSourceReader):
        def __init__(self, reader: DataSourceReader) -> None:
            self._reader = reader
            self._taken: list[tuple[str, Callable[[Any], bool]]] = []

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
            operators: dict[type[Filter], Callable[[Any, Any], bool]] = {
                EqualTo: operator.eq,
                GreaterThan: operator.gt,
                GreaterThanOrEqual: operator.ge,
                LessThan: operator.lt,
                LessThanOrEqual: operator.le,
            }
            for each in filters:
                if type(each) in operators and each.attribute[0] in ("partition", "offset"):  # type: ignore[attr-defined]
                    compare, value = operators[type(each)], each.value  # type: ignore[attr-defined]
                    passes = partial(lambda compare, value, number: compare(number, value), compare, value)
                    self._taken.append((each.attribute[0], passes))  # type: ignore[attr-defined]
                else:
                    yield each

        def partitions(self) -> Sequence[InputPartition]:
            planned = self._reader.partitions()
            left = []
            for piece in (each for task in planned for each in task.value):
                offsets = [
                    offset
                    for offset in range(piece.start, piece.end)
                    if all(
                        passes(offset if column == "offset" else piece.partition)
                        for column, passes in self._taken
                    )
                ]
                if offsets:
                    left.append(piece._replace(start=offsets[0], end=offsets[-1] + 1))
            return [type(planned[0])(tuple(left))] if left else []

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return self._reader.read(partition)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "kadence-takes-filters"

        def _kadence(self) -> DataSource:
            return KadenceDataSource(self.options)

        def schema(self) -> StructType | str:
            return self._kadence().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return TakesFilters(self._kadence().reader(schema))

    pair = Pair(spark, embedded.bootstrap_servers, topic, Source)
    try:
        wrong = next((each for each in pair.ask(0, QUERIES) if each), None)
        assert wrong is not None
        assert "rows for" in wrong.said
    finally:
        pair.close()


def test_a_seed_gives_the_same_queries() -> None:
    first, again, other = (list(map(str, Queries(seed, "topic").take(100))) for seed in (5, 5, 6))
    assert first == again != other
    said = "\n".join(first)
    words = ("join", "union", "except", "intersect", "exists", " in (select", "cache()", "limit", "with w as")
    assert [word for word in words if word not in said] == []
