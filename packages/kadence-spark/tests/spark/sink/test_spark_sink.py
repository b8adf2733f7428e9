"""Writing through real Spark, on the embedded broker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from tests.spark.conftest import Cluster

from kadence import Broker, Producer
from kadence.admin import NewTopic
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence_broker.handlers import HANDLERS
from kadence_broker.handlers.k18_api_versions import make_handler

pytestmark = pytest.mark.shared_spark


def write(frame: DataFrame, cluster: Cluster, **options: str) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    frame.write.format("kadence").options(**given).mode("append").save()


def read(spark: SparkSession, cluster: Cluster, *topics: str) -> list[Row]:
    reader = spark.read.format("kadence").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame = reader.option("subscribe", ",".join(topics)).option("includeHeaders", "true").load()
    return frame.orderBy("topic", "partition", "offset").collect()


def test_every_column_arrives(spark: SparkSession, cluster: Cluster) -> None:
    """Dead letters are written so: no key, headers with null in them, a topic for each row."""
    other = f"other-{cluster.topic}"
    cluster.create(3)
    cluster.admin.create_topics([NewTopic(other, 1, 1, {})])
    headers: list[Any] = [
        Row(key="error", value=b"bad"),
        Row(key="error", value=None),
        Row(key="", value=b""),
    ]
    rows = [
        (cluster.topic, b"key", "text é", 2, headers),
        (other, None, "", None, []),
        (other, b"", None, 0, None),
    ]
    schema = (
        "topic string, key binary, value string, partition int, "
        "headers array<struct<key:string,value:binary>>, timestampType int"
    )
    frame = spark.createDataFrame([(*row, 7) for row in rows], schema).coalesce(1)
    write(frame, cluster, startingOffsets="earliest")
    found = [
        (row.topic, row.partition, row.key, row.value, row.headers)
        for row in read(spark, cluster, cluster.topic, other)
    ]
    assert found == [
        (other, 0, None, b"", None),
        (other, 0, b"", None, None),
        (cluster.topic, 2, b"key", "text é".encode(), headers),
    ]


def test_keys_choose_partitions_as_any_producer_does(spark: SparkSession, cluster: Cluster) -> None:
    """20,000 rows are several Arrow batches; the option goes before the column topic."""
    cluster.create(4)
    frame = spark.range(20_000).selectExpr(
        "cast(id as string) key", "cast(id as string) value", "'nowhere' topic"
    )
    write(frame, cluster, topic=cluster.topic)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        futures = [producer.send(cluster.topic, b"again", key=str(number).encode()) for number in range(100)]
    expected = {str(number).encode(): future.result().partition for number, future in enumerate(futures)}
    rows = read(spark, cluster, cluster.topic)
    written = [row for row in rows if row.value != b"again"]
    assert sorted(int(row.value) for row in written) == list(range(20_000))
    assert {row.key: row.partition for row in written if row.key in expected} == expected


@pytest.mark.parametrize(
    ("columns", "mode", "options", "message"),
    [
        (["1 as value"], "append", {"topic": "t"}, "column 'value' is int, and must be string or binary"),
        (["'a' as value"], "append", {}, "the sink needs the option topic, or a column 'topic'"),
        (
            ["'a' as value"],
            "overwrite",
            {"topic": "t"},
            r'a topic cannot be overwritten: use .mode\("append"\)',
        ),
        (["'a' as value"], "append", {"topics": "t"}, "unknown option 'topics': did you mean 'topic'"),
        # Spark asks no source in this mode, which is its default.
        (["'a' as value"], "errorifexists", {"topic": "t"}, 'use either the "Append" or "Overwrite" mode'),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    spark: SparkSession, columns: list[str], mode: str, options: dict[str, str], message: str
) -> None:
    writer = spark.range(1).selectExpr(*columns).write.format("kadence")
    with pytest.raises(AnalysisException, match=message):
        writer.options(**{"kafka.bootstrap.servers": "127.0.0.1:1", **options}).mode(mode).save()


def test_a_row_that_cannot_be_written_fails_the_task_and_says_why(
    spark: SparkSession, cluster: Cluster
) -> None:
    cluster.create(1, **{"max.message.bytes": "1000"})
    large = spark.range(1).selectExpr("repeat('x', 5000) value")
    with pytest.raises(
        PySparkException, match=rf"a record for {cluster.topic}-0 .*max.message.bytes of the topic"
    ):
        write(large, cluster, topic=cluster.topic)
    nowhere = spark.range(1).selectExpr("'v' value", "cast(null as string) topic")
    with pytest.raises(PySparkException, match="a row has null in its column topic"):
        write(nowhere, cluster)
    beyond = spark.range(1).selectExpr("'v' value", "7 partition")
    with pytest.raises(PySparkException, match="7 is none of them"):
        write(beyond, cluster, topic=cluster.topic)


def test_a_stream_writes_each_batch_once(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(2)
    cluster.produce(range(100))
    copy = f"copy-{uuid.uuid4().hex[:8]}"
    cluster.admin.create_topics([NewTopic(copy, 2, 1, {})])

    def run() -> None:
        reader = spark.readStream.format("kadence").option(
            "kafka.bootstrap.servers", cluster.bootstrap_servers
        )
        frame = reader.option("subscribe", cluster.topic).option("startingOffsets", "earliest").load()
        query = (
            frame.select("key", "value", "topic")
            .writeStream.format("kadence")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("topic", copy)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    cluster.produce(range(100, 150))
    run()
    assert sorted(int(row.value) for row in read(spark, cluster, copy)) == list(range(150))


def test_a_topic_that_nobody_makes_fails_the_task(spark: SparkSession) -> None:
    with Broker(config={"auto.create.topics.enable": False}) as broker:
        to = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": "500"}
        writer = spark.range(1).selectExpr("'v' value").write.format("kadence").options(**to)
        with pytest.raises(PySparkException, match="nowhere"):
            writer.option("topic", "nowhere").mode("append").save()


def test_an_output_mode_that_spark_has_for_java_alone(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """docs/spark.md says so, and what to do instead."""
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writer = rows.groupBy("value").count().writeStream.format("kadence").outputMode("update")
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": cluster.topic}
    with pytest.raises(PySparkException, match="does not support Update mode"):
        writer.options(**to).option("checkpointLocation", str(tmp_path)).start().awaitTermination()


def test_transactions_on_brokers_without_them_are_refused(
    spark: SparkSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(1)
    offered = {key: each for key, each in HANDLERS.items() if each.request is not EndTxnRequest}
    offered[ApiVersionsRequest.API_KEY] = make_handler(
        each for key, each in offered.items() if key != ApiVersionsRequest.API_KEY
    )
    monkeypatch.setattr("kadence_broker.dispatch.HANDLERS", offered)
    with pytest.raises(
        PySparkException, match=r"transactions=true: the brokers at .* have no transactions; leave"
    ):
        # A worker may still have a producer from another test, which knows the brokers as they were.
        write(
            spark.range(1).selectExpr("'v' value"),
            cluster,
            topic=cluster.topic,
            transactions="true",
            **{"kafka.client.id": "new"},
        )
