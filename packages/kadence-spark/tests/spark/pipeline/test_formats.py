"""Avro and Protobuf values through a pipeline; topics of real Kafka as source, sink and dead letters."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import SparkSession
from tests.patience import until
from tests.registry.registry_server import RegistryServer, running
from tests.spark.conftest import Cluster

from kadence import Consumer, Producer, Record, TopicPartition
from kadence.environment import Environment
from kadence_spark.decode import formats
from kadence_spark.pipeline.checks import check, checked
from kadence_spark.pipeline.model import Pipeline
from kadence_spark.pipeline.reading import parse
from kadence_spark.pipeline.run import Run

pytestmark = pytest.mark.shared_spark

FILE = """\
name = "orders"
checkpoint = "{directory}/checkpoint"

[source]
servers = "{servers}"
topics = ["{topic}"]
startingOffsets = "earliest"
kafka.group.id = "{group}"
commitOffsets = true

[decode]
{decode}

[[transform]]
name = "cities"
sql = "SELECT id, upper(city) AS city FROM records"

[[expect]]
name = "positive"
condition = "id > 0"
action = "drop"

{outputs}
"""

TOPICS = """\
[sink]
topic = "{topic}-out"
key = "city"

[dead_letters]
topic = "{topic}-dead"
"""

TABLES = """\
[sink]
path = "{directory}/table"

[dead_letters]
path = "{directory}/letters"
"""


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    formats.client_of.cache_clear()
    formats.decoder_of.cache_clear()
    with running() as server:
        yield server


def pipeline(spark: SparkSession, cluster: Cluster, directory: Path, decode: str, outputs: str) -> Pipeline:
    """Checked with its SQL, too."""
    given = {"directory": directory, "topic": cluster.topic}
    text = FILE.format(
        **given,
        servers=cluster.bootstrap_servers,
        group=cluster.group,
        decode=decode,
        outputs=outputs.format(**given),
    )
    document = parse(text, "orders.toml", {})
    assert check(document, Environment({}), spark) == []
    return checked(document, Environment({}))


def records(cluster: Cluster, topic: str, count: int) -> list[Record]:
    """All records of a topic of one partition; more than ``count`` would be among them."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning()
        seen: list[Record] = []

        def all_seen() -> bool:
            seen.extend(consumer.poll(0.1))
            return consumer.position(partition) >= end

        until(all_seen, every=0)
    assert len(seen) == count
    return seen


def test_avro_from_topic_to_topic_on_real_kafka(
    spark: SparkSession, real_cluster: Cluster, registry: RegistryServer, tmp_path: Path
) -> None:
    cluster = real_cluster
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    registry.schemas = {7: {"schema": json.dumps(schema)}}
    registry.subjects[f"{cluster.topic}-value"] = registry.schemas[7]

    def order(number: int) -> bytes:
        out = io.BytesIO(b"\0\0\0\0\7")
        out.seek(5)
        fastavro.schemaless_writer(out, schema, {"id": number, "city": "Bonn"})
        return out.getvalue()

    cluster.create(1)
    cluster.admin.create_topics({f"{cluster.topic}-out": 1, f"{cluster.topic}-dead": 1})
    values = [order(1), order(2), order(-3), b"no Avro", order(4)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send(cluster.topic, value, b"k", headers=[("h", b"1")])
    made = pipeline(
        spark, cluster, tmp_path, f'format = "avro"\nschema.registry.url = "{registry.url}"', TOPICS
    )
    done = Run(made, Environment({}), spark).run()
    assert (done.rows_in, done.rows_out, done.undecoded, done.dropped) == (5, 3, 1, 1)
    out = records(cluster, f"{cluster.topic}-out", 3)
    assert [json.loads(each.value or b"") for each in out] == [{"id": n, "city": "BONN"} for n in (1, 2, 4)]
    assert {each.key for each in out} == {b"BONN"}
    dead = sorted(
        records(cluster, f"{cluster.topic}-dead", 2),
        key=lambda each: dict(each.headers)["kadence.offset"] or b"",
    )
    assert [each.value for each in dead] == values[2:4]
    assert {each.key for each in dead} == {b"k"}
    first, second = ({name: bytes(value or b"") for name, value in each.headers} for each in dead)
    assert first["h"] == b"1"
    assert (first["kadence.offset"], first["kadence.reason"]) == (b"2", b"expectation positive")
    assert (second["kadence.offset"], second["kadence.topic"]) == (b"3", cluster.topic.encode())
    assert second["kadence.reason"].startswith(b"decode: value: ")
    assert cluster.committed() == {0: 5}

    again = Run(made, Environment({}), spark).run()
    assert (again.state, again.rows_in, again.rows_out) == ("finished", 0, 0)
    records(cluster, f"{cluster.topic}-out", 3)


def test_protobuf_into_a_table(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, label=1, type=kinds.TYPE_INT64)
    message.field.add(name="city", number=2, label=1, type=kinds.TYPE_STRING)
    described = descriptor_pb2.FileDescriptorSet(file=[file])
    (tmp_path / "order.desc").write_bytes(described.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))

    cluster.create(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in (1, -2, 3):
            producer.send(cluster.topic, order(id=number, city="Köln").SerializeToString())
        producer.send(cluster.topic, b"\xff\xff")
    decode = f'format = "protobuf"\nschema = "{tmp_path}/order.desc"\nvalue.message = "shop.Order"'
    made = pipeline(spark, cluster, tmp_path, decode, TABLES)
    done = Run(made, Environment({}), spark).run()
    assert (done.rows_in, done.rows_out, done.undecoded, done.dropped) == (4, 2, 1, 1)
    table = spark.read.parquet(str(tmp_path / "table")).orderBy("id")
    assert [(row.id, row.city, row._offset) for row in table.collect()] == [(1, "KÖLN", 0), (3, "KÖLN", 2)]
    letters = spark.read.parquet(str(tmp_path / "letters")).orderBy("offset").collect()
    assert [row.reason.partition(" ")[0] for row in letters] == ["expectation", "decode:"]
    assert bytes(letters[1].value) == b"\xff\xff"
