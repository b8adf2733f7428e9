"""The sinks on Spark's session: streams and batches, stopped in the middle and repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.lakehouse.conftest import Lake, needs

pytestmark = pytest.mark.shared_spark


def run(spark: SparkSession, lake: Lake, same: str = "value") -> None:
    """A batch of ten numbers, or once more one that is not known to be done."""
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=2).load()
    writer = rows.selectExpr("value", f"{same} as same").writeStream.format(f"kadence-{lake.kind}")
    at = {"checkpointLocation": f"{lake.directory}/checkpoint"}
    writer.options(**lake.options, **at).trigger(once=True).start().awaitTermination()


def forget_the_last_batch(directory: Path) -> None:
    """As if the application had died between the table's commit and Spark's own."""
    commits = directory / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    last.unlink()


def test_a_stream_and_a_batch_of_it_that_is_repeated(spark: SparkSession, lake: Lake) -> None:
    """First after a failure upstream of the sink, which ends the input of its task early, then after a commit."""
    with pytest.raises(StreamingQueryException, match="no seven"):
        run(spark, lake, "if(value = 7, raise_error('no seven'), value)")
    assert lake.paths() == []
    run(spark, lake)
    forget_the_last_batch(lake.directory)
    run(spark, lake)
    assert [row[0] for row in lake.rows("value")] == list(range(10))
    run(spark, lake)
    assert sorted(row[0] for row in lake.rows("value")) == list(range(20))


def test_a_stream_of_counts_replaces_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """In the output mode complete."""
    needs("deltalake")
    needs("duckdb")
    lake = Lake("delta", tmp_path)
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=1).load()
    counts = rows.selectExpr("value % 2 as odd").groupBy("odd").count()
    writer = counts.writeStream.format("kadence-delta").outputMode("complete").options(**lake.options)
    for _ in range(2):
        writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(
            once=True
        ).start().awaitTermination()
    assert lake.rows() == [(0, 10), (1, 10)]


def test_batches(spark: SparkSession, lake: Lake) -> None:
    rows = spark.range(3, numPartitions=2).selectExpr(
        "id", "cast(id as string) as text", "timestamp'2024-01-01' as at"
    )
    writer = rows.write.format(f"kadence-{lake.kind}").options(**lake.options)
    for _ in range(2):
        writer.option("txnAppId", "job").option("txnVersion", "1").mode("append").save()
    assert lake.rows("id, text") == [(0, "0"), (1, "1"), (2, "2")]
    rows.limit(1).write.format(f"kadence-{lake.kind}").options(**lake.options).mode("overwrite").save()
    assert lake.rows("id, text") == [(0, "0")]
    with pytest.raises(PySparkException, match="cast it"):
        rows.selectExpr("text as id").write.format(f"kadence-{lake.kind}").options(**lake.options).mode(
            "append"
        ).save()
    with pytest.raises(PySparkException, match=f"format 'kadence-{lake.kind}' writes tables"):
        spark.read.format(f"kadence-{lake.kind}").load()
