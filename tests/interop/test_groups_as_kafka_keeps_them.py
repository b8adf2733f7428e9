"""Groups beside real Apache Kafka's: the same odd requests, and the records that both keep in `__consumer_offsets`."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from tests.broker.wire import at, fetch
from tests.interop.test_same_as_kafka import Side, name_of, protocols
from tests.interop.test_transactions_same_as_kafka import Stage
from tests.patience import until

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.group_metadata_record import GroupMetadataKey
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import MemberIdentity
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
    OffsetFetchRequestTopics,
)
from kadence.records import FetchedRecords
from kadence_broker import Broker
from kadence_broker.cluster import OFFSETS_TOPIC, STATE_PARTITIONS, coordinator_partition
from kadence_broker.coordinator.records import decode, encode, group_of
from kadence_testing.kafka import Kafka


def described(side: Side) -> tuple[str, str, str, list[tuple[bytes, bytes]]]:
    (group,) = side.wire.call(DescribeGroupsRequest(groups=[side.group])).groups
    members = sorted((each.member_assignment, each.member_metadata) for each in group.members)
    return group.group_state, group.protocol_type, group.protocol_data, members


def leaving_twice(side: Side) -> Any:
    joined = side.member()
    side.sync(joined)
    identity = MemberIdentity(member_id=joined.member_id)
    return [side.leave(identity, identity), described(side)]


def an_instance_removed_twice(side: Side) -> Any:
    joined = side.join(group_instance_id="a")
    side.sync(joined, group_instance_id="a")
    identity = MemberIdentity(member_id="", group_instance_id="a")
    return [side.leave(identity, identity), described(side)]


def a_given_id_that_leaves(side: Side) -> Any:
    joined = side.member()
    side.sync(joined)
    pending = side.join()
    seen: list[Any] = [
        described(side),
        side.leave(MemberIdentity(member_id=pending.member_id)),
        described(side),
    ]
    return [*seen, side.beat(joined), side.join(joined.member_id).generation_id]


def describing_a_rebalance(side: Side) -> Any:
    joined = side.member()
    seen: list[Any] = [described(side)]
    side.sync(joined)
    seen.append(described(side))
    newcomer = side.join()
    other = side.connect()
    request = JoinGroupRequest(
        group_id=side.group, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
        member_id=newcomer.member_id, protocols=protocols("range"),
    )  # fmt: skip
    other.send(request)
    while side.beat(joined) == "NONE":
        pass
    seen.append(described(side))
    side.join(joined.member_id)
    other.receive()
    return [*seen, described(side)]


def a_first_join_that_is_refused(side: Side) -> Any:
    refused = name_of(side.join(protocols=[]))
    # Kafka describes groups as of its last commit, which may be older than the refusal beside other groups' writes.
    until(lambda: described(side)[0] != "Dead", what="the refused join made no group")
    return [refused, described(side)[:3], name_of(side.join()), described(side)[:3]]


def deleting_offsets(side: Side) -> Any:
    def delete(group: str, *topics: tuple[str, int]) -> list[str]:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition in topics
            ],
        )
        answer = side.wire.call(request)
        found = [name_of(each.partitions[0]) for each in sorted(answer.topics, key=lambda topic: topic.name)]
        return [name_of(answer), *found]

    seen = [delete("none", (side.topic, 0)), delete("none", ("no-such-topic", 0))]
    side.commit()
    seen += [delete(side.group, (side.topic, 9)), delete(side.group, ("a-no-such-topic", 0), (side.topic, 0))]
    return [*seen, delete(side.group, (side.topic, 1))]


def offsets_by_topic_id(side: Side) -> Any:
    known, unknown = side.wire.topic_id(side.topic), b"?" * 16

    def commit(topic_id: bytes, generation: int = -1) -> list[str]:
        partitions = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in (0, 9)
        ]
        request = OffsetCommitRequest(
            group_id=side.group,
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)],
        )
        (answer,) = side.wire.call(request, 10).topics
        return [name_of(each) for each in sorted(answer.partitions, key=lambda each: each.partition_index)]

    def fetched(ids: list[bytes] | None) -> Any:
        topics = None if ids is None else [
            OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 1]) for each in ids
        ]  # fmt: skip
        asked = OffsetFetchRequestGroup(group_id=side.group, topics=topics)
        (group,) = side.wire.call(OffsetFetchRequest(groups=[asked]), 10).groups
        return [
            (each.topic_id == known, [(one.committed_offset, name_of(one)) for one in each.partitions])
            for each in sorted(group.topics, key=lambda each: each.topic_id != known)
        ]

    seen: list[Any] = [commit(known, 5), commit(unknown, 5), commit(unknown), commit(known)]
    return [*seen, fetched([known]), fetched([known, unknown]), fetched(None)]


SCENARIOS = [
    leaving_twice, an_instance_removed_twice, a_given_id_that_leaves, describing_a_rebalance,
    a_first_join_that_is_refused, deleting_offsets, offsets_by_topic_id,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_we_answer_as_kafka_does(kafka: Kafka, scenario: Any) -> None:
    seen = []
    with Broker(config={"group.min.session.timeout.ms": 500}) as broker:
        for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
            side = Side(address)
            try:
                seen.append(scenario(side))
            finally:
                side.close()
    ours, kafkas = seen
    assert ours == kafkas


def stored(side: Side) -> list[tuple[bytes, bytes | None]]:
    """All records of the side's group, as bytes."""
    (topic,) = side.wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)])).topics
    # The real one of these tests has a single partition, to start quickly.
    index = coordinator_partition(side.group) if len(topic.partitions) == STATE_PARTITIONS else 0
    offset, found = 0, list[tuple[bytes, bytes | None]]()
    while True:
        request = fetch(OFFSETS_TOPIC, at(offset, index, 1 << 24))
        (partition,) = side.wire.call(request, 12).responses[0].partitions
        assert partition.error_code == codes.NONE
        records = FetchedRecords(partition.records or b"", OFFSETS_TOPIC, index, offset).take()
        if not records:
            return found
        for each in records:
            assert each.key is not None
            record = decode(each.key, each.value)
            if record is not None and group_of(record) == side.group:
                found.append((each.key, each.value))
        offset = records[-1].offset + 1


