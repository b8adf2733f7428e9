"""One Spark session for the room: starting one takes longer than most of its tests."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.processes import home_without_zip

from kadence import Admin, Broker, Producer, TopicPartition
from kadence.admin import NewTopic
from kadence.spark import session
from kadence.testing.kafka import Kafka


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, little memory, nothing written outside the test run's directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home_without_zip(tmp_path_factory.mktemp("home"))))
        running = session(
            "kadence-tests",
            master="local[2]",
            conf={
                "spark.driver.memory": "512m",
                # Short queries: a fast start is worth more than the second compiler.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.log.level": "ERROR",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.sql.shuffle.partitions": "1",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    yield running
    running.stop()


class Cluster:
    """A cluster with a topic of its own for one test."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = f"spark-{uuid.uuid4().hex[:8]}"
        self.group = f"group-{self.topic}"
        self.admin = Admin(bootstrap_servers=bootstrap_servers)

    def create(self, partitions: int, **configs: str) -> None:
        self.admin.create_topics([NewTopic(self.topic, partitions, 1, configs)])

    def produce(self, values: range, *, partition: int | None = None, **more: Any) -> None:
        """One record for each number, the number as text, spread over the partitions in turn."""
        with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            for value in values:
                producer.send(self.topic, str(value).encode(), partition=partition, **more)

    def topic_id(self) -> str:
        """The topic's id as Kafka's tools write it."""
        described = self.admin.describe_topics([self.topic])[self.topic]
        return base64.urlsafe_b64encode(described.topic_id).decode().rstrip("=")

    def committed(self) -> dict[int, int]:
        """Partition to committed offset of the test's group."""
        found = self.admin.list_consumer_group_offsets(self.group)
        return {partition.partition: at.offset for partition, at in found.items()}

    def ends(self) -> dict[int, int]:
        """Partition to end of its log."""
        topic = self.admin.describe_topics([self.topic])[self.topic]
        partitions = [TopicPartition(info.topic, info.partition) for info in topic.partitions]
        found = self.admin.list_offsets(dict.fromkeys(partitions, "latest"))
        return {partition.partition: at.offset for partition, at in found.items() if at is not None}


@pytest.fixture(scope="session")
def embedded() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def cluster(embedded: Broker) -> Iterator[Cluster]:
    """On the embedded broker."""
    made = Cluster(embedded.bootstrap_servers)
    yield made
    made.admin.close()


@pytest.fixture
def real_cluster(kafka: Kafka) -> Iterator[Cluster]:
    """On real Apache Kafka."""
    made = Cluster(kafka.bootstrap_servers)
    yield made
    made.admin.close()


Change = Callable[[DataFrame], DataFrame]


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


class Runs:
    """Streaming queries over one checkpoint into one Parquet table."""

    def __init__(self, spark: SparkSession, cluster: Cluster, directory: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._directory = directory

    def load(self, **options: str) -> DataFrame:
        """The stream; option names with ``_`` for ``.``, and the test's own topic and group."""
        reader = self._spark.readStream.format("kadence")
        given = {
            "kafka_bootstrap_servers": self._cluster.bootstrap_servers,
            "subscribe": self._cluster.topic,
            "startingOffsets": "earliest",
            **options,
        }
        return reader.options(**{name.replace("_", "."): text for name, text in given.items()}).load()

    def available_now(self, change: Change | None = None, /, **options: str) -> list[int]:
        """Run to the end; the rows of each batch that had an offset to write."""
        query = (
            (change or _as_it_is)(self.load(**options))
            .writeStream.format("parquet")
            .option("path", str(self._directory / "table"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [
            progress.numInputRows for progress in query.recentProgress if "addBatch" in progress.durationMs
        ]

    def values(self) -> list[int]:
        """What is in the table, sorted."""
        rows = self._spark.read.parquet(str(self._directory / "table")).select("value").collect()
        return sorted(int(row.value) for row in rows)


@pytest.fixture
def runs(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Runs:
    return Runs(spark, cluster, tmp_path)
