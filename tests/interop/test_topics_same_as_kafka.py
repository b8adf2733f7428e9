"""Topics: every field of the answers to what makes, grows, deletes and describes them, beside real Apache Kafka's."""

from __future__ import annotations

import pytest
from tests.broker.wire import at
from tests.interop.fields import UNKNOWN_ID, Scenario, Talk, assert_same

from kadence.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kadence.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kadence.protocol.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kadence.protocol.elect_leaders import ElectLeadersRequest, TopicPartitions
from kadence.protocol.fetch import FetchRequest, FetchTopic
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.records import encode_batch
from kadence_testing.kafka import Kafka


def creating(talk: Talk) -> None:
    def make(*topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> None:
        # Kafka gives an id also to a topic that is not made.
        without = ("topic_id",) if validate_only else ()
        request = CreateTopicsRequest(list(topics), 5_000, validate_only=validate_only)
        talk.ask(request, version, without=without)

    def new(
        count: int = 1,
        factor: int = 1,
        assigned: dict[int, list[int]] | None = None,
        name: str | None = None,
        **config: str | None,
    ) -> CreatableTopic:
        return CreatableTopic(
            talk.named("new") if name is None else name,
            count,
            factor,
            [CreatableReplicaAssignment(*each) for each in (assigned or {}).items()],
            [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()],
        )

    for version in range(2, 8):
        make(new(2), version=version)
        make(new(2), version=version, validate_only=True)
        make(new(0, name="a/b"), version=version)
    make()
    make(validate_only=True)
    for validate_only in (False, True):
        for odd in (
            new(-1, -1), new(-1, 1), new(1, -1), new(0), new(-2), new(1, 0), new(1, -2), new(1, 2), new(1, 32_767),
            new(10_001), new(name=""), new(name="."), new(name=".."), new(name="a b"), new(name="ä"),
            new(name="x" * 249, count=0), new(name="x" * 250),
            new(-1, -1, {0: [1]}), new(-1, -1, {0: [1], 1: [1]}), new(-1, -1, {1: [1]}), new(-1, -1, {0: [1], 2: [1]}),
            new(-1, -1, {0: [2]}), new(-1, -1, {0: [1, 1]}), new(-1, -1, {0: []}), new(-1, -1, {0: [-1]}),
            new(-1, -1, {-1: [1]}), new(1, 1, {0: [1]}), new(1, -1, {0: [1]}), new(-1, 1, {0: [1]}),
            new(retention_ms="5"), new(retention_ms=None), new(retention_ms=""), new(retention_ms=" 5 "),
            new(retention_ms="5.0"), new(retention_ms="-2"), new(retention_ms="9223372036854775808"), new(nonsense="1"),
            new(cleanup_policy=""), new(cleanup_policy="delete,delete"), new(cleanup_policy=" delete "),
            new(cleanup_policy="delete,"), new(cleanup_policy=","),
            new(cleanup_policy="shred"), new(preallocate="TRUE"), new(preallocate="yes"), new(preallocate=""),
            new(min_cleanable_dirty_ratio="0.25"), new(min_cleanable_dirty_ratio="2"),
            new(compression_type="ZSTD"), new(compression_type="none"), new(message_timestamp_type="logappendtime"),
            new(segment_bytes="1"), new(max_message_bytes="-1"), new(min_insync_replicas="0"),
            new(min_insync_replicas="2"), new(segment_ms="0"), new(remote_storage_enable="true"),
            new(local_retention_ms="5", retention_ms="3"), new(local_retention_bytes="5", retention_bytes="3"),
            new(follower_replication_throttled_replicas="x"), new(leader_replication_throttled_replicas="0:1"),
            new(min_compaction_lag_ms="9", max_compaction_lag_ms="3"), new(message_format_version="3.0"),
            new(message_downconversion_enable="true"), new(message_timestamp_difference_max_ms="5"),
        ):  # fmt: skip
            make(odd, validate_only=validate_only)
    twice = new()
    make(twice, twice)
    make(twice, new(0), twice)
    make(twice)
    make(twice)
    make(new(name=twice.name, count=0))
    make(new(name=twice.name, nonsense="1"), validate_only=True)
    # The two collide in names of metrics, where a dot is an underscore.
    name = talk.named("dots")
    make(new(name=f"{name}.a_b"))
    make(new(name=f"{name}.a.b"))
    make(new(name=f"{name}_a.b"), validate_only=True)
    double = new()
    double.configs = [CreatableTopicConfig("retention.ms", "5"), CreatableTopicConfig("retention.ms", "6")]
    make(double)
    again = new(-1, -1)
    again.assignments = [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(0, [1])]
    make(again)


def growing(talk: Talk) -> None:
    topic = talk.topic(2)
    talk.group()

    def grow(
        count: int, *assigned: list[int], name: str = topic, version: int = 3, validate_only: bool = False
    ) -> None:
        assignments = [CreatePartitionsAssignment(each) for each in assigned] or None
        asked = CreatePartitionsTopic(name, count, assignments)
        talk.ask(CreatePartitionsRequest([asked], 5_000, validate_only=validate_only), version)

    for validate_only in (True, False):
        for count in (-1, 0, 1, 2):
            grow(count, validate_only=validate_only)
        odd: list[list[list[int]]] = [[[1], [1]], [[9]], [[]], [[1, 1]], [[-1]], [[1, 2]]]
        for assigned in odd:
            grow(3, *assigned, validate_only=validate_only)
        grow(3, name="no-such-topic", validate_only=validate_only)
        grow(3, name="", validate_only=validate_only)
        grow(3, name="a/b", validate_only=validate_only)
    for version in range(4):
        grow(4, validate_only=True, version=version)
    grow(3, [1])
    talk.ask(CreatePartitionsRequest([], 5_000))
    asked = CreatePartitionsTopic(topic, 4, None)
    talk.ask(CreatePartitionsRequest([asked, asked, CreatePartitionsTopic("no-such-topic", 4, None)], 5_000))
    talk.ask(CreatePartitionsRequest([CreatePartitionsTopic(topic, 4, [])], 5_000))
    talk.ask(CreatePartitionsRequest([CreatePartitionsTopic("__consumer_offsets", 0, None)], 5_000))


def deleting(talk: Talk) -> None:
    def by_name(*names: str, version: int = 6) -> None:
        if version < 6:
            talk.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=5_000), version)
        else:
            talk.ask(DeleteTopicsRequest([DeleteTopicState(each) for each in names], timeout_ms=5_000))

    def states(*each: DeleteTopicState) -> None:
        talk.ask(DeleteTopicsRequest(list(each), timeout_ms=5_000))

    for version in range(1, 7):
        topic = talk.topic()
        by_name(topic, "no-such-topic", version=version)
        by_name(topic, version=version)
        by_name(version=version)
        by_name("", version=version)
        by_name("a/b", version=version)
        by_name("no-such-topic", "no-such-topic", version=version)
    topic = talk.topic(kind="kept")
    topic_id = talk.topic_id(topic)
    by_name(topic, topic)
    states(DeleteTopicState(None, UNKNOWN_ID))
    states(DeleteTopicState(None, UNKNOWN_ID), DeleteTopicState(None, UNKNOWN_ID))
    states(DeleteTopicState(topic, topic_id))
    states(DeleteTopicState("no-such-topic", UNKNOWN_ID))
    states(DeleteTopicState(None))
    states(DeleteTopicState(topic), DeleteTopicState(None, topic_id))
    states(DeleteTopicState(None, topic_id), DeleteTopicState(None, topic_id))
    states(DeleteTopicState(None, topic_id), DeleteTopicState("no-such-topic"))
    states(DeleteTopicState(None, topic_id))


