"""The same source on real Apache Kafka: what an embedded broker cannot show."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer as TransactionalProducer
from pyspark.sql import SparkSession
from tests.spark.conftest import Cluster, Runs


def test_stream_with_committed_offsets(real_cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, real_cluster, tmp_path)
    real_cluster.create(3)
    real_cluster.produce(range(300))
    group = {"kafka_group_id": real_cluster.group}
    assert sum(runs.available_now(maxOffsetsPerTrigger="200", **group)) == 300
    assert runs.available_now(**group) == []
    assert runs.values() == list(range(300))
    assert real_cluster.committed() == real_cluster.ends()


def test_only_committed_records_of_transactions(
    real_cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """The range ends with offsets that hold no record: aborted ones, and the markers of both transactions."""
    real_cluster.create(1)
    producer = TransactionalProducer(
        {"bootstrap.servers": real_cluster.bootstrap_servers, "transactional.id": real_cluster.topic}
    )
    producer.init_transactions(30)
    for values, finish in (
        (range(10), producer.commit_transaction),
        (range(90, 95), producer.abort_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.produce(real_cluster.topic, str(value).encode())
        producer.flush(30)
        finish(30)
    assert real_cluster.ends() == {0: 17}
    runs = Runs(spark, real_cluster, tmp_path)
    committed = {"kafka_isolation_level": "read_committed", "kafka_group_id": real_cluster.group}
    assert runs.available_now(**committed) == [10]
    assert runs.values() == list(range(10))
    assert real_cluster.committed() == {0: 17}
    everything = (
        spark.read.format("kadence")
        .option("kafka.bootstrap.servers", real_cluster.bootstrap_servers)
        .option("subscribe", real_cluster.topic)
        .load()
    )
    assert everything.count() == 15
