"""One request per API that makes real Kafka answer with something, in any version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kadence.protocol import (
    alter_configs,
    describe_producers,
    incremental_alter_configs,
    registry,
    share_acknowledge,
    share_fetch,
)
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kadence.protocol.alter_configs import AlterConfigsRequest
from kadence.protocol.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.protocol.create_acls import AclCreation, CreateAclsRequest
from kadence.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kadence.protocol.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_acls import DescribeAclsRequest
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.describe_log_dirs import DescribeLogDirsRequest
from kadence.protocol.describe_producers import DescribeProducersRequest
from kadence.protocol.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kadence.protocol.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.elect_leaders import ElectLeadersRequest, TopicPartitions
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.incremental_alter_configs import IncrementalAlterConfigsRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.list_config_resources import ListConfigResourcesRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kadence.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest
from kadence.protocol.sasl_handshake import SaslHandshakeRequest
from kadence.protocol.share_group_describe import ShareGroupDescribeRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence.protocol.sync_group import SyncGroupRequest
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kadence.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kadence_testing.kafka import KAFKA_VERSION

IS_4_3: Final = KAFKA_VERSION.startswith("4.3.")
"""Whether the Kafka of the tests is the release before the newest (KADENCE_KAFKA_VERSION)."""

_NEWEST_OF_4_3: Final[dict[type[Any], int]] = {
    ApiVersionsRequest: 4,
    TxnOffsetCommitRequest: 5,
    DeleteGroupsRequest: 2,
}
"""What Kafka 4.4 added."""
OF_THIS_KAFKA: Final = frozenset(range(93 if IS_4_3 else 95))
"""The keys of APIs up to the newest one that the Kafka of the tests knows."""

MADE_UP_IDS: Final = 7_000_000
"""No broker gives out ids of producers from here on: one that it has given to another test has an epoch there."""


def versions(request: type[Any]) -> range:
    """The versions of an API that we and the Kafka of the tests have in common."""
    older = _NEWEST_OF_4_3 if IS_4_3 else {}
    return range(request.MIN_VERSION, older.get(request, request.MAX_VERSION) + 1)


@dataclass(frozen=True)
class Ground:
    """What the requests are about."""

    topic: str
    topic_id: bytes
    group: str
    batch: bytes


def consumer_join(ground: Ground, name: str) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member of a KIP-848 group of its own."""
    return ConsumerGroupHeartbeatRequest(
        group_id=f"{ground.group}-848-{name}",
        member_id="AAAAAAAAAAAAAAAAAAAAAQ",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[ground.topic],
        topic_partitions=[],
    )


def _produce(_: int, ground: Ground) -> ProduceRequest:
    data = [PartitionProduceData(0, ground.batch)]
    topic = TopicProduceData(name=ground.topic, topic_id=ground.topic_id, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


def _fetch(_: int, ground: Ground) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=ground.topic, topic_id=ground.topic_id, partitions=[partition])
    return FetchRequest(max_wait_ms=100, min_bytes=1, topics=[topic])


def _list_offsets(_: int, ground: Ground) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(index, timestamp=-1) for index in (0, 1)]
    return ListOffsetsRequest(-1, topics=[ListOffsetsTopic(ground.topic, partitions)])


def _offset_commit(_: int, ground: Ground) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, 7, committed_metadata="note")
    topic = OffsetCommitRequestTopic(name=ground.topic, topic_id=ground.topic_id, partitions=[partition])
    return OffsetCommitRequest(ground.group, topics=[topic])


def _offset_fetch(version: int, ground: Ground) -> OffsetFetchRequest:
    if version <= 7:
        return OffsetFetchRequest(
            group_id=ground.group, topics=[OffsetFetchRequestTopic(ground.topic, [0, 1])]
        )
    topic = OffsetFetchRequestTopics(name=ground.topic, topic_id=ground.topic_id, partition_indexes=[0, 1])
    return OffsetFetchRequest([OffsetFetchRequestGroup(ground.group, topics=[topic])])


def _find_coordinator(version: int, ground: Ground) -> FindCoordinatorRequest:
    if version <= 3:
        return FindCoordinatorRequest(key=ground.group)
    return FindCoordinatorRequest(coordinator_keys=[ground.group, "another"])


def _join_group(version: int, ground: Ground) -> JoinGroupRequest:
    subscription = registry.encode_versioned(ConsumerProtocolSubscription([ground.topic]), 3)
    return JoinGroupRequest(
        f"{ground.group}-{version}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription)],
        reason="a test",
    )


def _leave_group(version: int, ground: Ground) -> LeaveGroupRequest:
    if version <= 2:
        return LeaveGroupRequest(ground.group, member_id="nobody")
    return LeaveGroupRequest(ground.group, members=[MemberIdentity("nobody", reason="a test")])


