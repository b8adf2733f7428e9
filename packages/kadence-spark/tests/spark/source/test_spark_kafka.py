"""The same source on real Apache Kafka: what an embedded broker cannot show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer as TransactionalProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.patience import PATIENCE
from tests.spark.conftest import Cluster, Runs

from kadence_spark.source.clients import executor_client
from kadence_spark.source.executor import ReadSettings, read_ranges
from kadence_spark.source.loss import DataLossError
from kadence_spark.source.planning import OffsetRange

pytestmark = pytest.mark.shared_spark


def test_stream_with_committed_offsets(real_cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, real_cluster, tmp_path)
    real_cluster.create(3)
    real_cluster.produce(range(300))
    group = {"kafka_group_id": real_cluster.group, "commitOffsets": "true"}
    assert sum(runs.available_now(maxOffsetsPerTrigger="200", **group)) == 300
    assert runs.available_now(**group) == []
    assert runs.values() == list(range(300))
    assert real_cluster.committed() == real_cluster.ends()
    real_cluster.produce(range(300, 310))
    since = (
        spark.read.format("kadence")
        .option("kafka.bootstrap.servers", real_cluster.bootstrap_servers)
        .option("subscribe", real_cluster.topic)
        .option("startingOffsets", "committed")
        .option("kafka.group.id", real_cluster.group)
        .load()
    )
    assert sorted(int(row.value) for row in since.collect()) == list(range(300, 310))


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
        producer.flush(PATIENCE)
        finish(30)
    while real_cluster.ends() != {0: 17}:  # the marker of the abort is written after its request is answered
        pass
    runs = Runs(spark, real_cluster, tmp_path)
    committed = {"kafka_isolation_level": "read_committed"}
    committed |= {"kafka_group_id": real_cluster.group, "commitOffsets": "true"}
    assert runs.available_now(**committed) == [10]
    assert runs.values() == list(range(10))
    assert real_cluster.committed() == {0: 17}
    batch = (
        spark.read.format("kadence")
        .option("kafka.bootstrap.servers", real_cluster.bootstrap_servers)
        .option("subscribePattern", f"{real_cluster.topic[2:]}$")
    )
    assert batch.load().count() == 15
    # Of the last task's offsets none holds a committed record.
    in_parts = batch.option("kafka.isolation.level", "read_committed").option("minPartitions", "4").load()
    assert sorted(int(row.value) for row in in_parts.collect()) == list(range(10))


def test_records_deleted_before_they_were_read(
    real_cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    runs = Runs(spark, real_cluster, tmp_path)
    real_cluster.create(1)
    real_cluster.produce(range(20))
    runs.available_now()
    real_cluster.produce(range(20, 40))
    delete_below(real_cluster, 30)
    with pytest.raises(StreamingQueryException, match=r"10 offsets of .* were deleted before they were read"):
        runs.available_now()
    assert runs.available_now(failOnDataLoss="false") == [10]
    assert runs.values() == [*range(20), *range(30, 40)]


def test_records_deleted_while_their_task_waited(real_cluster: Cluster) -> None:
    """The driver saw them, retention was faster than the task."""
    real_cluster.create(1)
    real_cluster.produce(range(40))
    task = (OffsetRange(real_cluster.topic, 0, 5, 20),)
    delete_below(real_cluster, 12)
    client = executor_client({"bootstrap.servers": real_cluster.bootstrap_servers}, "test", ("offset",))
    schema = pa.schema([("offset", pa.int64())])
    try:
        with pytest.raises(DataLossError, match="7 offsets of"):
            list(read_ranges(task, client, ReadSettings(("offset",)), schema))
        lenient = ReadSettings(("offset",), fail_on_data_loss=False)
        batches = list(read_ranges(task, client, lenient, schema))
        assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(12, 20))
    finally:
        client.close()


def delete_below(cluster: Cluster, offset: int) -> None:
    """DeleteRecords, as retention would."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in admin.delete_records([ConfluentPartition(cluster.topic, 0, offset)]).values():
        deleted.result(PATIENCE)