def everything_that_is_stored(side: Side) -> None:
    """A group's life: made, assigned, a static member replaced, offsets, those of a transaction, empty, deleted."""
    joined = side.join(group_instance_id="a")
    side.sync(joined, group_instance_id="a")
    back = side.join(group_instance_id="a")
    side.commit(generation_id_or_member_epoch=1, member_id=back.member_id, group_instance_id="a")
    side.leave(MemberIdentity(member_id=back.member_id, group_instance_id="a"))
    side.commit()
    side.commit(4, retention_time_ms=60_000)
    # A transaction's offsets have no topic id, though Kafka knows it.
    transaction = Stage(side)
    producer = transaction.begin()
    transaction.add_offsets(producer)
    assert transaction.commit_offsets(producer, 9, partitions=[0, 1]) == ["NONE", "NONE"]
    assert transaction.end(producer, committed=True) == "NONE"
    side.wire.call(DeleteGroupsRequest(groups_names=[side.group]))


def told(key: bytes, value: bytes | None) -> Any:
    """A record without what differs from run to run: ids, addresses, times."""
    record = decode(key, value)
    assert record is not None
    if record.value is None:
        return type(record.key).__name__, key[:2], None
    assert value is not None
    if isinstance(record.key, GroupMetadataKey):
        found = record.value
        members = [
            (
                each.group_instance_id,
                each.rebalance_timeout,
                each.session_timeout,
                each.subscription,
                each.assignment,
            )
            for each in found.members
        ]
        return (
            "group", value[:2], found.protocol_type, found.generation, found.protocol,
            found.leader is not None, found.current_state_timestamp > 0, members,
        )  # fmt: skip
    found = record.value
    return (
        "offset", value[:2], record.key.partition, found.offset, found.leader_epoch, found.metadata,
        found.commit_timestamp > 0, found.expire_timestamp > 0, found.topic_id != bytes(16),
    )  # fmt: skip


def test_we_keep_what_kafka_keeps_in_the_same_bytes(kafka: Kafka) -> None:
    seen = []
    with Broker(config={"group.min.session.timeout.ms": 500}) as broker:
        for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
            side = Side(address)
            side.group = f"same-{uuid4()}"
            try:
                everything_that_is_stored(side)
                records = stored(side)
            finally:
                side.close()
            for key, value in records:
                record = decode(key, value)
                assert record is not None
                assert encode(record) == (key, value)
            seen.append([told(*each) for each in records])
    ours, kafkas = seen
    assert ours == kafkas