def _share_fetch(_: int, ground: Ground) -> share_fetch.ShareFetchRequest:
    topic = share_fetch.FetchTopic(ground.topic_id, [share_fetch.FetchPartition(0)])
    return share_fetch.ShareFetchRequest(
        f"{ground.group}-share", "AAAAAAAAAAAAAAAAAAAAAQ", max_wait_ms=100, max_records=10, topics=[topic]
    )


def _share_acknowledge(_: int, ground: Ground) -> share_acknowledge.ShareAcknowledgeRequest:
    batch = share_acknowledge.AcknowledgementBatch(0, 1, [1, 2])
    topic = share_acknowledge.AcknowledgeTopic(
        ground.topic_id, [share_acknowledge.AcknowledgePartition(0, [batch])]
    )
    return share_acknowledge.ShareAcknowledgeRequest(
        f"{ground.group}-share", "AAAAAAAAAAAAAAAAAAAAAQ", share_session_epoch=1, topics=[topic]
    )


def _alter_share_group_offsets(_: int, ground: Ground) -> AlterShareGroupOffsetsRequest:
    partition = AlterShareGroupOffsetsRequestPartition(0, 0)
    topic = AlterShareGroupOffsetsRequestTopic(ground.topic, [partition])
    return AlterShareGroupOffsetsRequest(f"{ground.group}-share-altered", [topic])


def _create_topics(_: int, ground: Ground) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig("retention.ms", "1000")]
    topics = [CreatableTopic("never-made", 3, 1, configs=configs), CreatableTopic(ground.topic, 1, 1)]
    return CreateTopicsRequest(topics, timeout_ms=10_000, validate_only=True)


def _delete_topics(version: int, _: Ground) -> DeleteTopicsRequest:
    if version <= 5:
        return DeleteTopicsRequest(topic_names=["no-such-topic"], timeout_ms=10_000)
    return DeleteTopicsRequest([DeleteTopicState("no-such-topic")], timeout_ms=10_000)


def _offset_for_leader_epoch(_: int, ground: Ground) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(ground.topic, [OffsetForLeaderPartition(0, -1, 0)])]
    )


def _offset_delete(_: int, ground: Ground) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        ground.group, [OffsetDeleteRequestTopic(ground.topic, [OffsetDeleteRequestPartition(1)])]
    )