def metadata(talk: Talk) -> None:
    topic = talk.topic(2)
    other = talk.topic(kind="other")

    def ask(version: int, *asked: MetadataRequestTopic, creates: bool = False, mine: bool = False) -> None:
        request = MetadataRequest(list(asked), allow_auto_topic_creation=creates)
        talk.ask(request, version, mine=mine)

    named = MetadataRequestTopic(name=topic)
    for version in range(14):
        if version >= 4:
            ask(version, named)
            ask(version, named, named)
            ask(version, MetadataRequestTopic(name="no-such-topic"))
            ask(version, MetadataRequestTopic(name="a/b"), MetadataRequestTopic(name=""))
            ask(version, MetadataRequestTopic(name=other), named, MetadataRequestTopic(name="no-such-topic"))
            ask(version, mine=True)
        else:
            talk.ask(MetadataRequest([named]), version)
            talk.ask(MetadataRequest([MetadataRequestTopic(name="a/b")]), version)
            talk.ask(MetadataRequest([]), version, mine=True)
        if version:
            talk.ask(MetadataRequest(None), version, mine=True)
    for version in (10, 11, 12, 13):
        by_id = MetadataRequestTopic(talk.topic_id(topic), None)
        ask(version, by_id)
        ask(version, MetadataRequestTopic(UNKNOWN_ID, None))
        ask(version, by_id, by_id)
        ask(version, by_id, MetadataRequestTopic(name=other))
        ask(version, MetadataRequestTopic(talk.topic_id(topic), other))
        ask(version, MetadataRequestTopic(UNKNOWN_ID, other))
        if version < 12:  # later Kafka fails with UNKNOWN_SERVER_ERROR
            ask(version, MetadataRequestTopic(name=None))
    ask(12, MetadataRequestTopic(name="x" * 249), MetadataRequestTopic(name="x" * 250))
    ask(12, MetadataRequestTopic(name="."), MetadataRequestTopic(name=".."))
    for version in (8, 9, 10, 12):
        for cluster in (True, False)[version > 10 :]:
            request = MetadataRequest([named], include_topic_authorized_operations=True)
            request.include_cluster_authorized_operations = cluster
            talk.ask(request, version)
    made = talk.named("made-by-asking")
    # Kafka says that it is unknown until it is made; we make it at once.
    talk.wire.call(MetadataRequest([MetadataRequestTopic(name=made)]), 12)
    talk.wait_for_leaders(made, 1)
    ask(12, MetadataRequestTopic(name=made), creates=True)
    ask(12, MetadataRequestTopic(name="a/b"), creates=True)


