"""``spark.read.format("kadence")`` end to end."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Cluster

from kadence import Producer, TopicPartition

pytestmark = pytest.mark.shared_spark


def load(spark: SparkSession, cluster: Cluster, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("kadence")
    if schema is not None:
        reader = reader.schema(schema)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": cluster.topic, **options}
    return reader.options(**given).load()


def test_all_columns(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        when = 1_700_000_000_123
        producer.send(cluster.topic, b"one", b"k", timestamp=when, headers=[("h", b"x"), ("h", None)])
        producer.send(cluster.topic, None, None, timestamp=when + 1)
    frame = load(spark, cluster, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"one", cluster.topic)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.timestamp.astimezone(datetime.UTC) == datetime.datetime(
        2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC
    )
    assert [(header.key, header.value) for header in first.headers] == [("h", b"x"), ("h", None)]
    assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, None)


def test_a_load_is_a_snapshot_and_a_schema_a_projection(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create(3)
    cluster.produce(range(50))
    frame = load(spark, cluster, "offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 50
    cluster.produce(range(5))
    assert sorted(int(row.value) for row in frame.collect()) == list(range(50))
    assert load(spark, cluster).count() == 55


def test_between_offsets_in_many_tasks(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create(2)
    cluster.produce(range(100), partition=0)
    cluster.produce(range(100, 110), partition=1)
    topic = cluster.topic
    frame = load(
        spark,
        cluster,
        startingOffsets=f'{{"{topic}":{{"0":10,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":60,"1":-1}}}}',
        minPartitions="4",
    )
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(int(row.value) for row in frame.collect()) == [*range(10, 60), *range(100, 110)]
    empty = load(spark, cluster, startingTimestamp="0", endingTimestamp="0")
    assert empty.count() == 0


def test_queries_of_one_load_with_filters_and_without(spark: SparkSession, cluster: Cluster) -> None:
    """Where the session has Spark push filters, it keeps what it has planned with them for the next query, too."""
    cluster.create(3)
    for partition in range(3):
        cluster.produce(range(30 * partition, 30 * partition + 30), partition=partition)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = load(spark, cluster)
        frame.createOrReplaceTempView("pushed")
        late, one = frame.where("offset >= 25"), frame.where("partition = 1")
        counts = [frame.count(), late.count(), frame.count(), one.count(), late.union(frame).count()]
        joined = one.alias("a").join(frame.alias("b"), "value").count()
        inner = spark.sql(
            "select * from pushed where offset in (select offset from pushed where partition = 2)"
        )
        assert [*counts, joined, inner.count(), spark.table("pushed").count()] == [
            90,
            15,
            90,
            30,
            105,
            30,
            90,
            90,
        ]
        cluster.produce(range(3), partition=1)
        assert (frame.count(), one.where("offset >= 0").count()) == (90, 33)  # and it plans anew for filters
    finally:
        spark.conf.unset(setting)
        spark.catalog.dropTempView("pushed")


def test_spark_collects_what_was_lost(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create(1)
    cluster.produce(range(50))
    cluster.admin.delete_records({TopicPartition(cluster.topic, 0): 20})
    since = f'{{"{cluster.topic}":{{"0":5}}}}'
    setting = "spark.sql.pyspark.worker.logging.enabled"
    spark.conf.set(setting, "true")
    try:
        assert load(spark, cluster, startingOffsets=since, failOnDataLoss="false").count() == 30
        (lost,) = (
            spark.sql("select * from python_worker_logs()").where(f"msg like '%{cluster.topic}%'").collect()
        )
    finally:
        spark.conf.unset(setting)
    assert (lost.level, lost.logger) == ("WARNING", "kadence.spark")
    assert f"15 offsets of {cluster.topic}-0 were deleted" in lost.msg


def test_a_table_of_the_catalog(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create(1)
    cluster.produce(range(50))
    name = cluster.topic.replace("-", "_")
    options = f"'kafka.bootstrap.servers' '{cluster.bootstrap_servers}', subscribe '{cluster.topic}'"
    spark.sql(f"create table {name} using kadence options ({options})")
    try:
        table = spark.table(name).selectExpr("count(*)", "max(offset)")
        assert table.collect() == [(50, 49)]
        ends = f'{{"{cluster.topic}":{{"0":7}}}}'
        assert spark.read.option("endingOffsets", ends).table(name).count() == 7
    finally:
        spark.sql(f"drop table {name}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscirbe": "x"}, "did you mean 'subscribe'?"),
        ({"startingOffsets": "latest"}, "'latest' is for streams"),
        ({"subscribe": "no-such-topic"}, "the query reads no-such-topic, which the cluster does not have"),
    ],
)
def test_what_cannot_be_is_said_in_words(
    spark: SparkSession, cluster: Cluster, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match="PYTHON") as caught:
        load(spark, cluster, **options).count()
    assert said in str(caught.value)
