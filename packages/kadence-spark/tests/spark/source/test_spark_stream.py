"""``spark.readStream.format("kadence")`` end to end: nothing lost, nothing twice, lag visible to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from tests.patience import PATIENCE, until
from tests.spark.conftest import Cluster, Runs

from kadence import Broker, Consumer, TopicPartition
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence_spark import lag

pytestmark = pytest.mark.shared_spark


def test_limits_restart_growth_and_committed_offsets(cluster: Cluster, runs: Runs) -> None:
    cluster.create(2)
    cluster.produce(range(100))
    group = {"kafka_group_id": cluster.group, "commitOffsets": "true"}
    batches = runs.available_now(maxOffsetsPerTrigger="40", **group)
    assert sum(batches) == 100
    assert len(batches) >= 3
    assert max(batches) <= 42  # each partition gets at least one
    assert runs.values() == list(range(100))
    assert cluster.committed() == cluster.ends()  # the last batch too

    assert runs.available_now(**group) == []  # nothing new, no batch

    cluster.admin.create_partitions({cluster.topic: 4})
    cluster.produce(range(100, 130), partition=3)
    assert runs.available_now(**group) == [30]
    assert runs.values() == list(range(130))
    assert cluster.committed() == cluster.ends()


def test_the_two_sides_of_a_self_join_commit_as_one_application(
    embedded: Broker, cluster: Cluster, runs: Runs
) -> None:
    """Runs of one application are not warned of: `test_two_queries_of_one_group`."""
    cluster.create(2)
    cluster.produce(range(20))
    with embedded.faults.observe(OffsetCommitRequest) as commits:
        runs.available_now(
            lambda frame: (
                frame.alias("a")
                .join(frame.alias("b"), expr("a.partition = b.partition and a.offset = b.offset"))
                .select("a.value")
            ),
            kafka_group_id=cluster.group,
            commitOffsets="true",
        )
    assert runs.values() == list(range(20))
    committers = {
        partition.committed_metadata or ""
        for request in commits.messages
        if request.group_id == cluster.group
        for topic in request.topics
        for partition in topic.partitions
    }
    assert len(committers) == 2
    assert len({each.rpartition("-")[0] for each in committers}) == 1
    assert cluster.committed() == cluster.ends()


def test_start_at_latest_survives_a_failed_batch(cluster: Cluster, runs: Runs) -> None:
    cluster.create(2)
    cluster.produce(range(1000, 1010))
    assert runs.available_now(startingOffsets="latest") == [0]  # pins the start down
    cluster.produce(range(60))
    with pytest.raises(StreamingQueryException, match="not today"):
        runs.available_now(
            lambda frame: frame.selectExpr("*", "raise_error('not today') as failure"),
            startingOffsets="latest",
        )
    cluster.produce(range(60, 70))
    runs.available_now(startingOffsets="latest")
    assert runs.values() == list(range(70))


@pytest.mark.parametrize("of", ["offsets", "commits"])
def test_an_application_that_died_while_spark_wrote_its_first_offsets_starts_again(
    cluster: Cluster, runs: Runs, tmp_path: Path, of: str
) -> None:
    """Spark writes into such a hidden file and renames it; in a checkpoint without offsets it takes offence at one."""
    cluster.create(1)
    cluster.produce(range(30))
    left = tmp_path / "checkpoint" / of / ".0.6f1c2f3e-5d4c-4b3a-8f21-0123456789ab.tmp"
    left.parent.mkdir(parents=True)
    left.write_text("v1\n")
    assert runs.available_now() == [30]
    assert runs.values() == list(range(30))
    assert not list((tmp_path / "checkpoint").rglob(".*.crc"))  # Hadoop's, each with two renames


def test_a_checkpoint_moves_between_sessions_with_and_without_checksums_of_hadoop(
    spark: SparkSession, cluster: Cluster, runs: Runs, tmp_path: Path
) -> None:
    """Spark puts one beside each file of a checkpoint on a local disk, `session` none; state is read by both."""
    name = "fs.AbstractFileSystem.file.impl"
    cluster.create(1)
    checksums: list[set[str]] = []
    try:
        for turn, implementation in enumerate(("LocalFs", "RawLocalFs", "LocalFs")):
            spark.conf.set(name, f"org.apache.hadoop.fs.local.{implementation}")
            cluster.produce(range(5 * turn, 5 * turn + 10))
            runs.available_now(lambda frame: frame.dropDuplicates(["value"]))
            found = (tmp_path / "checkpoint").rglob(".*.crc")
            checksums.append({str(path.relative_to(tmp_path / "checkpoint")) for path in found})
    finally:
        spark.conf.unset(name)
    assert runs.values() == list(range(20))
    assert checksums[0] == checksums[1] < checksums[2]
    assert {"offsets/.0.crc", "offsets/.2.crc"} <= checksums[2]


def test_a_topic_made_anew_and_longer(cluster: Cluster, runs: Runs) -> None:
    """Its name is the same, and offset 50 exists in it: only the id in the checkpoint tells."""
    cluster.create(1)
    cluster.produce(range(50))
    assert runs.available_now() == [50]
    before = cluster.topic_id()
    cluster.admin.delete_topics([cluster.topic])
    cluster.create(1)
    cluster.produce(range(200, 260))
    both = f"id {before}, .* has id {cluster.topic_id()}.*failOnDataLoss=false"
    with pytest.raises(StreamingQueryException, match=both):
        runs.available_now()
    assert runs.available_now(failOnDataLoss="false") == [60]
    assert runs.values() == [*range(50), *range(200, 260)]


def test_a_group_of_an_application_keeps_its_offsets(cluster: Cluster, runs: Runs) -> None:
    cluster.create(1)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=cluster.group) as member:
        member.subscribe([cluster.topic])
        while not member.assignment():
            member.poll(0.1)
        with pytest.raises(StreamingQueryException, match="in use by a live consumer group"):
            runs.available_now(kafka_group_id=cluster.group, commitOffsets="true")
    cluster.admin.alter_consumer_group_offsets(cluster.group, {TopicPartition(cluster.topic, 0): 0})
    with pytest.raises(StreamingQueryException, match="has committed offsets of an application"):
        runs.available_now(kafka_group_id=cluster.group, commitOffsets="true")
    cluster.produce(range(3))
    assert runs.available_now(kafka_group_id=cluster.group) == [3]
    assert cluster.committed() == {0: 0}


def test_a_running_query_follows_the_topic(
    spark: SparkSession, cluster: Cluster, runs: Runs, tmp_path: Path
) -> None:
    cluster.create(1)
    cluster.produce(range(10))
    query = (
        runs.load(maxBytesPerTrigger="10", kafka_group_id=cluster.group, commitOffsets="true")
        .selectExpr("cast(value as string) as value")
        .writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        cluster.produce(range(10, 20))
        query.processAllAvailable()
        seen = sorted(int(row.value) for row in spark.table("followed").collect())
        assert lag(query) == {TopicPartition(cluster.topic, 0): 0}
        until(lambda: cluster.committed() == cluster.ends(), what="an idle query commits")
    finally:
        query.stop()
    assert seen == list(range(20))
    first = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    assert first[f"#{cluster.topic}"] == {"0": 0}
    assert first[f"@{cluster.topic}={cluster.topic_id()}"] == {}
    assert (
        first[cluster.topic]["0"] < 10
    )  # ten bytes are ten records here, but not in one batch with keys unknown


def test_a_broker_that_goes_away(spark: SparkSession, tmp_path: Path) -> None:
    """The lag is not known then, rather than 0, and the query fails after brokerTimeoutMs."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    broker = Broker()
    made = Cluster(broker.bootstrap_servers)
    made.create(1)
    made.produce(range(10))
    partition = TopicPartition(made.topic, 0)
    query = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("kafka.default.api.timeout.ms", "500")
        .option("brokerTimeoutMs", "4000")
        .option("subscribe", made.topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        assert lag(query) == {partition: 0}
        made.admin.close()
        broker.close()
        until(lambda: lag(query) == {partition: None})
        assert query.isActive
        with pytest.raises(
            StreamingQueryException, match=r"no answer from any broker for .* brokerTimeoutMs allows 4000"
        ):
            query.awaitTermination(int(PATIENCE))
    finally:
        query.stop()
        broker.close()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


def test_triggers_that_spark_has_for_java_alone(spark: SparkSession, runs: Runs, tmp_path: Path) -> None:
    """docs/spark.md says so among the differences from the connector."""
    writer = runs.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "none"))
    with pytest.raises(Exception, match=r"kadence does not support continuous processing"):
        writer.trigger(continuous="5 seconds").start()
    real_time: Any = {"realTime": "5 seconds"}
    any_sink = "spark.sql.streaming.realTimeMode.allowlistCheck"
    spark.conf.set(any_sink, "false")
    try:
        with pytest.raises(Exception, match=r"INPUT_STREAM_NOT_SUPPORTED"):
            writer.trigger(**real_time).outputMode("update").start().awaitTermination()
    finally:
        spark.conf.unset(any_sink)
