"""A task reads the topic that it was planned for, whatever has its name by now."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from tests.spark.conftest import Cluster
from tests.spark.source.memory import MemoryRecords

from kadence.spark.source.clients import executor_client
from kadence.spark.source.executor import Reading, read_ranges
from kadence.spark.source.loss import DataLossError
from kadence.spark.source.planning import OffsetRange
from kadence.spark.source.ports import RecordClient
from kadence.spark.source.same_topics import SameTopics
from kadence.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SCHEMA = pa.schema([("topic", pa.string()), ("offset", pa.int64())])


def log(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, b"x") for offset in offsets]


def read(client: RecordClient, *task: OffsetRange, fail: bool) -> list[tuple[str, int]]:
    reading = Reading(tuple(SCHEMA.names), fail_on_data_loss=fail)
    same = SameTopics(client, task, fail_on_data_loss=fail)
    seen: list[tuple[str, int]] = []
    for batch in read_ranges(task, same, reading, SCHEMA):
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
    with pytest.raises(DataLossError, match=r"'t' was deleted and made anew.* id old, .* id one"):
        read(memory(*ends), *task, fail=True)
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        assert read(memory(*ends), *task, fail=False) == [("u", offset) for offset in range(1, 9)]
        assert read(memory(*ends), *task[:2], fail=False) == []
    assert {record.getMessage().split(": ")[1] for record in caplog.records} == {
        "topic 't' was deleted and made anew"
    }


def test_a_task_without_ids_is_read_as_it_is() -> None:
    """Of a checkpoint of the JVM connector, or brokers that have no ids."""
    assert len(read(memory(10, 10), OffsetRange("t", 0, 2, 9), fail=True)) == 7


def test_a_real_topic_made_anew(cluster: Cluster) -> None:
    """The reader of a worker has read the old one, knows the new one as well, and is asked for the old one again."""
    cluster.create(1)
    cluster.produce(range(20))
    old = cluster.topic_id()
    client = executor_client({"bootstrap.servers": cluster.bootstrap_servers}, "test", ("topic", "offset"))
    try:
        assert len(read(client, OffsetRange(cluster.topic, 0, 0, 10, old), fail=True)) == 10
        client.park()
        cluster.admin.delete_topics([cluster.topic])
        cluster.create(1)
        cluster.produce(range(50))
        with pytest.raises(DataLossError, match=f"id {old}, .* id {cluster.topic_id()}"):
            read(client, OffsetRange(cluster.topic, 0, 10, 30, old), fail=True)
        assert read(client, OffsetRange(cluster.topic, 0, 10, 30, old), fail=False) == []
        client.park()
        assert len(read(client, OffsetRange(cluster.topic, 0, 0, 30, cluster.topic_id()), fail=True)) == 30
    finally:
        client.close()
