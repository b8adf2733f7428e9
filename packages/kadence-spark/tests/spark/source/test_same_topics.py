"""A task reads the topic that it was planned for, whatever has its name by now."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.spark.conftest import Cluster
from tests.spark.source.memory import MemoryRecords

from kadence import Broker, NewTopic, Producer
from kadence.protocol.metadata import MetadataRequest
from kadence.types import TopicPartition
from kadence_spark.source.clients import ConsumerRecords, executor_client
from kadence_spark.source.executor import ReadSettings, read_ranges
from kadence_spark.source.loss import DataLossError
from kadence_spark.source.planning import OffsetRange
from kadence_spark.source.ports import RecordClient
from kadence_spark.source.same_topics import SameTopics

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SCHEMA = pa.schema([("topic", pa.string()), ("offset", pa.int64())])
WITH_VALUES = SCHEMA.append(pa.field("value", pa.binary()))


def log(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, b"x") for offset in offsets]


def read(
    client: RecordClient, *task: OffsetRange, fail: bool, schema: pa.Schema = SCHEMA
) -> list[tuple[str, int]]:
    reading = ReadSettings(tuple(schema.names), fail_on_data_loss=fail)
    same = SameTopics(client, task, fail_on_data_loss=fail)
    seen: list[tuple[str, int]] = []
    for batch in read_ranges(task, same, reading, schema):
        seen += zip(batch["topic"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return seen


def memory(t0: int, t1: int) -> MemoryRecords:
    return MemoryRecords(
        {T0: log(*range(t0)), T1: log(*range(t1)), U0: log(*range(10))},
        at_once=4,
        ids={"t": "one", "u": "two"},
        columns=("topic", "offset"),
    )


def test_the_same_topics_are_looked_at_once() -> None:
    client = memory(10, 10)
    task = (OffsetRange("t", 0, 2, 9, "one"), OffsetRange("u", 0, 0, 9, "two"))
    assert len(read(client, *task, fail=True)) == 16
    assert len(client.started) == 1


@pytest.mark.parametrize("ends", [(50, 50), (3, 3), (3, 50)], ids=["longer", "shorter", "both"])
def test_a_topic_made_anew_since_the_batch_was_planned(
    ends: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    task = (
        OffsetRange("t", 0, 5, 9, "old"),
        OffsetRange("t", 1, 5, 9, "old"),
        OffsetRange("u", 0, 1, 9, "two"),
    )
    with pytest.raises(DataLossError, match=r"'t' was deleted and recreated.* id old, .* id one"):
        read(memory(*ends), *task, fail=True)
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        assert read(memory(*ends), *task, fail=False) == [("u", offset) for offset in range(1, 9)]
        assert read(memory(*ends), *task[:2], fail=False) == []
    assert {record.getMessage().split(": ")[1] for record in caplog.records} == {
        "topic 't' was deleted and recreated"
    }


def test_a_task_without_ids_is_read_as_it_is() -> None:
    """Of a checkpoint of the JVM connector, or brokers that have no ids."""
    assert len(read(memory(10, 10), OffsetRange("t", 0, 2, 9), fail=True)) == 7


@pytest.fixture
def worker(cluster: Cluster) -> Iterator[ConsumerRecords]:
    """The reader that a worker keeps from task to task."""
    columns = tuple(WITH_VALUES.names)
    made = executor_client({"bootstrap.servers": cluster.bootstrap_servers}, "test-worker", columns)
    yield made
    made.close()


def task_of(
    worker: ConsumerRecords, cluster: Cluster, start: int, end: int, topic_id: str, *, fail: bool = True
) -> list[int]:
    """The values of one task's records."""
    task = (OffsetRange(cluster.topic, 0, start, end, topic_id),)
    same = SameTopics(worker, task, fail_on_data_loss=fail)
    batches = list(
        read_ranges(task, same, ReadSettings(tuple(WITH_VALUES.names), fail_on_data_loss=fail), WITH_VALUES)
    )
    worker.park()
    return [int(value) for batch in batches for value in batch["value"].to_pylist()]


