"""What administrators' tools ask a broker for: records to delete, sizes, producers, elections, access rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from tests.broker.wire import Wire, at, fetch
from tests.patience import PATIENCE

from kadence.protocol import error_codes as codes
from kadence.protocol.create_acls import AclCreation, CreateAclsRequest
from kadence.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_acls import DescribeAclsRequest
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kadence.protocol.describe_producers import DescribeProducersRequest, TopicRequest
from kadence.protocol.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kadence.protocol.elect_leaders import ElectLeadersRequest, TopicPartitions
from kadence.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.records import encode_batch
from kadence_broker import Broker

admin_api: Any = confluent_kafka.admin
"""Its names are re-exported without saying so, which strict typing does not accept."""


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (2, (2, codes.NONE)),
        (-1, (3, codes.NONE)),
        (4, (-1, codes.OFFSET_OUT_OF_RANGE)),
        (-2, (-1, codes.OFFSET_OUT_OF_RANGE)),
    ],
)
def test_delete_records(broker: Broker, wire: Wire, offset: int, expected: tuple[int, int]) -> None:
    for number in range(3):
        wire.produce("t", [b"%d" % number])
    asked = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    (result,) = wire.call(DeleteRecordsRequest(topics=[asked])).topics[0].partitions
    assert (result.low_watermark, result.error_code) == expected
    if offset == 2:
        answer = wire.call(fetch("t", at(0)), 12).responses[0].partitions[0]
        assert answer.error_code == codes.OFFSET_OUT_OF_RANGE
        assert broker.offsets("t")[0] == (2, 3)


def test_delete_records_elsewhere() -> None:
    with Broker(nodes=2, topics={"t": 1}) as broker, Wire(broker, 2) as wire:
        for name, code in (("t", codes.NOT_LEADER_OR_FOLLOWER), ("none", codes.UNKNOWN_TOPIC_OR_PARTITION)):
            partition = DeleteRecordsPartition(partition_index=0, offset=0)
            asked = DeleteRecordsTopic(name=name, partitions=[partition])
            assert wire.call(DeleteRecordsRequest(topics=[asked])).topics[0].partitions[0].error_code == code


def test_log_dirs_tell_sizes(wire: Wire) -> None:
    wire.produce("t", [bytes(5_000)], partition=1)
    (everything,) = wire.call(DescribeLogDirsRequest(topics=None)).results
    sizes = {each.partition_index: each.partition_size for each in everything.topics[0].partitions}
    assert sizes[0] == 0
    assert 5_000 < sizes[1] < 5_200
    (one,) = wire.call(
        DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1])])
    ).results
    assert [each.partition_index for each in one.topics[0].partitions] == [1]


def test_log_dirs_tell_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for directory, told in (("data", str(tmp_path / "data")), (None, "/embedded")):
        with Broker(topics={"t": 1}, data_dir=directory) as broker, Wire(broker) as wire:
            assert [each.log_dir for each in wire.call(DescribeLogDirsRequest(topics=None)).results] == [told]


def test_producers_of_a_partition(wire: Wire) -> None:
    wire.produce("t", [b"v", b"w"], producer_id=7, producer_epoch=3, base_sequence=0)
    asked = TopicRequest(name="t", partition_indexes=[0, 9])
    known, unknown = wire.call(DescribeProducersRequest(topics=[asked])).topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert producer.current_txn_start_offset == -1
    assert unknown.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_an_election_gives_a_partition_its_leader_back(broker: Broker, wire: Wire) -> None:
    broker.move_leader("t", 1, -1)
    asked = TopicPartitions(topic="t", partitions=[0, 1, 7])
    (result,) = wire.call(ElectLeadersRequest(topic_partitions=[asked])).replica_election_results
    assert [each.error_code for each in result.partition_result] == [
        codes.ELECTION_NOT_NEEDED,
        codes.NONE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert wire.produce("t", [b"v"], partition=1).error_code == codes.NONE
    (result,) = wire.call(ElectLeadersRequest(topic_partitions=None)).replica_election_results
    assert (result.topic, result.partition_result) == ("t", [])


def test_access_rules_are_answered_as_without_an_authorizer(wire: Wire) -> None:
    answer = wire.call(DescribeAclsRequest())
    assert (answer.error_code, answer.error_message) == (
        codes.SECURITY_DISABLED,
        "No Authorizer is configured.",
    )
    (created,) = wire.call(CreateAclsRequest(creations=[AclCreation()])).results
    (deleted,) = wire.call(DeleteAclsRequest(filters=[DeleteAclsFilter()])).filter_results
    assert created.error_code == deleted.error_code == codes.SECURITY_DISABLED


def test_names_that_come_twice(wire: Wire) -> None:
    grow = [CreatePartitionsTopic(name="t", count=3, assignments=None)] * 2
    (grown,) = wire.call(CreatePartitionsRequest(topics=grow)).results
    (deleted,) = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")] * 2)).responses
    assert grown.error_code == deleted.error_code == codes.INVALID_REQUEST
    twice = [MetadataRequestTopic(name="t")] * 2
    by_id = [MetadataRequestTopic(name=None, topic_id=wire.topic_id("t")), MetadataRequestTopic(name="none")]
    for asked in (twice, by_id):
        assert [each.name for each in wire.call(MetadataRequest(topics=asked)).topics] == ["t"]


def test_partitions_are_given_to_brokers_that_exist() -> None:
    with Broker(nodes=2, topics={"t": 1}) as broker, Wire(broker) as wire:
        for node_id, code in ((9, codes.INVALID_REPLICA_ASSIGNMENT), (2, codes.NONE)):
            assignments = [CreatePartitionsAssignment(broker_ids=[node_id])]
            asked = CreatePartitionsTopic(name="t", count=2, assignments=assignments)
            assert wire.call(CreatePartitionsRequest(topics=[asked])).results[0].error_code == code
        (topic,) = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")])).topics
        assert topic.partitions[1].leader_id == 2


def test_odd_requests_that_kafka_refuses(wire: Wire) -> None:
    assert wire.call(DescribeClusterRequest(endpoint_type=2)).error_code == codes.MISMATCHED_ENDPOINT_TYPE
    cursor = Cursor(topic_name="t", partition_index=-1)
    wire.call(DescribeTopicPartitionsRequest(cursor=None, response_partition_limit=10))
    answer = wire.call(DescribeTopicPartitionsRequest(cursor=cursor, response_partition_limit=10))
    assert {each.error_code for each in answer.topics} <= {codes.INVALID_REQUEST}
    wire.send_frame(b"\x00\x03\x00\x01\x00\x00\x00\x09\xff\xff\x00\x00\x00\x00bytes behind it")
    assert wire.receive_frame()


def test_librdkafkas_admin_uses_them(broker: Broker) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"v", partition=0)
    assert producer.flush(PATIENCE) == 0
    partition = confluent_kafka.TopicPartition("t", 0, 1)
    assert admin.delete_records([partition])[partition].result(PATIENCE).low_watermark == 1
    resource = admin_api.ConfigResource(
        admin_api.ResourceType.TOPIC,
        "t",
        incremental_configs=[
            admin_api.ConfigEntry(
                "retention.ms", "60000", incremental_operation=admin_api.AlterConfigOpType.SET
            )
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
    asked = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, "t")
    assert admin.describe_configs([asked])[asked].result(PATIENCE)["retention.ms"].value == "60000"


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_wants_keys_and_keeps_its_records(wire: Wire, policy: str) -> None:
    config = [CreatableTopicConfig("cleanup.policy", policy)]
    wire.call(CreateTopicsRequest(topics=[CreatableTopic("c", 1, 1, configs=config)]))
    assert wire.produce("c", [b"v"]).error_code == codes.INVALID_RECORD
    keyed = encode_batch([(1_000, b"k", b"v", ()), (1_000, b"k", None, ())])
    assert wire.produce_bytes("c", keyed).base_offset == 0
    asked = DeleteRecordsTopic(name="c", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    (told,) = wire.call(DeleteRecordsRequest(topics=[asked])).topics[0].partitions
    assert told.error_code == (codes.NONE if "delete" in policy else codes.POLICY_VIOLATION)
    (again,) = wire.call(fetch("c", at(1)), 12).responses[0].partitions
    assert (again.error_code, again.high_watermark) == (codes.NONE, 2)


def test_no_partition_is_ever_being_moved(wire: Wire) -> None:
    for topics in (None, [], [ListPartitionReassignmentsTopics("no-such-topic", [0])]):
        told = wire.call(ListPartitionReassignmentsRequest(topics=topics))
        assert (told.error_code, told.error_message, told.topics) == (codes.NONE, None, [])
