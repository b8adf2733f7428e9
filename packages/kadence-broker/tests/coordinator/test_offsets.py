"""Committed offsets: who may commit, what is read back, when they go."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.coordinator import World

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
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
from kadence.protocol.registry import encode_versioned
from kadence_broker.coordinator.topics import TopicImage

DAY = 86_400_000


def commit(
    world: World,
    offset: int = 5,
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    topic: str = "t",
    metadata: str | None = "note",
    version: int = 9,
    retention: int = -1,
) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=world.group_id,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        retention_time_ms=retention,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    response = world.send(request, version).response
    return int(response.topics[0].partitions[0].error_code)


def committed(world: World, topic: str = "t") -> int:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=world.group_id, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
            )
        ]
    )
    response: Any = world.send(request, 8).response
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


def test_a_commit_by_hand_makes_a_group_without_members() -> None:
    world = World()
    assert commit(world) == codes.NONE
    assert world.state == "Empty"
    assert committed(world) == 5


@pytest.mark.parametrize(("version", "code"), [(8, codes.ILLEGAL_GENERATION), (9, codes.GROUP_ID_NOT_FOUND)])
def test_a_member_cannot_commit_to_a_group_that_does_not_exist(version: int, code: int) -> None:
    world = World()
    assert commit(world, generation=1, member="m", version=version) == code
    assert world.coordinator.groups == {}


def test_only_members_of_the_present_generation_commit_to_a_live_group() -> None:
    world = World()
    (member,) = world.stable(1)
    me, generation = member.member_id, member.generation_id
    assert commit(world, generation=generation, member=me) == codes.NONE
    assert commit(world, generation=generation + 1, member=me) == codes.ILLEGAL_GENERATION
    assert commit(world, generation=generation, member="who") == codes.UNKNOWN_MEMBER_ID
    assert commit(world) == codes.UNKNOWN_MEMBER_ID
    assert commit(world, generation=generation, member=me, instance="who") == codes.UNKNOWN_MEMBER_ID


def test_a_member_may_commit_while_others_are_awaited_but_not_between_join_and_sync() -> None:
    world = World()
    (member,) = world.stable(1)
    newcomer = world.join(world.new_id())
    assert commit(world, generation=1, member=member.member_id) == codes.NONE
    world.join(member.member_id)
    assert world.state == "CompletingRebalance"
    assert commit(world, generation=2, member=newcomer.response.member_id) == codes.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    (member,) = world.stable(1)
    for _ in range(5):
        world.advance(9_000)
        assert commit(world, generation=1, member=member.member_id) == codes.NONE
    assert world.group.members


def test_a_long_note_is_refused_for_its_partition() -> None:
    world = World(offset_metadata_max_bytes=4)
    assert commit(world, metadata="12345") == codes.OFFSET_METADATA_TOO_LARGE
    assert commit(world, metadata="1234") == codes.NONE
    assert commit(world, metadata=None) == codes.NONE


def test_a_commit_that_the_topic_does_not_take_changes_nothing() -> None:
    world = World(max_batch_bytes=1_000)
    assert commit(world, 5) == codes.NONE
    assert commit(world, 6, metadata="x" * 1_000) == codes.UNKNOWN_SERVER_ERROR
    assert committed(world) == 5


@pytest.mark.parametrize(
    ("partitions", "topic", "group", "metadata", "code"),
    [
        # The most that Kafka 4.3.1 took, and the least that it refused.
        (257, "m", "g", "x" * 4_000, codes.NONE),
        (258, "m", "g", "x" * 4_000, codes.UNKNOWN_SERVER_ERROR),
        (269, "m", "g" * 20, "y" * 3_800, codes.NONE),
        (270, "m", "g" * 20, "y" * 3_800, codes.UNKNOWN_SERVER_ERROR),
        (130, "m", "g", "é" * 4_000, codes.NONE),
        (131, "m", "g", "é" * 4_000, codes.UNKNOWN_SERVER_ERROR),
        (1_997, "t" * 248, "g" * 215, "", codes.NONE),
        (1_998, "t" * 248, "g" * 215, "", codes.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_commit_counts_with_its_group_its_topics_name_and_its_note(
    partitions: int, topic: str, group: str, metadata: str, code: int
) -> None:
    world = World()
    world.topics.put(TopicImage(topic, b"t" * 16, partitions))
    offsets = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=5, committed_metadata=metadata)
        for number in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)],
    )
    answer = world.send(request, 9).response
    assert {each.error_code for each in answer.topics[0].partitions} == {code}


def test_what_was_never_committed_is_minus_one_without_error() -> None:
    world = World()
    assert committed(world) == -1
    commit(world)
    assert committed(world, "other") == -1


@pytest.mark.parametrize("version", [2, 5, 7])
def test_one_group_per_request_before_v8_and_null_topics_mean_all(version: int) -> None:
    world = World()
    commit(world, 5, topic="a")
    commit(world, 6, topic="b")
    response = world.send(OffsetFetchRequest(group_id="g", topics=None), version).response
    assert {(each.name, each.partitions[0].committed_offset) for each in response.topics} == {
        ("a", 5),
        ("b", 6),
    }
    named = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="a", partition_indexes=[0, 1])]
    )
    (topic,) = world.send(named, version).response.topics
    found = [(each.committed_offset, each.committed_leader_epoch, each.metadata) for each in topic.partitions]
    assert found == [(5, 3, "note"), (-1, -1, "")]


def test_all_topics_of_several_groups() -> None:
    world = World()
    commit(world, 5, topic="a")
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "none")]
    response = world.send(OffsetFetchRequest(groups=groups), 8).response
    assert [(each.group_id, len(each.topics)) for each in response.groups] == [("g", 1), ("none", 0)]


def test_offsets_of_a_group_without_members_expire_after_their_commit() -> None:
    world = World()
    commit(world)
    world.advance(7 * DAY - 1)
    assert committed(world) == 5
    world.advance(600_001)
    assert committed(world) == -1
    assert world.coordinator.groups == {}


def test_offsets_expire_a_retention_after_the_group_became_empty() -> None:
    world = World(offsets_retention_ms=DAY)
    (member,) = world.stable(1, session=1_800_000)
    commit(world, generation=1, member=member.member_id)
    for _ in range(2 * 48):
        world.advance(DAY // 48 - 1)
        world.heartbeat(member.member_id)
    world.leave(member.member_id)
    world.advance(DAY - 600_001)
    assert committed(world) == 5
    world.advance(1_300_000)
    assert committed(world) == -1


def test_a_live_group_loses_only_topics_that_it_no_longer_subscribes_to() -> None:
    world = World(offsets_retention_ms=DAY)
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["kept"]), 3)
    (member,) = world.stable(1, session=1_800_000, protocols={"range": subscription})
    for topic in ("kept", "dropped"):
        assert commit(world, generation=1, member=member.member_id, topic=topic) == codes.NONE
    for _ in range(2 * 48):
        world.advance(DAY // 48 - 1)
        world.heartbeat(member.member_id)
    assert committed(world, "kept") == 5
    assert committed(world, "dropped") == -1


def test_a_live_group_whose_subscription_cannot_be_read_loses_nothing() -> None:
    world = World(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=1_000)
    (member,) = world.stable(1, protocols={"range": b"\x00"})
    commit(world, generation=1, member=member.member_id)
    world.advance(5_000)
    assert committed(world) == 5


def test_a_clients_own_retention_time_counts_from_its_commit() -> None:
    world = World(offsets_retention_check_interval_ms=100)
    commit(world, version=2, retention=5_000)
    world.advance(4_900)
    assert committed(world) == 5
    world.advance(200)
    assert committed(world) == -1


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    world = World()
    commit(world, topic="gone")
    commit(world, topic="kept")
    world.coordinator.topic_deleted(world.now, "gone")
    assert committed(world, "gone") == -1
    assert committed(world, "kept") == 5


def delete(world: World, *topics: str, group_id: str = "g") -> Any:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in topics
        ],
    )
    return world.send(request, 0).response


def test_what_does_not_exist_cannot_be_deleted() -> None:
    world = World()
    assert delete(world, "unheard-of").error_code == codes.GROUP_ID_NOT_FOUND
    commit(world)
    found = delete(world, "unheard-of", "t").topics
    assert [each.partitions[0].error_code for each in found] == [codes.UNKNOWN_TOPIC_OR_PARTITION, codes.NONE]


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    world = World()
    commit(world)
    assert delete(world, "t").topics[0].partitions[0].error_code == codes.NONE
    assert committed(world) == -1
    assert delete(world, "t", group_id="none").error_code == codes.GROUP_ID_NOT_FOUND
    assert delete(world, "t", group_id="").error_code == codes.INVALID_GROUP_ID


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    world = World()
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["kept"]), 1)
    (member,) = world.stable(1, protocols={"range": subscription})
    for topic in ("kept", "other"):
        commit(world, generation=1, member=member.member_id, topic=topic)
    found = delete(world, "kept", "other").topics
    assert [each.partitions[0].error_code for each in found] == [codes.GROUP_SUBSCRIBED_TO_TOPIC, codes.NONE]
    assert (committed(world, "kept"), committed(world, "other")) == (5, -1)


def test_offsets_of_a_live_group_of_another_kind_cannot_be_deleted() -> None:
    world = World()
    world.stable(1, protocol_type="connect")
    assert delete(world, "t").error_code == codes.NON_EMPTY_GROUP
