"""Metadata, topics, configuration, cluster, offsets by time, epochs: over the wire, in all versions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.wire import Wire

from kadence.protocol import error_codes as codes
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
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker
from kadence_broker.cluster import coordinator_partition, is_valid_topic_name
from kadence_broker.handlers import HANDLERS, k03_metadata


@pytest.mark.parametrize("api_key", sorted(HANDLERS))
def test_an_empty_request_is_answered_in_every_version(wire: Wire, api_key: int) -> None:
    request = HANDLERS[api_key].request
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
        wire.call(ProduceRequest(acks=1) if request is ProduceRequest else request(), version)


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics(wire: Wire, version: int) -> None:
    answer = wire.call(MetadataRequest(topics=None if version else []), version)
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [("t", 2)]
    (node,) = answer.brokers
    assert (node.node_id, node.host) == (1, "127.0.0.1")
    if version >= 1:
        assert wire.call(MetadataRequest(topics=[]), version).topics == []


def named(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=each) for each in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def test_a_topic_is_created_when_someone_asks_for_it(broker: Broker, wire: Wire) -> None:
    (topic,) = wire.call(named("new")).topics
    assert (topic.error_code, len(topic.partitions)) == (codes.NONE, 1)
    (other,) = wire.call(named("other", create=False)).topics
    assert other.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    (bad,) = wire.call(named("a/b")).topics
    assert bad.error_code == codes.INVALID_TOPIC_EXCEPTION
    assert broker.offsets("new") == [(0, 0)]


def test_no_topic_is_created_where_that_is_turned_off() -> None:
    with Broker(config={"auto.create.topics.enable": False}) as broker, Wire(broker) as wire:
        assert wire.call(named("new")).topics[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_by_topic_id(wire: Wire) -> None:
    ids = [wire.topic_id("t"), b"?" * 16]
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=each) for each in ids])
    known, unknown = wire.call(request, 12).topics
    assert (known.name, known.error_code) == ("t", codes.NONE)
    assert (unknown.name, unknown.error_code) == (None, codes.UNKNOWN_TOPIC_ID)


def test_topic_names() -> None:
    assert is_valid_topic_name("A.b_c-9" * 30)
    for name in ("", ".", "..", "a b", "ü", "x" * 250, "a\n"):
        assert not is_valid_topic_name(name)


# Topics


def create(wire: Wire, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    return wire.call(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version).topics


def topic(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()
        ],
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_and_deleted(broker: Broker, wire: Wire, version: int) -> None:
    (made,) = create(wire, topic("new", 3), version=version)
    assert made.error_code == codes.NONE
    assert len(broker.offsets("new")) == 3
    version = min(version, 6)
    request = (
        DeleteTopicsRequest(topic_names=["new", "none"])
        if version < 6
        else DeleteTopicsRequest(topics=[DeleteTopicState(name="new"), DeleteTopicState(name="none")])
    )
    gone = wire.call(request, version).responses
    assert [each.error_code for each in gone] == [codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION]


def test_topics_are_deleted_by_id(wire: Wire) -> None:
    ids = [wire.topic_id("t"), b"?" * 16]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=each) for each in ids])
    known, unknown = wire.call(request, 6).responses
    assert (known.name, known.error_code) == ("t", codes.NONE)
    assert unknown.error_code == codes.UNKNOWN_TOPIC_ID


def test_what_a_new_topic_may_not_be(wire: Wire) -> None:
    answers = create(
        wire,
        topic("t"), topic("a/b"), topic("zero", 0), topic("replicas", 1, 5), topic("fine", -1, -1),
        topic("twice"), topic("twice"), topic("config", max_message_byte="3"), topic("number", retention_ms="long"),
    )  # fmt: skip
    assert [codes.name(each.error_code) for each in answers] == [
        "TOPIC_ALREADY_EXISTS", "INVALID_TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "NONE",
        "INVALID_REQUEST", "INVALID_CONFIG", "INVALID_CONFIG",
    ]  # fmt: skip
    assert "Did you mean max.message.bytes?" in answers[6].error_message


def test_validation_creates_nothing(wire: Wire) -> None:
    (answer,) = create(wire, topic("dry", 2), validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (codes.NONE, 2)
    assert [each.name for each in wire.call(MetadataRequest(topics=None)).topics] == ["t"]


def test_partitions_may_be_assigned_to_nodes() -> None:
    with Broker(nodes=2) as broker, Wire(broker) as wire:
        assigned = CreatableTopic(
            name="new",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=n, broker_ids=[2]) for n in range(3)],
        )
        assert create(wire, assigned)[0].error_code == codes.NONE
        leaders = [each.leader_id for each in wire.call(named("new")).topics[0].partitions]
        assert leaders == [2, 2, 2]
        assigned.name = "wrong"
        assigned.assignments[0].broker_ids = [9]
        assert create(wire, assigned)[0].error_code == codes.INVALID_REPLICA_ASSIGNMENT
        assigned.assignments[0].broker_ids = []
        assert create(wire, assigned)[0].error_code == codes.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(broker: Broker, wire: Wire, version: int) -> None:
    def grow(count: int, name: str = "t", **options: Any) -> int:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, **{"assignments": None, **options})]
        )
        return int(wire.call(request, version).results[0].error_code)

    assert grow(2) == codes.INVALID_PARTITIONS
    assert grow(3, "none") == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        grow(4, assignments=[CreatePartitionsAssignment(broker_ids=[1])]) == codes.INVALID_REPLICA_ASSIGNMENT
    )
    assert grow(2**31 - 1) == codes.POLICY_VIOLATION
    assert grow(4) == codes.NONE
    assert len(broker.offsets("t")) == 4


@pytest.mark.parametrize("version", range(1, 5))
def test_configuration_of_topics_and_brokers(wire: Wire, version: int) -> None:
    create(wire, topic("configured", retention_ms="5"))
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="configured", configuration_keys=None),
        DescribeConfigsResource(resource_type=2, resource_name="none"),
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["num.partitions"]),
        DescribeConfigsResource(resource_type=4, resource_name="7"),
        DescribeConfigsResource(resource_type=8, resource_name="1"),
    ]
    results = wire.call(DescribeConfigsRequest(resources=resources), version).results
    assert [codes.name(each.error_code) for each in results] == [
        "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "NONE", "INVALID_REQUEST", "INVALID_REQUEST",
    ]  # fmt: skip
    values = {each.name: each.value for each in results[0].configs}
    assert values["retention.ms"] == "5"
    assert [(each.name, each.value) for each in results[2].configs] == [("num.partitions", "1")]


@pytest.mark.parametrize(
    ("partitions", "settings", "error"),
    [
        # As Kafka 4.4.0 answered: it counts the topic, its partitions and its settings, 10,000 together.
        (10_001, 0, "POLICY_VIOLATION"),
        (10_000, 0, "POLICY_VIOLATION"),
        (9_999, 0, "NONE"),
        (9_999, 1, "POLICY_VIOLATION"),
        (9_998, 1, "NONE"),
        (9_998, 3, "POLICY_VIOLATION"),
    ],
)
def test_a_request_counts_topics_partitions_and_settings(
    wire: Wire, partitions: int, settings: int, error: str
) -> None:
    config: dict[str, Any] = dict(
        list({"retention_ms": "1", "segment_ms": "1", "flush_ms": "1"}.items())[:settings]
    )
    (made,) = create(wire, topic("vast", partitions, **config), validate_only=True)
    assert codes.name(made.error_code) == error
    if partitions == 9_998 and settings == 3:
        assert made.error_message.endswith("these are 10002.")


@pytest.mark.parametrize(
    ("other", "error"),
    [
        # As Kafka 4.3.1 answered.
        (topic("t"), "TOPIC_ALREADY_EXISTS"),
        (topic("bad name"), "INVALID_TOPIC_EXCEPTION"),
        (topic("zero", 0), "INVALID_PARTITIONS"),
        (topic("wrong", retention_ms="x"), "INVALID_CONFIG"),
    ],
)
def test_topics_that_are_not_made_do_not_count(wire: Wire, other: CreatableTopic, error: str) -> None:
    answers = create(wire, other, topic("vast", 9_999), validate_only=True)
    told = {each.name: codes.name(each.error_code) for each in answers}
    assert told == {other.name: error, "vast": "NONE"}


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_request_that_asks_for_too_many_partitions_in_all_makes_none(
    broker: Broker, wire: Wire, validate_only: bool
) -> None:
    def codes_of(answers: Any) -> set[str]:
        return {codes.name(each.error_code) for each in answers}

    many = [topic(f"many-{number}", 999) for number in range(10)]
    answers = create(wire, *many, topic("more", -1, -1), validate_only=validate_only)
    assert codes_of(answers) == {"POLICY_VIOLATION"}
    assert codes_of(create(wire, topic("vast", 2**31 - 1))) == {"POLICY_VIOLATION"}
    create(wire, topic("a"), topic("b"))
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=5_002, assignments=None) for name in ("a", "b")],
        timeout_ms=1_000,
        validate_only=validate_only,
    )
    assert codes_of(wire.call(grown, 3).results) == {"POLICY_VIOLATION"}
    assert {each.name: len(each.partitions) for each in wire.call(MetadataRequest(topics=None)).topics} == {
        "t": 2,
        "a": 1,
        "b": 1,
    }
    assert codes_of(create(wire, *many, topic("zero", 0), validate_only=True)) == {
        "NONE",
        "INVALID_PARTITIONS",
    }


def test_metadata_makes_so_many_topics_at_a_time(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k03_metadata, "_MOST_CREATED", 3)
    asked = [MetadataRequestTopic(name=f"new-{number}") for number in range(5)]

    def found() -> list[int]:
        return [each.error_code for each in wire.call(MetadataRequest(topics=asked)).topics]

    assert found() == [codes.NONE] * 3 + [codes.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert found() == [codes.NONE] * 5


def test_pages_of_topics(wire: Wire) -> None:
    create(wire, topic("a", 3), topic("b", 2))

    def page(
        limit: int, cursor: Cursor | None = None, *names: str
    ) -> tuple[list[tuple[str, list[int]]], Any]:
        answer = wire.call(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
        )
        found = [(each.name, [p.partition_index for p in each.partitions]) for each in answer.topics]
        return found, answer.next_cursor

    assert page(100) == ([("a", [0, 1, 2]), ("b", [0, 1]), ("t", [0, 1])], None)
    first, cursor = page(2)
    assert (first, cursor.topic_name, cursor.partition_index) == ([("a", [0, 1])], "a", 2)
    second, cursor = page(2, cursor)
    assert (second, cursor.topic_name, cursor.partition_index) == ([("a", [2]), ("b", [0])], "b", 1)
    third, cursor = page(1, cursor)
    assert (third, cursor.topic_name, cursor.partition_index) == ([("b", [1])], "t", 0)
    assert page(100, None, "none", "b") == ([("b", [0, 1]), ("none", [])], None)


def test_only_broker_endpoints_are_described(wire: Wire) -> None:
    answer = wire.call(DescribeClusterRequest(endpoint_type=3), 1)
    assert answer.error_code == codes.UNSUPPORTED_ENDPOINT_TYPE


# Coordinators


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found(wire: Wire, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    if version < 4:
        request.coordinator_keys = []
    else:
        request.key = ""
    answer = wire.call(request, version)
    for each in [answer] if version < 4 else answer.coordinators:
        assert (each.error_code, each.node_id, each.host) == (codes.NONE, 1, "127.0.0.1")


def test_there_are_coordinators_of_groups_and_transactions_only(wire: Wire) -> None:
    found = {
        key_type: wire.call(
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 6
        ).coordinators[0]
        for key_type in (0, 1, 2)
    }
    assert [each.error_code for each in found.values()] == [codes.NONE, codes.NONE, codes.INVALID_REQUEST]
    assert found[0].node_id == found[1].node_id == 1


def test_a_group_is_coordinated_where_java_would_have_it() -> None:
    """Values of `Utils.abs("...".hashCode()) % 50`, computed by hand for these strings."""
    assert coordinator_partition("") == 0
    assert coordinator_partition("a") == 97 % 50
    assert coordinator_partition("hello") == 99162322 % 50
    assert coordinator_partition("polygenelubricants") == 0, "its hash is the smallest int32"
    assert coordinator_partition("\U0001f600") == (31 * 0xD83D + 0xDE00) % 50


# Offsets by time, and epochs


def list_offsets(wire: Wire, timestamp: int, version: int = 11, partition: int = 0, epoch: int = -1) -> Any:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    return wire.call(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_listed_by_place_and_time(broker: Broker, wire: Wire, version: int) -> None:
    for timestamp in (100, 300, 200):
        wire.produce("t", [b"x"], timestamp=timestamp)
    broker.delete_records("t", 0, 1)
    epoch = 0 if version >= 4 else -1
    expected = {-1: (3, -1), -2: (1, -1), -3: (1, 300), 150: (1, 300), 300: (1, 300), 301: (-1, -1)}
    if version < 7:
        del expected[-3]
        assert list_offsets(wire, -3, version).error_code == codes.UNSUPPORTED_VERSION
    for timestamp, (offset, found_at) in expected.items():
        answer = list_offsets(wire, timestamp, version)
        assert (answer.error_code, answer.offset, answer.timestamp) == (codes.NONE, offset, found_at), (
            timestamp
        )
        assert answer.leader_epoch == (epoch if offset >= 0 else -1)


def test_offsets_in_the_middle_of_a_compressed_batch(wire: Wire) -> None:
    from kadence.records import encode_batch

    batch = encode_batch([(t, None, b"x", ()) for t in (10, 20, 30, 25)], compression="gzip")
    wire.produce_bytes("t", batch)
    assert [list_offsets(wire, t).offset for t in (0, 11, 20, 21, 26, -3)] == [0, 1, 1, 2, 2, 2]


def test_errors_of_listed_offsets(broker: Broker, wire: Wire) -> None:
    assert list_offsets(wire, -1, partition=9).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    broker.move_leader("t", 0, 1)
    assert list_offsets(wire, -1, epoch=0).error_code == codes.FENCED_LEADER_EPOCH
    assert list_offsets(wire, -1, epoch=5).error_code == codes.UNKNOWN_LEADER_EPOCH
    assert list_offsets(wire, -9).error_code == codes.UNSUPPORTED_VERSION
    assert list_offsets(wire, -5).offset == -1
    assert [list_offsets(wire, -3).offset, list_offsets(wire, 0).offset] == [-1, -1]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_kip_320_the_end_of_an_epoch(broker: Broker, wire: Wire, version: int) -> None:
    wire.produce("t", [b"a", b"b"])
    broker.move_leader("t", 0, 1)

    def end_of(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
        found = wire.call(request, version).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert end_of(0) == (codes.NONE, 0, 2)
    assert end_of(1) == (codes.NONE, 1, 2)
    wire.produce("t", [b"c"])
    assert end_of(0, current=1) == (codes.NONE, 0, 2)
    assert end_of(1) == (codes.NONE, 1, 3)
    assert end_of(0, current=0)[0] == codes.FENCED_LEADER_EPOCH
    assert end_of(0, partition=5)[0] == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_a_name_that_collides_is_free_again_once_its_topic_is_deleted(wire: Wire) -> None:
    def made(name: str) -> int:
        return int(create(wire, topic(name))[0].error_code)

    assert [made("a.b"), made("a_b"), made("a.b")] == [
        codes.NONE,
        codes.INVALID_TOPIC_EXCEPTION,
        codes.TOPIC_ALREADY_EXISTS,
    ]
    wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="a.b")], timeout_ms=1_000))
    assert [made("a_b"), made("a.b"), made("ab")] == [
        codes.NONE,
        codes.INVALID_TOPIC_EXCEPTION,
        codes.NONE,
    ]
