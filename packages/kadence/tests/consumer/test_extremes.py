"""Records above every limit, and fetches that bring nothing to hand out."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.consumer.support import Cluster, partitions, read
from tests.patience import PATIENCE

from kadence import Consumer, Producer, TopicPartition
from kadence.admin import Admin, NewTopic
from kadence.errors import RecordTooLargeError
from kadence_testing.kafka import Kafka

KIB, MIB = 1 << 10, 1 << 20


def roomy_topic(kafka: Kafka, name: str) -> str:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 2, configs={"max.message.bytes": str(16 * MIB)})])
    return name


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    """Real Kafka only: here it is the broker's behaviour that matters."""
    running = Cluster("kafka", kafka.bootstrap_servers)
    yield running
    for consumer in running.consumers:
        consumer.close(timeout=5)


@pytest.mark.parametrize(
    "settings",
    [
        {"fetch_max_bytes": 64 * KIB},
        {"max_partition_fetch_bytes": 1 * KIB},
        {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1},
        {"buffer_memory": 1 * MIB, "max_partition_fetch_bytes": 256 * KIB},
    ],
    ids=",".join,
)
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a3_a_record_above_a_limit_comes_all_the_same(
    kafka: Kafka, cluster: Cluster, settings: dict[str, int], compression: str
) -> None:
    """Small, 3 MiB, small, in each of two partitions: the limits say how much to prefetch, not what may be read."""
    topic = roomy_topic(kafka, cluster.name())
    sizes = [10, 3 * MIB, 20]
    with Producer(
        bootstrap_servers=kafka.bootstrap_servers, max_request_size=8 * MIB, compression_type=compression
    ) as producer:
        for size in sizes:
            for number in range(2):
                producer.send(topic, bytes(size), partition=number).result(PATIENCE)
    consumer = cluster.consumer(**settings)
    consumer.assign(partitions(topic, 2))
    found: dict[int, list[int]] = {0: [], 1: []}
    for record in read(consumer, 6):
        found[record.partition].append(len(record.value))
    assert found == {0: sizes, 1: sizes}


def test_a_batch_above_max_batch_bytes_is_refused_and_can_be_stepped_over(
    kafka: Kafka, cluster: Cluster
) -> None:
    topic = roomy_topic(kafka, cluster.name())
    with Producer(
        bootstrap_servers=kafka.bootstrap_servers, max_request_size=8 * MIB, compression_type="lz4"
    ) as producer:
        for value in (b"before", bytes(2 * MIB), b"after"):
            producer.send(topic, value, partition=0).result(PATIENCE)
    consumer = cluster.consumer(max_batch_bytes=1 * MIB)
    consumer.assign(partitions(topic, 1))
    assert [record.value for record in read(consumer, 1)] == [b"before"]
    for _ in range(2):
        with pytest.raises(RecordTooLargeError, match=r"offset 1.*seek to 2"):
            read(consumer, 1)
    consumer.seek(TopicPartition(topic, 0), 2)
    assert [record.value for record in read(consumer, 1)] == [b"after"]


# ---------------------------------------------------------------- transactions


class Transactions:
    """librdkafka's producer, one transaction at a time."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": cluster.name("tx"),
                "linger.ms": 0,
            }
        )
        self.producer.init_transactions(60)

    def begin(self, *values: bytes) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, partition=0)
        self.producer.flush(PATIENCE)

    def end(self, *, commit: bool) -> None:
        if commit:
            self.producer.commit_transaction(30)
        else:
            self.producer.abort_transaction(30)


@pytest.fixture
def transactions(cluster: Cluster) -> Transactions:
    return Transactions(cluster, cluster.topic(1))


def committed_only(cluster: Cluster, topic: str) -> Consumer:
    consumer = cluster.consumer(isolation_level="read_committed")
    consumer.assign(partitions(topic, 1))
    return consumer


def drained(consumer: Consumer, offset: int) -> list[bytes]:
    """Every value up to ``offset``; each poll that moves the position returns at once, with records or without."""
    partition = next(iter(consumer.assignment()))
    values: list[bytes] = []
    while consumer.position(partition) < offset:
        began = time.monotonic()
        values += [record.value for record in consumer.poll(60)]
        assert time.monotonic() - began < 30, "a poll waited for its timeout though the position had moved"
    return values


def test_a4_a_fetch_with_only_aborted_records_advances_and_returns(
    cluster: Cluster, transactions: Transactions
) -> None:
    transactions.begin(*(b"never" for _ in range(100)))
    transactions.end(commit=False)
    consumer = committed_only(cluster, transactions.topic)
    assert drained(consumer, 101) == []
    assert consumer.current_lag(TopicPartition(transactions.topic, 0)) == 0
    transactions.begin(b"at last")
    transactions.end(commit=True)
    assert drained(consumer, 103) == [b"at last"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a4_a_fetch_with_only_a_control_batch_advances_and_returns(
    cluster: Cluster, transactions: Transactions, isolation: str
) -> None:
    partition = TopicPartition(transactions.topic, 0)
    transactions.begin(b"one")
    transactions.end(commit=True)
    consumer = cluster.consumer(isolation_level=isolation)
    consumer.assign([partition])
    consumer.seek(partition, 1)
    assert drained(consumer, 2) == []
    assert consumer.current_lag(partition) == 0


def test_the_end_of_a_committed_reader_is_the_last_stable_offset(
    cluster: Cluster, transactions: Transactions
) -> None:
    partition = TopicPartition(transactions.topic, 0)
    transactions.begin(b"first")
    transactions.end(commit=True)
    transactions.begin(b"open", b"open")
    consumer = committed_only(cluster, transactions.topic)
    assert drained(consumer, 2) == [b"first"]
    assert not consumer.poll(0.5)
    assert consumer.end_offsets([partition]) == {partition: 2}
    assert consumer.current_lag(partition) == 0
    everything = cluster.consumer()
    everything.assign([partition])
    assert [record.value for record in read(everything, 3)] == [b"first", b"open", b"open"]
    assert everything.end_offsets([partition]) == {partition: 4}
    transactions.end(commit=True)
    assert drained(consumer, 5) == [b"open", b"open"]
