"""KIP-848 groups among others: listed, described, deleted; their offsets deleted and expired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.worlds.consumer_group import ConsumerWorld

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.list_groups import ListGroupsRequest
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

DAY = 86_400_000


@pytest.fixture
def world() -> Iterator[ConsumerWorld]:
    world = ConsumerWorld(offsets_retention_ms=DAY)
    yield world
    world.check_replay()


def listed(world: ConsumerWorld, **filters: Any) -> list[tuple[str, str, str]]:
    groups = world.send(ListGroupsRequest(**filters), 5).response.groups
    return [(each.group_type, each.protocol_type, each.group_state) for each in groups]


def commit(world: ConsumerWorld, *topics: str, epoch: int = 2) -> None:
    request = OffsetCommitRequest(
        group_id=world.group_id,
        generation_id_or_member_epoch=epoch,
        member_id="a" if epoch >= 0 else "",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(0, 1)])
            for name in topics
        ],
    )
    answered = world.send(request, 9).response.topics
    assert [each.partitions[0].error_code for each in answered] == [codes.NONE] * len(topics)


def delete(world: ConsumerWorld) -> int:
    results = world.send(DeleteGroupsRequest(groups_names=[world.group_id]), 2).response.results
    return int(results[0].error_code)


def test_groups_are_listed_by_type_and_state(world: ConsumerWorld) -> None:
    world.member("a")
    assert listed(world) == [("consumer", "consumer", "Stable")]
    assert listed(world, types_filter=["Consumer"], states_filter=["stable"]) == listed(world)
    assert listed(world, types_filter=["classic"]) == listed(world, states_filter=["Empty"]) == []


def test_what_is_no_kip_848_group_is_not_described_as_one(world: ConsumerWorld) -> None:
    world.join()
    request = ConsumerGroupDescribeRequest(group_ids=[world.group_id, "other"])
    groups = world.send(request, 1).response.groups

    assert [(each.error_code, each.error_message) for each in groups] == [
        (codes.GROUP_ID_NOT_FOUND, "Group g is not a consumer group."),
        (codes.GROUP_ID_NOT_FOUND, "Group other not found."),
    ]


def test_only_an_empty_group_is_deleted_and_its_offsets_with_it(world: ConsumerWorld) -> None:
    member = world.member("a")
    commit(world, "t")
    assert delete(world) == codes.NON_EMPTY_GROUP

    member.beat(member_epoch=-1)
    assert delete(world) == codes.NONE
    assert not world.coordinator.groups
    assert list(world.coordinator.snapshot(lambda _: True)) == []


def test_offsets_of_a_topic_that_is_read_are_not_deleted(world: ConsumerWorld) -> None:
    world.member("a", None, subscribed_topic_regex="t")
    commit(world, "t", "a", epoch=1)
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("t", "a")]
    answer = world.send(OffsetDeleteRequest(group_id=world.group_id, topics=topics), 0).response

    assert [each.partitions[0].error_code for each in answer.topics] == [
        codes.GROUP_SUBSCRIBED_TO_TOPIC,
        codes.NONE,
    ]


def test_offsets_expire_by_their_commit_unless_their_topic_is_read(world: ConsumerWorld) -> None:
    member = world.member("a")
    commit(world, "t", "a")
    for _ in range(DAY // 40_000 + 20):
        world.advance(40_000)
        member.beat()
    assert {
        record.key.topic
        for record in world.coordinator.snapshot(lambda _: True)
        if hasattr(record.key, "topic")
    } == {"t"}

    member.beat(member_epoch=-1)
    world.advance(600_000)
    assert not world.coordinator.groups, "nobody, and nothing kept"


def test_who_is_no_member_commits_to_an_empty_group_only(world: ConsumerWorld) -> None:
    member = world.member("a")
    member.beat(member_epoch=-1)
    commit(world, "t", epoch=-1)
