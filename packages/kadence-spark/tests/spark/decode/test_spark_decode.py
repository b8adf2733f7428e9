"""Decoded columns in real queries, batch and stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.registry.registry_server import RegistryServer
from tests.spark.conftest import Cluster, Runs

from kadence import Producer

pytestmark = pytest.mark.shared_spark


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


def test_times_without_a_zone_are_the_sessions(spark: SparkSession, cluster: Cluster) -> None:
    """As the session is when the query begins, or as the option says."""
    cluster.create(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(cluster.topic, b'{"at":"2024-07-02T03:04:05"}')
    reader = spark.read.format("kadence").options(
        **{"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": cluster.topic}
    )
    reader = reader.options(**{"value.format": "json", "value.schema": "at timestamp"})
    by_source = reader.load().selectExpr("unix_seconds(value.at)", "_error")
    here = reader.option("timeZone", "+01:00").load().selectExpr("unix_seconds(value.at)", "_error")
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    try:
        for zone, ahead in (("America/New_York", -4 * 3600), ("Asia/Kolkata", 19_800), ("UTC", 0)):
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert by_source.collect() == [(1719889445 - ahead, None)]
            assert here.collect() == [(1719889445 - 3600, None)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


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


def test_avro_by_the_registry(spark: SparkSession, cluster: Cluster, registry: RegistryServer) -> None:
    """No schema is named anywhere: the columns are those of the newest one, rows of older ones fit in."""
    cluster.create(1)
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "more", "type": ["null", "string"], "default": None}]}
    registry.schemas = {1: {"schema": json.dumps(old)}, 2: {"schema": json.dumps(new)}}
    registry.subjects[f"{cluster.topic}-value"] = registry.schemas[2]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"\0\0\0\0\1\x0a", b"\0\0\0\0\2\x0c\x02\x02x", b"\0\0\0\0\3", b"json?"):
            producer.send(cluster.topic, value)
        # A header names its schema, and the query has no column of headers.
        producer.send(cluster.topic, b"\x0e\x02\x02y", headers=[("__value_schema_id", b"\0\0\0\0\2")])
    frame = (
        spark.read.format("kadence")
        .options(**{"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": cluster.topic})
        .options(**{"value.format": "avro", "schema.registry.url": registry.url, "value.flat": "true"})
        .load()
    )
    assert frame.columns[:4] == ["id", "more", "key", "topic"]
    assert [(row.id, row.more, row._error) for row in frame.orderBy("offset").collect()] == [
        (5, None, None),
        (6, "x", None),
        (None, None, "value: schema id 3 is not in the registry"),
        (None, None, "value: it has no schema id: its first byte is neither 0 nor 1"),
        (7, "y", None),
    ]
