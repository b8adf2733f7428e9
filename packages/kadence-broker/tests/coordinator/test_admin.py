"""Groups as an administrator sees them."""

from __future__ import annotations

import pytest
from tests.worlds.coordinator import World

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.list_groups import ListGroupsRequest
from kadence_broker.coordinator import Caller, GroupCoordinator


def listed(world: World, **filters: list[str]) -> list[tuple[str, str, str]]:
    response = world.send(ListGroupsRequest(**filters), 5).response  # type: ignore[arg-type]
    return [(each.group_id, each.group_state, each.group_type) for each in response.groups]


def test_groups_are_listed_by_state_and_type_in_any_case() -> None:
    world = World()
    world.stable(1)
    assert listed(world) == [("g", "Stable", "classic")]
    assert listed(world, states_filter=["STABLE", "Empty"]) == [("g", "Stable", "classic")]
    assert listed(world, states_filter=["Empty"]) == []
    assert listed(world, types_filter=["Classic"]) == [("g", "Stable", "classic")]
    assert listed(world, types_filter=["consumer"]) == []


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    world = World()
    leader, follower = world.stable(2, client_id="app")
    (group,) = world.send(DescribeGroupsRequest(groups=["g"]), 5).response.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert [each.member_id for each in group.members] == [leader.member_id, follower.member_id]
    member = group.members[0]
    assert (member.client_id, member.client_host) == ("app", "/host")
    assert (member.member_metadata, member.member_assignment) == (b"m", leader.member_id.encode())


def test_a_group_that_is_rebalancing_shows_what_its_members_were_given_last() -> None:
    world = World()
    (member,) = world.stable(1)
    world.join(world.new_id())
    (group,) = world.send(DescribeGroupsRequest(groups=["g"]), 5).response.groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [each.member_assignment for each in group.members] == [member.member_id.encode(), b""]
    assert all(each.member_metadata == b"" for each in group.members)


@pytest.mark.parametrize(("version", "code"), [(5, codes.NONE), (6, codes.GROUP_ID_NOT_FOUND)])
def test_an_unknown_group_is_dead(version: int, code: int) -> None:
    (group,) = World().send(DescribeGroupsRequest(groups=["x"]), version).response.groups
    assert (group.group_state, group.error_code) == ("Dead", code)


def test_only_groups_without_members_are_deleted() -> None:
    world = World()
    (member,) = world.stable(1)

    def delete(*names: str) -> list[int]:
        response = world.send(DeleteGroupsRequest(groups_names=list(names)), 2).response
        return [each.error_code for each in response.results]

    assert delete("g", "x", "") == [codes.NON_EMPTY_GROUP, codes.GROUP_ID_NOT_FOUND, codes.GROUP_ID_NOT_FOUND]
    world.leave(member.member_id)
    pending = world.new_id()
    assert delete("g") == [codes.NONE]
    assert world.coordinator.groups == {}
    assert world.join(pending).code == codes.UNKNOWN_MEMBER_ID


def test_a_request_that_is_not_the_coordinators_is_a_bug_of_the_shell() -> None:
    with pytest.raises(TypeError, match="does not serve str"):
        GroupCoordinator().handle(0, Caller(None, 0), "hello")


def test_a_coordinator_says_what_it_holds() -> None:
    world = World()
    world.stable(2)
    assert repr(world.group) == "<group 'g' Stable generation 1, 2 members, 0 pending>"
    assert repr(world.coordinator) == "<GroupCoordinator 1 groups, 3 timers>"