def pages(talk: Talk) -> None:
    a, b = talk.topic(3, "a"), talk.topic(2, "b")

    def ask(
        names: list[str], limit: int = 2_000, cursor: Cursor | None = None, *, mine: bool = False
    ) -> None:
        request = DescribeTopicPartitionsRequest([TopicRequest(each) for each in names], limit, cursor)
        talk.ask(request, mine=mine)

    ask([a, b])
    ask([b, a, a])
    ask([a, "no-such-topic"])
    ask(["no-such-topic"])
    for limit in (1, 2, 3, 4, 5, 0, -1, 2**31 - 1):
        ask([a, b], limit)
    for index in (0, 1, 2, 3, 4, -1):
        ask([a, b], 2_000, Cursor(a, index))
        ask([a, b], 1, Cursor(a, index))
    ask([a, b], 2_000, Cursor(b, 1))
    ask([a], 2_000, Cursor(b, 0))
    ask([b], 2_000, Cursor(a, 0))
    ask([b], 2_000, Cursor(a, 2))
    ask([a, b], 2_000, Cursor("", 0))
    ask([a, b], 2_000, Cursor("zzz", 0))
    ask([a, b], 2_000, Cursor("a/b", 0))
    ask([], 2_000, mine=True)


def clusters(talk: Talk) -> None:
    for version in range(3):
        for operations in (False, True):
            talk.ask(DescribeClusterRequest(operations), version)
    for kind in (0, 1, 2, 3, -1):
        talk.ask(DescribeClusterRequest(endpoint_type=kind), 1)
    for fenced in (False, True):
        talk.ask(DescribeClusterRequest(include_fenced_brokers=fenced), 2)


def elections(talk: Talk) -> None:
    topic = talk.topic(2)
    for version in range(3):
        for kind in (0, 1) if version else (0,):
            for asked in (
                [TopicPartitions(topic, [0, 1])],
                [TopicPartitions(topic, [0, 9, -1])],
                [TopicPartitions("no-such-topic", [0])],
                [TopicPartitions("", [0]), TopicPartitions("a/b", [0])],
                [TopicPartitions(topic, [])],
                [TopicPartitions(topic, [0, 0])],
                [],
                None,
            ):
                talk.ask(ElectLeadersRequest(kind, asked, 5_000), version, mine=True)
    talk.ask(ElectLeadersRequest(7, [TopicPartitions(topic, [0])], 5_000))
    talk.ask(ElectLeadersRequest(-1, [TopicPartitions(topic, [0])], 5_000))


_DISK = ("total_bytes", "usable_bytes")


def directories(talk: Talk) -> None:
    """In memory there is no disk, so its size is not told."""
    topic = talk.topic(2)
    talk.wire.produce(topic, [b"v"] * 3)
    for version in range(1, 5):
        talk.ask(DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0, 1])]), version, without=_DISK)
        talk.ask(DescribeLogDirsRequest(None), version, without=_DISK, mine=True)
    for asked in (
        [DescribableLogDirTopic(topic, [0, 9, -1])],
        [DescribableLogDirTopic(topic, [])],
        [DescribableLogDirTopic(topic, [0, 0])],
        [DescribableLogDirTopic(topic, [0]), DescribableLogDirTopic(topic, [1])],
        [DescribableLogDirTopic("no-such-topic", [0])],
        [],
    ):
        talk.ask(DescribeLogDirsRequest(asked), without=_DISK)


