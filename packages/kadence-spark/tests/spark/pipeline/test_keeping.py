"""The record's column goes through any statement that makes rows of single rows, whatever the statement's text is."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kadence.errors import ConfigError
from kadence_spark.pipeline.frames import transform
from kadence_spark.pipeline.model import Transform

pytestmark = pytest.mark.shared_spark


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id, id * 2 AS twice FROM records", [(0, 0), (1, 2), (2, 4)]),
        ("SELECT *, 1 AS one FROM records WHERE id > 1", [(2, 1)]),
        ("WITH big AS (SELECT id FROM records WHERE id > 0) SELECT id + 1 AS next FROM big", [(2,), (3,)]),
        ("SELECT id FROM records WHERE id = 0 UNION ALL SELECT id * 10 FROM records WHERE id = 2", [(0,), (20,)]),
        ("SELECT id FROM records WHERE id = 0 UNION ALL SELECT id FROM (TABLE records)", [(0,), (0,), (1,), (2,)]),
        ("SELECT r.id, n.name FROM records r JOIN names n ON r.id = n.id", [(1, "one")]),
        ("SELECT id, each FROM records LATERAL VIEW explode(array(7, 8)) AS each WHERE id = 1", [(1, 7), (1, 8)]),
        ("SELECT id FROM records WHERE id IN (SELECT id FROM names)", [(1,)]),
        ("SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM records) WHERE n = 2", [(1,)]),
        ("SELECT id, 'SELECT * FROM records' AS text FROM records ORDER BY id LIMIT 1", [(0, "SELECT * FROM records")]),
    ],
)  # fmt: skip
def test_the_record_is_kept(spark: SparkSession, sql: str, rows: list[tuple[object, ...]]) -> None:
    _views(spark)
    made = transform(spark, Transform(name="t", sql=sql))
    found = [row.asDict() for row in made.collect()]
    assert all(row.pop("_record")["offset"] in (0, 1, 2) for row in found)
    assert sorted(tuple(row.values()) for row in found) == rows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM records",
        "SELECT DISTINCT id FROM records",
        "SELECT id FROM records UNION SELECT id FROM records",
        "SELECT id FROM names",
        "SELECT a.id FROM records a JOIN records b ON a.id = b.id",
    ],
)
def test_rows_of_several_rows_are_refused(spark: SparkSession, sql: str) -> None:
    _views(spark)
    with pytest.raises(ConfigError, match=r"transform t loses the column _record.* belongs into"):
        transform(spark, Transform(name="t", sql=sql))


def _views(spark: SparkSession) -> None:
    spark.range(3).selectExpr("id", "named_struct('offset', id) AS _record").createOrReplaceTempView(
        "records"
    )
    spark.createDataFrame([(1, "one"), (9, "nine")], "id bigint, name string").createOrReplaceTempView(
        "names"
    )