REQUEST_FOR: dict[type, Callable[[int, Ground], Any]] = {
    ProduceRequest: _produce,
    FetchRequest: _fetch,
    ListOffsetsRequest: _list_offsets,
    MetadataRequest: lambda _, ground: MetadataRequest([MetadataRequestTopic(name=ground.topic)]),
    OffsetCommitRequest: _offset_commit,
    OffsetFetchRequest: _offset_fetch,
    FindCoordinatorRequest: _find_coordinator,
    JoinGroupRequest: _join_group,
    HeartbeatRequest: lambda _, ground: HeartbeatRequest(ground.group, 1, "nobody"),
    LeaveGroupRequest: _leave_group,
    SyncGroupRequest: lambda _, ground: SyncGroupRequest(
        ground.group, 1, "nobody", protocol_type="consumer", protocol_name="range"
    ),
    DescribeGroupsRequest: lambda _, ground: DescribeGroupsRequest([ground.group, "no such group"]),
    ListGroupsRequest: lambda *_: ListGroupsRequest(),
    SaslHandshakeRequest: lambda *_: SaslHandshakeRequest("PLAIN"),
    ApiVersionsRequest: lambda *_: ApiVersionsRequest("kadence", "0"),
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    InitProducerIdRequest: lambda *_: InitProducerIdRequest(None, 60_000),
    OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
    # Of a transactional id that nobody has begun with: the answers are errors, in their own shape.
    AddPartitionsToTxnRequest: lambda _, ground: AddPartitionsToTxnRequest(
        "nobody", MADE_UP_IDS, 0, [AddPartitionsToTxnTopic(ground.topic, [0])]
    ),
    AddOffsetsToTxnRequest: lambda _, ground: AddOffsetsToTxnRequest("nobody", MADE_UP_IDS, 0, ground.group),
    EndTxnRequest: lambda *_: EndTxnRequest("nobody", MADE_UP_IDS, 0, committed=True),
    TxnOffsetCommitRequest: lambda _, ground: TxnOffsetCommitRequest(
        "nobody",
        ground.group,
        MADE_UP_IDS,
        0,
        topics=[
            TxnOffsetCommitRequestTopic(
                ground.topic, ground.topic_id, [TxnOffsetCommitRequestPartition(0, 1)]
            )
        ],
    ),
    WriteTxnMarkersRequest: lambda *_: WriteTxnMarkersRequest(
        [WritableTxnMarker(MADE_UP_IDS, 0, topics=[WritableTxnMarkerTopic("no-such-topic", [0])])]
    ),
    DescribeTransactionsRequest: lambda *_: DescribeTransactionsRequest(["nobody", ""]),
    DeleteRecordsRequest: lambda *_: DeleteRecordsRequest(
        [DeleteRecordsTopic("no-such-topic", [DeleteRecordsPartition(0, 0)])], 10_000
    ),
    # The fixture's Kafka has no authorizer, so rules are refused in a whole answer each.
    DescribeAclsRequest: lambda *_: DescribeAclsRequest(2, None, 3, None, None, 1, 1),
    CreateAclsRequest: lambda *_: CreateAclsRequest([AclCreation(2, "t", 3, "User:u", "*", 3, 3)]),
    DeleteAclsRequest: lambda *_: DeleteAclsRequest([DeleteAclsFilter(2, "t", 3, None, None, 1, 1)]),
    AlterConfigsRequest: lambda _, ground: AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(
                2, ground.topic, [alter_configs.AlterableConfig("retention.ms", "-1")]
            )
        ],
        validate_only=True,
    ),
    IncrementalAlterConfigsRequest: lambda _, ground: IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                2, ground.topic, [incremental_alter_configs.AlterableConfig("retention.ms", 0, "-1")]
            )
        ],
        validate_only=True,
    ),
    DescribeLogDirsRequest: lambda *_: DescribeLogDirsRequest(None),
    ListPartitionReassignmentsRequest: lambda _, ground: ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(ground.topic, [0])]
    ),
    ElectLeadersRequest: lambda _, ground: ElectLeadersRequest(0, [TopicPartitions(ground.topic, [0])]),
    DescribeProducersRequest: lambda _, ground: DescribeProducersRequest(
        [describe_producers.TopicRequest(ground.topic, [0])]
    ),
    ListConfigResourcesRequest: lambda *_: ListConfigResourcesRequest(),
    ListTransactionsRequest: lambda *_: ListTransactionsRequest(["Ongoing", "Sleepy"]),
    DescribeConfigsRequest: lambda _, ground: DescribeConfigsRequest(
        [DescribeConfigsResource(2, ground.topic, None)], include_synonyms=True
    ),
    SaslAuthenticateRequest: lambda *_: SaslAuthenticateRequest(b"\0user\0password"),
    CreatePartitionsRequest: lambda _, ground: CreatePartitionsRequest(
        [CreatePartitionsTopic(ground.topic, 4)], 10_000, validate_only=True
    ),
    DeleteGroupsRequest: lambda *_: DeleteGroupsRequest(["no such group"]),
    OffsetDeleteRequest: _offset_delete,
    DescribeClusterRequest: lambda *_: DescribeClusterRequest(include_cluster_authorized_operations=True),
    ConsumerGroupHeartbeatRequest: lambda version, ground: consumer_join(ground, str(version)),
    ConsumerGroupDescribeRequest: lambda _, ground: ConsumerGroupDescribeRequest(
        [f"{ground.group}-848-settle", "no such group"], include_authorized_operations=True
    ),
    ShareGroupHeartbeatRequest: lambda _, ground: ShareGroupHeartbeatRequest(
        f"{ground.group}-share", "AAAAAAAAAAAAAAAAAAAAAQ", 0, None, [ground.topic]
    ),
    ShareGroupDescribeRequest: lambda _, ground: ShareGroupDescribeRequest(
        [f"{ground.group}-share", "no such group"], include_authorized_operations=True
    ),
    share_fetch.ShareFetchRequest: _share_fetch,
    share_acknowledge.ShareAcknowledgeRequest: _share_acknowledge,
    DescribeShareGroupOffsetsRequest: lambda _, ground: DescribeShareGroupOffsetsRequest(
        [
            DescribeShareGroupOffsetsRequestGroup(f"{ground.group}-share", None),
            DescribeShareGroupOffsetsRequestGroup("no such group", []),
        ]
    ),
    AlterShareGroupOffsetsRequest: _alter_share_group_offsets,
    DeleteShareGroupOffsetsRequest: lambda _, ground: DeleteShareGroupOffsetsRequest(
        f"{ground.group}-share-altered", [DeleteShareGroupOffsetsRequestTopic("no-such-topic")]
    ),
    DescribeTopicPartitionsRequest: lambda _, ground: DescribeTopicPartitionsRequest(
        [TopicRequest(ground.topic)], 1, Cursor(ground.topic, 0)
    ),
}
