"""Decoded columns in real queries, batch and stream."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.spark.conftest import Cluster, Runs

from kadence import Producer


def test_json_as_columns(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b'{"id":1,"at":"2024-01-02T03:04:05Z","tags":{"a":1}}', b'{"id":', None):
            producer.send(cluster.topic, value, b"k")
    reader = spark.read.format("kadence").options(
        **{
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": cluster.topic,
            "value.format": "json",
            "key.format": "string",
            "value.schema": "id bigint, at timestamp, tags map<string,int>, m decimal(5,1)",
        }
    )
    whole = reader.load()
    assert whole.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,tags:map<string,int>,m:decimal(5,1)>"
    )
    rows = whole.selectExpr(
        "key", "value.id", "unix_seconds(value.at) at", "value.tags", "offset", "_error", "_raw"
    )
    first, second, third = rows.orderBy("offset").collect()
    assert first[:6] == ("k", 1, 1704164645, {"a": 1}, 0, None)
    assert second[:5] == ("k", None, None, None, 1)
    assert second._error.startswith("value: not JSON")
    assert bytes(second._raw) == b'{"id":'
    assert third[1:] == (None, None, None, 2, None, None)
    flat = reader.schema("offset bigint, id int").option("mode", "dropmalformed").load()
    assert flat.orderBy("offset").collect() == [(0, 1), (2, None)]


def test_a_stream_decodes_too(cluster: Cluster, runs: Runs) -> None:
    cluster.create(2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(cluster.topic, b'{"id":%d}' % number)
    rows = runs.available_now(
        lambda frame: frame.selectExpr("value.id as value", "_error").where("_error is null"),
        value_format="json",
        value_schema="id bigint",
        maxOffsetsPerTrigger="12",
    )
    assert sum(rows) == 20
    assert runs.values() == list(range(20))
