"""Offsets without a record, on real Apache Kafka: compaction and transactions leave them, and they are no loss."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer as ReferenceConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as TransactionalProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from pyspark.sql import SparkSession
from tests.patience import PATIENCE, until
from tests.spark.conftest import Cluster, Runs

from kadence import Producer

pytestmark = pytest.mark.shared_spark

KEYS = 10
ROUND = 60
WAYS = ["batch", "batch in parts", "stream"]


def read(way: str, spark: SparkSession, cluster: Cluster, directory: Path, **options: str) -> list[int]:
    """What Spark reads of the topic; ranges end and begin in gaps, and some hold no record at all."""
    if way == "stream":
        runs = Runs(spark, cluster, directory)
        group = {"kafka_group_id": cluster.group, "commitOffsets": "true"}
        assert len(runs.available_now(maxOffsetsPerTrigger="17", **group, **options)) > 5
        assert cluster.committed() == cluster.ends()
        return runs.values()
    given = {"kafka_bootstrap_servers": cluster.bootstrap_servers, "subscribe": cluster.topic, **options}
    if way == "batch in parts":
        given["minPartitions"] = "20"
    reader = spark.read.format("kadence").options(
        **{name.replace("_", "."): text for name, text in given.items()}
    )
    return sorted(int(row.value) for row in reader.load().collect())


def reference(cluster: Cluster, isolation: str) -> list[int]:
    """What another client reads of it."""
    settings = {"group.id": "reference", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = ReferenceConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation, **settings}
    )
    values: list[int] = []
    try:
        consumer.assign([ConfluentPartition(cluster.topic, 0, 0)])
        while (message := consumer.poll(PATIENCE)) is not None:
            problem = message.error()
            if problem is None:
                values.append(int(message.value() or b""))
            else:
                assert problem.code() == KafkaError._PARTITION_EOF
                break
        return sorted(values)
    finally:
        consumer.close()


@pytest.fixture
def compacted(real_cluster: Cluster) -> Cluster:
    """Four rounds of 60 records with ten keys, each a segment: of all but the last, one record for a key is left."""
    real_cluster.create(
        1, **{"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    )
    with Producer(bootstrap_servers=real_cluster.bootstrap_servers) as producer:
        for number in range(4 * ROUND):
            # By their times a round is a minute after the last one, so it begins a new segment.
            time = 1_700_000_000_000 + number // ROUND * 60_000
            producer.send(
                real_cluster.topic, str(number).encode(), str(number % KEYS).encode(), timestamp=time
            )
            if number % ROUND == ROUND - 1:
                producer.flush()
    until(lambda: len(reference(real_cluster, "read_uncommitted")) == KEYS + ROUND, every=0.2)
    return real_cluster


@pytest.mark.parametrize("way", WAYS)
def test_a_compacted_topic(compacted: Cluster, spark: SparkSession, tmp_path: Path, way: str) -> None:
    left = [*range(3 * ROUND - KEYS, 3 * ROUND), *range(3 * ROUND, 4 * ROUND)]
    assert read(way, spark, compacted, tmp_path) == left == reference(compacted, "read_uncommitted")


@pytest.fixture
def with_aborted(real_cluster: Cluster) -> Cluster:
    """Transactions of 20 records; every other one is aborted, and two in a row at the end."""
    real_cluster.create(1)
    producer = TransactionalProducer(
        {"bootstrap.servers": real_cluster.bootstrap_servers, "transactional.id": real_cluster.topic}
    )
    producer.init_transactions(PATIENCE)
    for number, is_committed in enumerate((True, False, True, False, False)):
        producer.begin_transaction()
        for value in range(20 * number, 20 * number + 20):
            producer.produce(real_cluster.topic, str(value).encode())
        producer.flush(PATIENCE)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(PATIENCE)
    until(lambda: real_cluster.ends() == {0: 5 * 21})  # the last marker comes after its request was answered
    return real_cluster


@pytest.mark.parametrize("way", WAYS)
def test_aborted_transactions(with_aborted: Cluster, spark: SparkSession, tmp_path: Path, way: str) -> None:
    found = read(way, spark, with_aborted, tmp_path, kafka_isolation_level="read_committed")
    assert found == [*range(20), *range(40, 60)] == reference(with_aborted, "read_committed")