def test_a_worker_that_knows_the_old_topic_is_asked_for_it_again(
    cluster: Cluster, worker: ConsumerRecords
) -> None:
    cluster.create(1)
    cluster.produce(range(20))
    old = cluster.topic_id()
    assert task_of(worker, cluster, 0, 10, old) == list(range(10))
    cluster.admin.delete_topics([cluster.topic])
    cluster.create(1)
    cluster.produce(range(100, 150))
    with pytest.raises(DataLossError, match=f"id {old}, .* id {cluster.topic_id()}"):
        task_of(worker, cluster, 5, 30, old)
    assert task_of(worker, cluster, 5, 30, old, fail=False) == []
    assert task_of(worker, cluster, 0, 30, cluster.topic_id()) == list(range(100, 130))


def test_what_a_worker_kept_of_the_old_topic_is_not_given_for_the_new_one(
    cluster: Cluster, worker: ConsumerRecords
) -> None:
    """Its next task goes on at the offset where the last one ended, and it has fetched beyond that."""
    cluster.create(1)
    cluster.produce(range(20))
    assert task_of(worker, cluster, 0, 10, cluster.topic_id()) == list(range(10))
    cluster.admin.delete_topics([cluster.topic])
    cluster.create(1)
    cluster.produce(range(100, 150))
    # The first batch of the new topic went to another worker.
    assert task_of(worker, cluster, 10, 20, cluster.topic_id()) == list(range(110, 120))


def test_tasks_that_go_on_with_what_is_at_hand_ask_nobody(
    embedded: Broker, cluster: Cluster, worker: ConsumerRecords
) -> None:
    cluster.create(1)
    cluster.produce(range(20))
    topic_id = cluster.topic_id()
    assert task_of(worker, cluster, 0, 5, topic_id) == list(range(5))
    with embedded.faults.observe(
        MetadataRequest, where=lambda call: call.client_id == "test-worker"
    ) as asked:
        assert task_of(worker, cluster, 5, 10, topic_id) == list(range(5, 10))
        assert task_of(worker, cluster, 10, 20, topic_id) == list(range(10, 20))
        assert asked.hits == 0


def two_topics(cluster: Cluster, other: str) -> tuple[OffsetRange, ...]:
    """What a task reads of two topics of ten records."""
    topics = (cluster.topic, other)
    cluster.admin.create_topics([NewTopic(topic, 1) for topic in topics])
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for topic in topics:
            for value in range(10):
                producer.send(topic, b"%d" % value)
    described = cluster.admin.describe_topics(topics)
    ids = {t: base64.urlsafe_b64encode(described[t].topic_id).decode().rstrip("=") for t in topics}
    return tuple(OffsetRange(topic, 0, 2, 10, ids[topic]) for topic in topics)


def test_a_topic_deleted_since_the_batch_was_planned(caplog: pytest.LogCaptureFixture) -> None:
    client = memory(10, 10)
    del client.logs[T0], client.logs[T1]
    task = (
        OffsetRange("t", 0, 5, 9, "one"),
        OffsetRange("t", 1, 5, 9, "one"),
        OffsetRange("u", 0, 1, 9, "two"),
    )
    with pytest.raises(DataLossError, match="do not exist any more: t-0, t-1"):
        read(client, *task, fail=True)
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        assert read(client, *task, fail=False) == [("u", offset) for offset in range(1, 9)]
        assert read(client, *task[:2], fail=False) == []
    assert "do not exist any more: t-0, t-1" in caplog.text


def test_a_worker_finds_that_a_topic_was_deleted(
    cluster: Cluster, worker: ConsumerRecords, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before kafkaConsumer.pollTimeoutMs, and with a client that has read the topic."""
    other = f"{cluster.topic}-other"
    task = two_topics(cluster, other)
    assert len(read(worker, *task, fail=True, schema=WITH_VALUES)) == 16
    worker.park()
    cluster.admin.delete_topics([cluster.topic])
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        assert read(worker, *task, fail=False, schema=WITH_VALUES) == [(other, n) for n in range(2, 10)]
    assert f"do not exist any more: {cluster.topic}-0" in caplog.text
    with pytest.raises(DataLossError, match=f"do not exist any more: {cluster.topic}-0"):
        read(worker, *task, fail=True, schema=WITH_VALUES)
