"""A broker that is down for a while in the middle of a query: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import IntegerType
from tests.patience import until
from tests.spark.conftest import Cluster, Runs

from kadence import Broker, Producer
from kadence_broker import Injected
from kadence_testing.kafka import Kafka

pytestmark = pytest.mark.shared_spark

PARTITIONS = 2
RECORDS = 2_000
SIZE = 10_000
"""Bytes of a value. What lies between the broker and a row that stops holds a small part of all of them."""

SMALL_BUFFERS = {
    "kafka_buffer_memory": "1048576",
    "kafka_max_partition_fetch_bytes": "262144",
    "kafka_reconnect_backoff_max_ms": "200",
}


@dataclass
class Outage:
    """A broker that the test can take away and give back."""

    bootstrap_servers: str
    begin: Callable[[], object]
    end: Callable[[], object]


@pytest.fixture(scope="module")
def node(kafka: Kafka) -> Iterator[Kafka]:
    """One of our own: the shared one serves other tests. ``kafka`` says whether there can be one."""
    # A controller takes a broker that it lost for alive for so long, and refuses it under its id.
    with Kafka({"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}) as running:
        yield running


@pytest.fixture
def outage(request: pytest.FixtureRequest) -> Iterator[Outage]:
    """Real Kafka is killed and started again; the embedded broker closes each connection that asks for anything."""
    if request.param == "kafka":
        node: Kafka = request.getfixturevalue("node")
        yield Outage(node.bootstrap_servers, node.halt, node.start)
        return
    with Broker() as broker:
        down: list[Injected] = []

        def end() -> None:
            down[0].wait(3)  # somebody has met it
            down[0].remove()

        yield Outage(broker.bootstrap_servers, lambda: down.append(broker.faults.disconnect(None)), end)


@pytest.fixture
def cluster(outage: Outage) -> Iterator[Cluster]:
    made = Cluster(outage.bootstrap_servers)
    made.create(PARTITIONS)
    filler = b"-" * SIZE
    with Producer(bootstrap_servers=outage.bootstrap_servers) as producer:
        for number in range(PARTITIONS * RECORDS):
            producer.send(made.topic, b"%d%s" % (number, filler), partition=number % PARTITIONS)
    yield made
    made.admin.close()


def held(frame: DataFrame, directory: Path) -> DataFrame:
    """The numbers. Each partition leaves a file at its first row, and stops there until there is a file ``go``."""

    @udf(IntegerType(), useArrow=False)
    def stop(partition: int, value: bytes) -> int:
        mark = directory / f"stopped-{partition}"
        if not mark.exists():
            mark.touch()
            while not (directory / "go").exists():
                time.sleep(0.02)
        return int(value.partition(b"-")[0])

    return frame.select(stop("partition", "value").alias("value"))


@pytest.mark.parametrize(
    ("outage", "way"),
    [
        ("embedded", "batch"),
        ("embedded", "stream"),
        ("kafka", "stream"),
        pytest.param("kafka", "batch", marks=pytest.mark.heavy),
    ],
    indirect=["outage"],
)
def test_each_row_once_although_the_broker_was_down_in_the_middle(
    outage: Outage, cluster: Cluster, spark: SparkSession, tmp_path: Path, way: str
) -> None:
    runs = Runs(spark, cluster, tmp_path)

    def batch() -> list[int]:
        options = {name.replace("_", "."): text for name, text in SMALL_BUFFERS.items()}
        reader = spark.read.format("kadence").options(**options).option("minPartitions", PARTITIONS)
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        rows = held(reader.option("subscribe", cluster.topic).load(), tmp_path).collect()
        return sorted(row.value for row in rows)

    def stream() -> list[int]:
        limits = {
            "minPartitions": str(PARTITIONS),
            "maxOffsetsPerTrigger": str(PARTITIONS * RECORDS * 3 // 4),
        }
        change = lambda frame: held(frame, tmp_path)  # noqa: E731
        group = {"kafka_group_id": cluster.group, "commitOffsets": "true"}
        batches = runs.available_now(change, **SMALL_BUFFERS, **limits, **group)
        assert len(batches) == 2
        return runs.values()

    with ThreadPoolExecutor(1) as thread:
        job = thread.submit({"batch": batch, "stream": stream}[way])

        def all_stopped() -> bool:
            assert not job.done(), job.result()
            return len(list(tmp_path.glob("stopped-*"))) == PARTITIONS

        try:
            until(all_stopped, what=lambda: list(tmp_path.iterdir()))
            outage.begin()
        finally:
            (tmp_path / "go").touch()
        assert not job.done()
        outage.end()
        assert job.result() == list(range(PARTITIONS * RECORDS))
    if way == "stream":
        assert cluster.committed() == cluster.ends() == dict.fromkeys(range(PARTITIONS), RECORDS)