def deleting_records(talk: Talk) -> None:
    topic = talk.topic(2)
    talk.group()
    for _ in range(3):
        talk.wire.produce(topic, [b"v"] * 2)

    def delete(*partitions: tuple[int, int], name: str = topic, version: int = 2) -> None:
        asked = [DeleteRecordsPartition(*each) for each in partitions]
        talk.ask(DeleteRecordsRequest([DeleteRecordsTopic(name, asked)], 5_000), version)

    for version in range(3):
        delete((0, 1 + version), (1, 0), (9, 0), version=version)
    delete((0, 0))
    delete((0, 2))
    delete((0, 7))
    delete((0, -2))
    delete((0, 2**62))
    delete((1, -1))
    delete((0, 0), name="no-such-topic")
    delete((0, 0), name="a/b")
    delete((0, 0), name="")
    delete((0, 0), name="__consumer_offsets")
    delete((-1, 0))
    delete()
    talk.ask(DeleteRecordsRequest([], 5_000))
    delete((0, 4), (0, 5))
    delete((0, -1))
    delete((0, -1))
    delete((0, 5))
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, -1)])
    talk.ask(DeleteRecordsRequest([asked, asked], 5_000))


def made_again(talk: Talk) -> None:
    """A topic that is deleted, and another of its name: who knows the old one by its id hears that it is gone."""
    topic, group = talk.topic(2, "kept"), talk.group()
    old = talk.topic_id(topic)
    talk.wire.produce(topic, [b"v"])
    partition = OffsetCommitRequestPartition(0, 1)
    commit = OffsetCommitRequest(
        group, topics=[OffsetCommitRequestTopic(topic_id=old, partitions=[partition])]
    )
    talk.ask(commit)
    by_id = FetchTopic(topic_id=old, partitions=[at(0)])
    by_name = FetchTopic(topic=topic, partitions=[at(0)])
    opened = talk.ask(FetchRequest(session_epoch=0, topics=[by_id])).session_id
    named = talk.ask(FetchRequest(session_epoch=0, topics=[by_name]), 12).session_id
    talk.ask(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5_000))
    metadata_of = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    talk.until(lambda: talk.wire.call(metadata_of).topics[0].error_code != 0, "it is not gone")

    def look(epoch: int) -> None:
        talk.ask(MetadataRequest([MetadataRequestTopic(old, None)]))
        talk.ask(FetchRequest(session_epoch=-1, topics=[by_id]))
        talk.ask(FetchRequest(session_epoch=-1, topics=[by_name]), 12)
        talk.ask(FetchRequest(session_id=opened, session_epoch=epoch))
        talk.ask(FetchRequest(session_id=named, session_epoch=epoch), 12)
        data = [PartitionProduceData(0, encode_batch([(0, None, b"v", ())]))]
        talk.ask(ProduceRequest(None, -1, 5_000, [TopicProduceData(topic_id=old, partition_data=data)]))
        talk.ask(commit)
        asked = OffsetFetchRequestTopics(old, partition_indexes=[0])
        talk.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=[asked])]))
        talk.ask(DeleteTopicsRequest([DeleteTopicState(None, old)], timeout_ms=5_000))

    look(1)
    talk.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)], 5_000))
    talk.wait_for_leaders(topic, 1)
    look(2)


def internal_topics(talk: Talk) -> None:
    talk.group()
    name = "__consumer_offsets"
    named = MetadataRequest([MetadataRequestTopic(name=name)])
    talk.ask(named, without=("topic_id", "partitions"))
    pages_of = DescribeTopicPartitionsRequest([TopicRequest(name)], 1)
    talk.ask(pages_of, without=("topic_id", "partitions", "next_cursor"))
    data = [PartitionProduceData(0, encode_batch([(0, b"k", b"v", ())]))]
    for version in (3, 9, 12):
        request = ProduceRequest(None, -1, 5_000, [TopicProduceData(name=name, partition_data=data)])
        talk.ask(request, version, without=("error_message",))
    talk.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5_000))
    talk.ask(DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)])], 5_000))
    talk.ask(ElectLeadersRequest(0, [TopicPartitions(name, [0])], 5_000))


def made_by_asking(talk: Talk) -> None:
    """Names that no topic can be made of, and one that collides with a topic's."""
    name = talk.topic(kind="a.b")
    for version in (1, 3, 4, 8, 12, 13):
        for odd in ("", "a/b", ".", "x" * 250, name.replace(".", "_")):
            talk.ask(MetadataRequest([MetadataRequestTopic(name=odd)]), version)


SCENARIOS: list[Scenario] = [
    creating, growing, deleting, metadata, pages, clusters, elections, directories, deleting_records,
    made_again, internal_topics, made_by_asking,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_field_is_as_kafkas(kafka: Kafka, scenario: Scenario) -> None:
    assert_same(kafka, scenario)
