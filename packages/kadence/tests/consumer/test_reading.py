"""Records out of a cluster: completeness, order, caps, positions."""

from __future__ import annotations

import pytest
from tests.consumer.support import Cluster, numbers, partitions, read
from tests.patience import PATIENCE

from kadence import OffsetAndMetadata, TopicPartition
from kadence.errors import (
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kadence.records import arrow

pytestmark = [pytest.mark.needs("reading"), pytest.mark.brokers("virtual", "kafka", "mock")]


@pytest.mark.needs("groups")
def test_a_group_reads_everything_once_and_in_order(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 1000)
    consumer = cluster.consumer(group_id=cluster.name("g"))
    consumer.subscribe(topic)
    records = read(consumer, 1000)
    assert sorted(numbers(records)) == list(range(1000))
    for partition in range(4):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(250))
    assert {record.key for record in records} == {b"key"}
    assert all(record.topic == topic and record.timestamp > 0 and record.headers == () for record in records)


@pytest.mark.needs("groups")
def test_the_next_member_goes_on_where_the_group_committed(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 100)
    first = cluster.consumer(group_id=group, enable_auto_commit=False)
    first.subscribe(topic)
    read(first, 100)
    first.commit()
    committed = first.committed(partitions(topic))
    assert [at.offset for at in committed.values() if at is not None] == [25] * 4
    first.close()
    cluster.produce(topic, 20, start=100)
    second = cluster.consumer(group_id=group)
    second.subscribe(topic)
    assert sorted(numbers(read(second, 20))) == list(range(100, 120))


def test_a1_poll_returns_no_more_than_its_cap_and_fetches_nothing_twice(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 400)
    consumer = cluster.consumer(max_poll_records=7)
    consumer.assign(partitions(topic))
    seen: list[int] = []
    while len(seen) < 300:
        records = consumer.poll(PATIENCE)
        assert 1 <= len(records) <= 7
        seen.extend(numbers(records))
    records = consumer.poll(PATIENCE, max_records=-1)
    assert len(records) > 7
    seen.extend(numbers(records))
    seen.extend(numbers(read(consumer, 400 - len(seen))) if len(seen) < 400 else [])
    assert sorted(seen) == list(range(400))


def test_a4_positions_follow_what_was_returned(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 40, partitions=1)
    consumer = cluster.consumer(max_poll_records=10)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.position(partition) == 0
    assert len(consumer.poll(PATIENCE)) == 10
    assert consumer.position(partition) == 10
    assert consumer.current_lag(partition) == 30


def test_seek_drops_what_was_fetched_for_the_old_position(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 40, partitions=1)
    consumer = cluster.consumer(max_poll_records=5)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert numbers(consumer.poll(PATIENCE)) == [0, 1, 2, 3, 4]
    consumer.seek(partition, 30)
    assert consumer.position(partition) == 30
    assert numbers(consumer.poll(PATIENCE))[0] == 30
    consumer.seek_to_beginning([partition])
    assert numbers(consumer.poll(PATIENCE))[0] == 0
    consumer.seek(partition, OffsetAndMetadata(7))
    assert numbers(consumer.poll(PATIENCE))[0] == 7
    consumer.seek_to_end()
    assert consumer.position(partition) == 40


def test_assign_and_seek_need_no_reset_policy(cluster: Cluster) -> None:
    """That there is no offset to start at is found out between the two, and is void after the second."""
    topic = cluster.topic()
    cluster.produce(topic, 40)
    consumer = cluster.consumer(auto_offset_reset="none")
    for offset in (3, 9):  # the second time with positions that were left
        consumer.assign(partitions(topic))
        for partition in partitions(topic):
            consumer.seek(partition, offset)
        assert {record.offset for record in read(consumer, 4 * (10 - offset))} == set(range(offset, 10))
        consumer.unsubscribe()
    first = partitions(topic)[0]
    consumer.assign([first])
    with pytest.raises(NoOffsetForPartitionError):
        consumer.poll(PATIENCE)
    consumer.seek(first, 999)
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(PATIENCE)


