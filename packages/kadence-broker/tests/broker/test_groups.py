"""Groups over the wire: parked answers, timers of the real loop, topic ids, several nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.wire import Wire, pass_time
from tests.patience import until

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_delete import OffsetDeleteRequest
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kadence_broker import Broker
from kadence_testing import FakeClock


def join(member_id: str = "", *, session: int = 6_000, group: str = "g", **options: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        **options,
    )


def sync(joined: Any, *assigned: str, group: str = "g") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in assigned
        ],
    )


@pytest.mark.parametrize("version", range(10))
def test_two_members_join_sync_beat_and_leave(broker: Broker, wire: Wire, version: int) -> None:
    """The whole dance in each version of JoinGroup; the parked answers come on their own connections."""
    with Wire(broker) as second:
        sync_version = min(version, 5)

        def first_join(client: Wire) -> str:
            return str(client.call(join(), version).member_id) if version >= 4 else ""

        ours = first_join(wire)
        joined = wire.call(join(ours), version)
        assert wire.call(sync(joined, joined.member_id), sync_version).assignment == joined.member_id.encode()
        theirs = first_join(second)
        second.send(join(theirs), version)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        while wire.call(beat).error_code != codes.REBALANCE_IN_PROGRESS:
            pass
        again = wire.call(join(joined.member_id), version)
        other = second.receive()
        assert again.generation_id == other.generation_id == 2
        second.send(sync(other), sync_version)
        given = [again.member_id, other.member_id]
        assert wire.call(sync(again, *given), sync_version).assignment == given[0].encode()
        assert second.receive().assignment == given[1].encode()
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=each) for each in given])
        assert [each.error_code for each in wire.call(leave).members] == [0, 0]
        assert broker.describe_groups() == {"g": "<group 'g' Empty generation 3, 0 members, 0 pending>"}


def test_b8_the_loop_fires_the_session_timer() -> None:
    clock = FakeClock()
    with Broker(topics={"t": 2}, clock=clock) as broker, Wire(broker) as wire:
        joined = wire.call(join(session=6_000), 3)
        wire.call(sync(joined, joined.member_id))
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        pass_time(broker, clock, 5_999)
        assert wire.call(beat).error_code == codes.NONE
        pass_time(broker, clock, 6_000)
        until(lambda: "Empty" in broker.describe_groups()["g"])
        assert wire.call(beat).error_code == codes.UNKNOWN_MEMBER_ID


def test_a_parked_join_whose_client_has_gone_is_no_harm(broker: Broker, wire: Wire) -> None:
    joined = wire.call(join(), 3)
    wire.call(sync(joined, joined.member_id))
    with broker.faults.observe(JoinGroupRequest) as joins, Wire(broker) as other:
        other.send(join(), 3)
        joins.wait()
    again = wire.call(join(joined.member_id), 3)
    assert len(again.members) == 2


def commit(topics: dict[str, list[int]], ids: dict[str, bytes] | None = None) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=(ids or {}).get(name, b"?" * 16),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=10 + each)
                    for each in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
    )


def codes_of(response: Any, key: str = "name") -> dict[Any, int]:
    return {
        (getattr(topic, key), each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_to_topics_that_do_not_exist_are_refused_one_by_one(wire: Wire, version: int) -> None:
    answer = wire.call(commit({"t": [0, 1, 7], "none": [0]}), version)
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
    assert codes_of(answer) == {("t", 0): 0, ("t", 1): 0, ("t", 7): unknown, ("none", 0): unknown}


def test_offsets_by_topic_id(wire: Wire) -> None:
    real = wire.topic_id("t")
    answer = wire.call(commit({"t": [0], "none": [0]}, {"t": real}), 10)
    assert codes_of(answer, "topic_id") == {(real, 0): codes.NONE, (b"?" * 16, 0): codes.UNKNOWN_TOPIC_ID}
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 1]) for each in (real, b"?" * 16)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)])
    (group,) = wire.call(request, 10).groups
    found = {
        topic.topic_id: [(p.committed_offset, p.error_code) for p in topic.partitions]
        for topic in group.topics
    }
    assert found == {real: [(10, 0), (-1, 0)], b"?" * 16: [(-1, codes.UNKNOWN_TOPIC_ID)] * 2}
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (topic,) = wire.call(everything, 10).groups[0].topics
    assert (topic.topic_id, len(topic.partitions)) == (real, 1)


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_offsets_in_every_version(wire: Wire, version: int) -> None:
    wire.call(commit({"t": [0, 1]}), 9)
    request = OffsetFetchRequest(group_id="g", topics=None if version >= 2 else [])
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = wire.call(request, version)
    if version == 1:
        assert answer.topics == []
        return
    (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == {0: 10, 1: 11}


def test_several_nodes_each_answer_for_their_own_groups() -> None:
    names = ["a", "b", "c", "d", "e"]
    with Broker(nodes=2, topics={"t": 2}) as broker, Wire(broker, 1) as first, Wire(broker, 2) as second:
        for name in names:
            request = commit({"t": [0]})
            request.group_id = name
            done = {node: codes_of(node.call(request, 9))["t", 0] for node in (first, second)}
            assert sorted(done.values()) == [codes.NONE, codes.NOT_COORDINATOR]
        listed = [
            {each.group_id for each in node.call(ListGroupsRequest()).groups} for node in (first, second)
        ]
        assert listed[0] | listed[1] == set(names)
        assert not listed[0] & listed[1]
        mine, other = min(listed[0]), min(listed[1])

        described = first.call(DescribeGroupsRequest(groups=[mine, other])).groups
        assert {each.group_id: each.error_code for each in described} == {
            mine: 0,
            other: codes.NOT_COORDINATOR,
        }
        groups = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in (mine, other)]
        fetched = first.call(OffsetFetchRequest(groups=groups), 8).groups
        assert {each.group_id: each.error_code for each in fetched} == {mine: 0, other: codes.NOT_COORDINATOR}
        assert first.call(OffsetFetchRequest(group_id=other), 7).error_code == codes.NOT_COORDINATOR
        assert first.call(OffsetDeleteRequest(group_id=other)).error_code == codes.NOT_COORDINATOR
        assert first.call(join(group=other)).error_code == codes.NOT_COORDINATOR
        deleted = first.call(DeleteGroupsRequest(groups_names=[mine, other])).results
        assert {each.group_id: each.error_code for each in deleted} == {mine: 0, other: codes.NOT_COORDINATOR}
