"""One Spark session for the room: starting one takes longer than most of its tests.

What interrupts a test in a call of Java, such as the end of its time, leaves the answer on the connection, and Py4J
gives it to the next call. So Spark ends with such a test, and the next one that asks for it gets another.
"""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from tests.patience import PATIENCE

from kadence import Admin, Broker, Producer, TopicPartition
from kadence.admin import NewTopic
from kadence_spark import session
from kadence_testing.kafka import NO_EXPIRY, Kafka

_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A test's query has a few rows: to compile it took a third of the room's time.

Files that start Spark themselves, make test-spark and make test-heavy (SPARK_CODEGEN=1) compile, as users' Spark does.
"""


def start(warehouse: Path) -> SparkSession:
    """Two cores, little memory, nothing written outside the test run's directory."""
    return session(
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
            **({} if os.environ.get("SPARK_CODEGEN") else _INTERPRETED),
            "spark.sql.warehouse.dir": str(warehouse),
        },
    )


class Shared:
    """The session that tests share, and its end."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._running: SparkSession | None = None

    def get(self) -> SparkSession:
        """The running one, or else a new one."""
        if self._running is None:
            self._running = self._start()
        return self._running

    def stop(self) -> None:
        """End it as a program does."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def kill(self) -> None:
        """End Java without a word to it, and have PySpark forget it, so that `get` starts another."""
        if self._running is None:
            return
        context, self._running = self._running.sparkContext, None
        context._gateway.proc.kill()  # type: ignore[union-attr]
        context._gateway.proc.wait(PATIENCE)  # type: ignore[union-attr]
        # Nobody is there any more for what this tells Java.
        with suppress(Exception):
            context.stop()
        SparkSession._instantiatedSession = None
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


_SHARED: Final = pytest.StashKey[Shared]()


@pytest.fixture(scope="session")
def _shared(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    shared = pytestconfig.stash[_SHARED] = Shared(lambda: start(tmp_path_factory.mktemp("warehouse")))
    yield shared
    shared.stop()


@pytest.fixture
def spark(_shared: Shared) -> SparkSession:
    """The session that tests share."""
    return _shared.get()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Before anything is torn down that may call Java: whether a test ran out of its time or was interrupted."""
    shared = item.config.stash.get(_SHARED, None)
    if shared is not None and call.excinfo is not None and was_cut_off(call.excinfo.value):
        shared.kill()


def was_cut_off(error: BaseException) -> bool:
    """Whether this came from outside of the test, in the middle of whatever it did."""
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, pytest.fail.Exception) and str(error).startswith("Timeout (>")
    )


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
    """It runs for minutes, and records of tests have old timestamps."""
    with Broker(config=NO_EXPIRY) as running:
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