def test_paused_partitions_return_nothing_and_keep_what_is_buffered(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 40, partitions=2)
    consumer = cluster.consumer(max_poll_records=5)
    first, second = partitions(topic, 2)
    consumer.assign([first, second])
    early = read(consumer, 10)
    consumer.pause([first])
    assert consumer.paused() == {first}
    left = 20 - sum(record.partition == 1 for record in early)
    assert {record.partition for record in read(consumer, left)} <= {1}
    assert not consumer.poll(0.2)
    consumer.resume([first])
    assert {record.partition for record in read(consumer, 30 - left)} == {0}


def test_offsets_of_a_partition(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 40)
    consumer = cluster.consumer()
    wanted = partitions(topic)
    assert set(consumer.beginning_offsets(wanted).values()) == {0}
    assert set(consumer.end_offsets(wanted).values()) == {10}
    assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1, 2, 3]
    assert topic in consumer.list_topics()


def test_poll_arrow_has_what_poll_has(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 100)
    consumer = cluster.consumer(max_poll_records=30)
    consumer.assign(partitions(topic))
    rows: list[dict[str, object]] = []
    while len(rows) < 100:
        table = consumer.poll_arrow(PATIENCE)
        assert table.num_rows <= 30
        rows.extend(table.to_pylist())
    assert sorted(int(row["value"]) for row in rows) == list(range(100))  # type: ignore[call-overload]
    assert {row["topic"] for row in rows} == {topic}
    consumer.seek_to_beginning()
    records = sorted(read(consumer, 100), key=lambda record: (record.partition, record.offset))
    by_place = sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    assert [row["value"] for row in by_place] == [record.value for record in records]


def test_poll_arrow_makes_the_columns_that_are_named(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer()
    partition = TopicPartition(topic, 0)
    consumer.assign({partition: 0})
    for number, columns in enumerate((["offset"], ("value", "topic"), ["timestamp", "headers", "key"])):
        table = consumer.poll_arrow(PATIENCE, max_records=3, columns=columns)
        assert table.column_names == list(columns)
        assert consumer.position(partition) == 3 * number + table.num_rows == 3 * number + 3
        assert table.schema.equals(arrow.schema(tuple(columns)))
    for wrong, message in (([], "empty"), (["keys"], "no column 'keys'"), (["key", "key"], "twice")):
        with pytest.raises(ValueError, match=message):
            consumer.poll_arrow(columns=wrong)
    with pytest.raises(ValueError, match="name 'headers' in columns"):
        consumer.poll_arrow(headers=True, columns=["key"])
    with pytest.raises(TypeError, match="a list of names"):
        consumer.poll_arrow(columns="key")
    assert consumer.position(partition) == 9


@pytest.mark.needs("groups")
def test_iteration_is_a_poll_of_one(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 10, partitions=1)
    partition = TopicPartition(topic, 0)
    with cluster.consumer(group_id=group) as consumer:
        consumer.assign([partition])
        for record in consumer:
            if record.offset == 4:
                break
        assert consumer.position(partition) == 5
    with cluster.consumer(group_id=group) as after:
        assert after.committed([partition]) == {partition: OffsetAndMetadata(5, leader_epoch=0)}


@pytest.mark.needs("strict topics")
def test_a_partition_that_does_not_exist_is_one_clear_error(cluster: Cluster) -> None:
    consumer = cluster.consumer()
    consumer.assign([TopicPartition("no-such-topic", 0)])
    with pytest.raises(UnknownTopicOrPartitionError) as error:
        read(consumer, 1)
    assert "no-such-topic-0 does not exist on the cluster at" in str(error.value)
    assert consumer.partitions_for("no-such-topic") == []


def test_what_is_not_assigned_is_refused(cluster: Cluster) -> None:
    consumer = cluster.consumer()
    with pytest.raises(IllegalStateError, match="call subscribe"):
        consumer.poll(0)
    with pytest.raises(IllegalStateError, match="t-9 is not assigned"):
        consumer.seek(TopicPartition("t", 9), 0)
