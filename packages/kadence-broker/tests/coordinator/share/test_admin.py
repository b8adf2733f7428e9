"""Share groups as an administrator sees and changes them: 77, 90, 91, 92, ListGroups, DeleteGroups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.worlds.coordinator import id_of
from tests.worlds.share_group import ShareWorld, topic
from tests.worlds.share_state import Remembered

from kadence.protocol import alter_share_group_offsets as alter_api
from kadence.protocol import delete_share_group_offsets as delete_api
from kadence.protocol import describe_share_group_offsets as describe_api
from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.share_group_describe import ShareGroupDescribeRequest
from kadence.wire import ZERO_UUID
from kadence_broker.coordinator.share.state import StateAction


@pytest.fixture
def world() -> Iterator[ShareWorld]:
    world = ShareWorld({"t": 2, "u": 1})
    yield world
    world.check_replay()


def emptied(world: ShareWorld, *topics: str) -> None:
    """A group that was there and has no member any more."""
    member = world.member("a", topics or ("t",))
    world.settle(member)
    member.leave()


def alter(world: ShareWorld, offsets: dict[tuple[str, int], int], group: str = "g") -> Any:
    topics: dict[str, list[alter_api.AlterShareGroupOffsetsRequestPartition]] = {}
    for (name, number), offset in offsets.items():
        topics.setdefault(name, []).append(alter_api.AlterShareGroupOffsetsRequestPartition(number, offset))
    request = alter_api.AlterShareGroupOffsetsRequest(
        group, [alter_api.AlterShareGroupOffsetsRequestTopic(name, each) for name, each in topics.items()]
    )
    return world.send(request, 0)


def offsets(world: ShareWorld, named: dict[str, list[int]] | None = None, group: str = "g") -> Any:
    """(topic, partition) -> start offset, lag, leader epoch, error."""
    topics = (
        None
        if named is None
        else [
            describe_api.DescribeShareGroupOffsetsRequestTopic(name, numbers)
            for name, numbers in named.items()
        ]
    )
    request = describe_api.DescribeShareGroupOffsetsRequest(
        [describe_api.DescribeShareGroupOffsetsRequestGroup(group, topics)]
    )
    (answer,) = world.send(request, 1).response.groups
    assert (answer.group_id, answer.error_code) == (group, codes.NONE)
    return {
        (topic.topic_name, each.partition_index): (
            each.start_offset,
            each.lag,
            each.leader_epoch,
            each.error_code,
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def delete_offsets(world: ShareWorld, *names: str, group: str = "g") -> Any:
    topics = [delete_api.DeleteShareGroupOffsetsRequestTopic(name) for name in names]
    return world.send(delete_api.DeleteShareGroupOffsetsRequest(group, topics), 0)


def delete_groups(world: ShareWorld, *names: str) -> dict[str, int]:
    response = world.send(DeleteGroupsRequest(groups_names=list(names)), 3).response
    return {each.group_id: each.error_code for each in response.results}


# ------------------------------------------------------------ describe and list


def test_describe(world: ShareWorld) -> None:
    member = world.member("a", ["t"])
    member.beat(rack_id="r")
    world.settle(member)
    world.join(version=3)
    request = ShareGroupDescribeRequest(group_ids=["g", "other", ""])
    group, other, nameless = world.send(request, 1).response.groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert (group.group_epoch, group.assignment_epoch) == (3, 3)
    (described,) = group.members
    assert (described.member_id, described.member_epoch, described.rack_id) == ("a", 3, "r")
    assert (described.client_id, described.client_host) == ("a", "/host")
    assert described.subscribed_topic_names == ["t"]
    (held,) = described.assignment.topic_partitions
    assert (held.topic_name, held.topic_id, held.partitions) == ("t", id_of("t"), [0, 1])
    assert (other.error_code, other.error_message, other.members) == (
        codes.GROUP_ID_NOT_FOUND,
        "Group other not found.",
        [],
    )
    assert nameless.error_code == codes.INVALID_GROUP_ID


def test_a_group_of_another_kind_is_not_described(world: ShareWorld) -> None:
    world.join(version=3)
    (group,) = world.send(ShareGroupDescribeRequest(group_ids=["g"]), 1).response.groups
    assert (group.error_code, group.error_message) == (
        codes.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )


def test_list_by_type_and_state(world: ShareWorld) -> None:
    member = world.member("a")

    def listed(**filters: Any) -> Any:
        groups = world.send(ListGroupsRequest(**filters), 5).response.groups
        return [(each.group_id, each.group_type, each.protocol_type, each.group_state) for each in groups]

    assert listed() == listed(types_filter=["Share"]) == [("g", "share", "share", "Stable")]
    assert listed(types_filter=["consumer"]) == listed(states_filter=["Empty"]) == []
    member.leave()
    assert listed(states_filter=["empty"]) == [("g", "share", "share", "Empty")]


# ------------------------------------------------------------ offsets


def test_offsets_and_lag(world: ShareWorld) -> None:
    """−1 while nothing is written; the lag is the rest of the log that is not done, if that is known."""
    member = world.member("a")
    world.settle(member)
    assert offsets(world) == {("t", 0): (-1, -1, 0, 0), ("t", 1): (-1, -1, 0, 0)}

    world.share_state.known["g", id_of("t"), 0] = Remembered(5, 3, 7)
    world.share_state.known["g", id_of("t"), 1] = Remembered(6, -1, 1)
    world.share_state.ends[id_of("t"), 0] = 20
    assert offsets(world) == {("t", 0): (5, 12, 7, 0), ("t", 1): (6, -1, 1, 0)}
    world.share_state.ends[id_of("t"), 0] = 8
    assert offsets(world)["t", 0] == (5, 0, 7, 0)


def test_offsets_of_partitions_that_are_named(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    assert offsets(world, {"t": [1, 9], "none": [0], "u": [0]}) == {
        ("t", 1): (-1, -1, 0, 0),
        ("t", 9): (-1, -1, 0, 0),
        ("u", 0): (-1, -1, 0, 0),
        ("none", 0): (-1, -1, 0, 0),
    }
    assert offsets(world, {}) == offsets(world, None, "other") == {}


def test_a_partition_without_a_leader_has_an_error(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    world.share_state.known["g", id_of("t"), 0] = Remembered(5, 0, 7)
    world.share_state.ends[id_of("t"), 0] = None
    assert offsets(world)["t", 0][3] == codes.LEADER_NOT_AVAILABLE


# ------------------------------------------------------------ AlterShareGroupOffsets


def test_alter_makes_a_group_whose_first_member_begins_there(world: ShareWorld) -> None:
    answer = alter(world, {("t", 0): 3, ("t", 1): 4}).response
    assert answer.error_code == codes.NONE
    assert [(each.partition_index, each.error_code) for each in answer.responses[0].partitions] == [
        (0, 0),
        (1, 0),
    ]
    assert answer.responses[0].topic_id == id_of("t")
    assert world.share_group.state_name == "Empty"
    assert [each.start_offset for each in world.share_state.known.values()] == [3, 4]
    assert world.member("a").reads == {"t": frozenset({0, 1})}, "the first assignment has them already"
    assert [each.action for each in world.asked] == [StateAction.ALTER]


def test_alter_while_there_are_members(world: ShareWorld) -> None:
    world.member("a")
    answer = alter(world, {("t", 0): 3}).response
    assert (answer.error_code, answer.error_message, answer.responses) == (
        codes.NON_EMPTY_GROUP,
        "The group is not empty.",
        [],
    )


def test_alter_what_does_not_exist(world: ShareWorld) -> None:
    answer = alter(world, {("none", 0): 1, ("t", 9): 1, ("t", 1): 1}).response
    assert [
        (topic.topic_name, topic.topic_id, each.partition_index, each.error_code)
        for topic in answer.responses
        for each in topic.partitions
    ] == [
        ("none", ZERO_UUID, 0, codes.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", id_of("t"), 9, codes.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", id_of("t"), 1, codes.NONE),
    ]
    assert list(world.share_state.known) == [("g", id_of("t"), 1)]
    alter(world, {("none", 0): 1}, group="other")
    assert "other" not in world.coordinator.groups


def test_alter_a_group_of_another_kind_or_without_a_name(world: ShareWorld) -> None:
    assert alter(world, {("t", 0): 1}, group="").code == codes.INVALID_GROUP_ID
    world.join(version=3)
    assert alter(world, {("t", 0): 1}).code == codes.GROUP_ID_NOT_FOUND


def test_the_answer_waits_until_the_state_is_stored(world: ShareWorld) -> None:
    world.share_state.is_slow = True
    sent = alter(world, {("t", 0): 3})
    assert sent.answer is None
    world.change_state(world.asked[0])
    assert sent.code == codes.NONE


def test_alter_that_could_not_be_stored(world: ShareWorld) -> None:
    world.share_state.code = codes.COORDINATOR_NOT_AVAILABLE
    answer = alter(world, {("t", 0): 3}).response
    assert answer.responses[0].partitions[0].error_code == codes.COORDINATOR_NOT_AVAILABLE
    assert (world.share_group.initialising, world.share_group.initialised) == ({}, {})


# ------------------------------------------------------------ DeleteShareGroupOffsets


def test_a_deleted_topic_begins_anew(world: ShareWorld) -> None:
    emptied(world, "t", "u")
    answer = delete_offsets(world, "t", "none", "a").response
    assert [(each.topic_name, each.topic_id, each.error_code) for each in answer.responses] == [
        ("t", id_of("t"), codes.NONE),
        ("none", ZERO_UUID, codes.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ZERO_UUID, codes.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert answer.responses[2].error_message == "There is no offset information to delete."
    assert list(world.share_state.known) == [("g", id_of("u"), 0)]
    assert (set(world.share_group.initialised), world.share_group.deleting) == ({id_of("u")}, {})
    member = world.member("b", ["t", "u"])
    world.settle(member)
    assert member.reads == {"t": frozenset({0, 1}), "u": frozenset({0})}
    assert set(world.asked[-1].partitions[id_of("t")].values()) == {-1}


def test_delete_offsets_that_could_not_be_stored_may_be_repeated(world: ShareWorld) -> None:
    emptied(world, "t")
    world.share_state.code = codes.COORDINATOR_NOT_AVAILABLE
    assert delete_offsets(world, "t").response.responses[0].error_code == codes.COORDINATOR_NOT_AVAILABLE
    assert world.share_group.deleting == {id_of("t"): "t"}
    world.share_state.code = codes.NONE
    assert delete_offsets(world, "t").response.responses[0].error_code == codes.NONE
    assert (world.share_state.known, world.share_group.deleting) == ({}, {})


def test_delete_offsets_is_refused(world: ShareWorld) -> None:
    assert delete_offsets(world, "t", group="").code == codes.INVALID_GROUP_ID
    answer = delete_offsets(world, "t").response
    assert (answer.error_code, answer.error_message) == (codes.GROUP_ID_NOT_FOUND, "Group g not found.")
    world.member("a")
    answer = delete_offsets(world, "t").response
    assert (answer.error_code, answer.error_message) == (codes.NON_EMPTY_GROUP, "The group is not empty.")


def test_a_topic_that_comes_again_while_its_state_is_being_deleted(world: ShareWorld) -> None:
    emptied(world, "t")
    world.share_state.is_slow = True
    sent = delete_offsets(world, "t")
    member = world.member("b")
    assert world.share_group.deleting == {}
    for each in list(world.asked[1:]):
        world.change_state(each)
    assert sent.response.responses[0].error_code == codes.NONE
    world.settle(member)
    assert member.reads == {"t": frozenset({0, 1})}


# ------------------------------------------------------------ DeleteGroups


def test_deleting_a_group_deletes_its_state(world: ShareWorld) -> None:
    emptied(world, "t", "u")
    assert delete_groups(world, "g", "other") == {"g": codes.NONE, "other": codes.GROUP_ID_NOT_FOUND}
    assert (world.share_state.known, world.coordinator.groups) == ({}, {})
    assert world.replayed().groups == {}


def test_a_group_with_members_stays(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    assert delete_groups(world, "g") == {"g": codes.NON_EMPTY_GROUP}
    assert len(world.share_state.known) == 2


def test_a_member_that_joins_meanwhile_keeps_the_group(world: ShareWorld) -> None:
    emptied(world, "t")
    world.share_state.is_slow = True
    sent = world.send(DeleteGroupsRequest(groups_names=["g"]), 3)
    assert sent.answer is None
    member = world.member("b")
    for each in list(world.asked[1:]):
        world.change_state(each)
    assert [each.error_code for each in sent.response.results] == [codes.NON_EMPTY_GROUP]
    world.share_state.is_slow = False
    world.settle(member)
    assert member.reads == {"t": frozenset({0, 1})}


def test_state_that_cannot_be_deleted_keeps_the_group(world: ShareWorld) -> None:
    emptied(world, "t")
    world.share_state.code = codes.COORDINATOR_NOT_AVAILABLE
    assert delete_groups(world, "g") == {"g": codes.COORDINATOR_NOT_AVAILABLE}
    world.share_state.code = codes.NONE
    assert delete_groups(world, "g") == {"g": codes.NONE}
    assert world.share_state.known == {}


def test_a_group_that_was_only_altered_may_be_deleted(world: ShareWorld) -> None:
    alter(world, {("t", 9): 1})
    assert "g" in world.coordinator.groups, "as Kafka, which writes a record without partitions"
    assert delete_groups(world, "g") == {"g": codes.NONE}
    assert world.replayed().groups == {}


def test_several_groups_have_one_answer(world: ShareWorld) -> None:
    for group in ("g", "h"):
        world.group_id = group
        emptied(world, "t")
    assert delete_groups(world, "h", "none", "g", "h") == {
        "h": codes.NONE,
        "none": codes.GROUP_ID_NOT_FOUND,
        "g": codes.NONE,
    }
    assert world.share_state.known == {}


def test_a_topic_of_another_number_of_partitions(world: ShareWorld) -> None:
    """An assignment never names partitions that are not there."""
    alter(world, {("t", 1): 0})
    world.topics.put(topic("t", 1))
    member = world.member("a")
    world.settle(member)
    assert member.reads == {"t": frozenset({0})}
    epoch = world.share_group.epoch
    world.settle(member)
    assert world.share_group.epoch == epoch, "there is nothing to wait for"
