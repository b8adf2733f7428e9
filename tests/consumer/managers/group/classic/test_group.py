"""Whole groups under virtual time against the real coordinator: rules C5, B3, B4, B7 end to end."""

from __future__ import annotations

import pytest
from tests.worlds.classic_group import Group
from tests.worlds.cluster import cluster_of, partitions

from kadence.consumer.border import messages as m
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest

RANGE = ("range",)


def test_one_member_gets_everything() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.advance(100)
    assert a.owned == partitions("t", 0, 1, 2, 3)
    assert a.causes == ["first join"]
    assert a.membership.state.name == "STABLE"


def test_c5_second_member_takes_half_in_two_rounds() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    b = group.member("b")
    group.settle()
    assert (len(a.owned), len(b.owned)) == (2, 2)
    assert a.causes == [
        "first join",
        "the coordinator asked (heartbeat); joined: b-0002",
        "partitions revoked, second round (KIP-429)",
    ]
    assert [name for name, _ in a.history] == [
        "AssignPartitions",
        "RevokePartitions",
        "AssignPartitions",
        "AssignPartitions",
    ]


def test_c5_busy_member_does_not_delay_others_and_keeps_what_it_works_on() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    a.work(group.now)
    b = group.member("b")
    group.advance(20_000)
    assert b.membership.state.name == "STABLE"
    assert len(a.flowing) == 2, "what stays keeps flowing"
    assert len(a.owned) == 4, "what moves waits for the application"
    assert b.owned == []
    a.poll(group.now)
    group.settle()
    assert (len(a.owned), len(b.owned)) == (2, 2)


def test_c5_busy_member_gives_up_nothing_when_others_only_leave() -> None:
    group = Group({"t": 4})
    a, b = group.member("a"), group.member("b")
    group.settle()
    a.work(group.now)
    b.membership.leave(group.now, reason="done")
    group.advance(10_000)
    assert a.flowing == partitions("t", 0, 1, 2, 3)
    assert not [fact for fact in a.unread if isinstance(fact, m.RevokePartitions)]


def test_eager_group_revokes_all_and_reassigns() -> None:
    group = Group({"t": 4})
    a = group.member("a", partition_assignment_strategy=RANGE)
    group.settle()
    b = group.member("b", partition_assignment_strategy=RANGE)
    group.settle()
    assert a.owned == partitions("t", 0, 1)
    assert b.owned == partitions("t", 2, 3)
    assert ("RevokePartitions", tuple(partitions("t", 0, 1, 2, 3))) in a.history


def test_c5_eager_member_joins_only_after_the_application_let_go() -> None:
    group = Group({"t": 2})
    a = group.member("a", partition_assignment_strategy=RANGE)
    group.settle()
    a.work(group.now)
    group.member("b", partition_assignment_strategy=RANGE)
    group.advance(20_000)
    assert a.membership.state.name == "REVOKING"
    assert len(group.sent(JoinGroupRequest, "a")) == 2  # with and without a member id, at the start
    a.poll(group.now)
    group.settle()
    assert len(a.owned) == 1


@pytest.mark.parametrize("strategy", [RANGE, ("cooperative-sticky",)])
def test_killed_member_is_replaced_after_its_session(strategy: tuple[str, ...]) -> None:
    group = Group({"t": 4})
    a = group.member("a", partition_assignment_strategy=strategy)
    b = group.member("b", partition_assignment_strategy=strategy)
    group.settle()
    group.kill(b)
    died = group.now
    group.settle()
    assert len(a.owned) == 4
    assert group.now - died <= a.config.session_timeout_ms + a.config.heartbeat_interval_ms + 100


def test_b3_heartbeats_continue_through_a_rebalance() -> None:
    group = Group({"t": 2})
    a = group.member("a", partition_assignment_strategy=RANGE)
    group.settle()
    a.work(group.now)
    group.member("b", partition_assignment_strategy=RANGE)
    group.advance(4_000)
    before = len(group.sent(HeartbeatRequest, "a"))
    group.advance(30_000)
    assert len(group.sent(HeartbeatRequest, "a")) - before >= 9
    assert a.membership.active


def test_b4_slow_member_keeps_its_place_beyond_the_session_timeout() -> None:
    group = Group({"t": 4})
    a, b = group.member("a"), group.member("b")
    group.settle()
    generation = a.membership.group.generation_id
    a.work(group.now)
    group.advance(60_000)  # six sessions
    assert a.membership.group.generation_id == generation
    assert len(a.owned) == 2
    assert len(b.owned) == 2


def test_b4_member_that_does_not_poll_leaves_and_comes_back_with_the_next_poll() -> None:
    group = Group({"t": 4})
    a, b = (group.member(name, max_poll_interval_ms=20_000) for name in "ab")
    group.settle()
    a.work(group.now)
    group.advance(25_000)
    assert a.membership.state.name == "STALE"
    assert a.owned == []
    assert len(group.sent(LeaveGroupRequest, "a")) == 1
    assert len(b.owned) == 4
    assert a.membership.needs_polled
    a.poll(group.now)
    group.settle()
    assert len(a.owned) == 2
    assert "poll interval exceeded" in a.causes
    assert [name for name, _ in a.history if name == "LosePartitions"] == ["LosePartitions"]


def test_b4_static_member_that_does_not_poll_says_nothing() -> None:
    group = Group({"t": 4})
    a = group.member("a", max_poll_interval_ms=20_000, group_instance_id="one")
    group.settle()
    a.work(group.now)
    group.advance(20_010)
    assert a.membership.state.name == "STALE"
    assert group.sent(LeaveGroupRequest) == []


def test_b7_leave_gives_up_then_tells_the_coordinator() -> None:
    group = Group({"t": 2})
    a = group.member("a")
    group.settle()
    a.membership.leave(group.now, reason="the consumer is closing")
    assert not a.has_left()
    group.advance(10)
    assert a.has_left()
    assert a.history[-1] == ("RevokePartitions", tuple(partitions("t", 0, 1)))
    (left,) = group.sent(LeaveGroupRequest)
    assert left.members[0].reason == "the consumer is closing"
    assert group.coordinator.groups["g"].is_empty


def test_b7_leave_without_callbacks_does_not_wait_for_the_application() -> None:
    group = Group({"t": 2})
    a = group.member("a")
    group.settle()
    a.work(group.now)
    a.membership.leave(group.now, reason="abandoned", callbacks=False)
    group.advance(10)
    assert a.has_left()
    assert a.owned == []


def test_b7_leave_before_the_first_join_answered_leaves_no_phantom() -> None:
    group = Group({"t": 2}, delay_ms=5)
    a = group.member("a")
    group.advance(16)  # coordinator found, first JoinGroup on its way
    assert a.membership.group.member_id == ""
    a.membership.leave(group.now, reason="gone")
    assert not a.has_left()
    group.advance(50)
    assert a.has_left()
    assert len(group.sent(LeaveGroupRequest)) == 1


def test_lost_connection_during_join_keeps_the_member_id() -> None:
    group = Group({"t": 2})
    a = group.member("a")
    group.settle()
    member_id = a.membership.group.member_id
    lost: list[object] = []

    def lose_first_join(member: object, request: object) -> bool:
        if isinstance(request.message, JoinGroupRequest) and not lost:  # type: ignore[attr-defined]
            lost.append(request)
            return True
        return False

    group.lose = lose_first_join
    a.membership.rebalance(group.now, "test")
    group.settle()
    assert lost
    assert a.membership.group.member_id == member_id
    assert a.causes[-1] == "enforced: test"


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group(version: int) -> None:
    group = Group({"t": 4})
    group.versions = {
        11: version,
        14: min(version, 5),
        12: min(version, 4),
        13: min(version, 5),
        10: min(version, 6),
    }
    a, b = group.member("a"), group.member("b")
    group.settle()
    assert (len(a.owned), len(b.owned)) == (2, 2)
    b.membership.leave(group.now, reason="done")
    group.advance(10_000)
    assert len(a.owned) == 4


def test_new_partitions_are_assigned_by_the_leader() -> None:
    group = Group({"t": 2})
    a, b = group.member("a"), group.member("b")
    group.settle()
    group.topics["t"] = 5
    for member in (a, b):
        member.metadata.cluster = cluster_of({"t": 5})
    group.settle()
    assert len(a.owned) + len(b.owned) == 5
    assert "metadata of subscribed topics changed: t" in a.causes + b.causes


def test_changed_subscription_rejoins_with_the_next_poll() -> None:
    group = Group({"t": 2, "u": 2})
    a = group.member("a", subscribe=("t",))
    group.advance(100)
    a.work(group.now)
    a.subscribe(group.now, ("u",))
    group.advance(100)
    assert a.membership.needs_polled
    a.poll(group.now)
    group.advance(100)
    assert a.owned == partitions("u", 0, 1)
    assert a.causes == ["first join", "subscription changed"]
    assert ("RevokePartitions", tuple(partitions("t", 0, 1))) in a.history


def test_static_member_comes_back_without_a_rebalance() -> None:
    group = Group({"t": 4})
    a = group.member("a", group_instance_id="one")
    b = group.member("b", group_instance_id="two")
    group.settle()
    generation = a.membership.group.generation_id
    group.kill(b)
    again = group.member("b2", group_instance_id="two")
    group.settle()
    assert again.owned == b.owned
    assert a.membership.group.generation_id == generation


def test_fenced_static_member_gives_up_for_good() -> None:
    group = Group({"t": 4})
    a = group.member("a", group_instance_id="one")
    group.settle()
    group.zombies = True
    group.member("thief", group_instance_id="one")
    group.advance(10_000)
    (failed,) = a.of(m.Failed)
    assert failed.fatal
    assert "group.instance.id" in str(failed.error)
    assert a.owned == []


def test_t23_static_member_that_polls_again_within_its_session_has_lost_nothing_to_others() -> None:
    """Its partitions waited for it, so nobody else rebalances: only its own application hears of a loss."""
    group = Group({"t": 4})
    a = group.member("a", max_poll_interval_ms=20_000, group_instance_id="one")
    b = group.member("b", max_poll_interval_ms=20_000, group_instance_id="two")
    group.settle()
    generation, owned, rebalances = b.membership.group.generation_id, list(a.owned), len(b.causes)
    a.work(group.now)
    group.advance(22_000)
    assert a.membership.state.name == "STALE"
    assert a.owned == []
    a.poll(group.now)
    group.settle()
    assert a.owned == owned
    assert (b.membership.group.generation_id, len(b.causes)) == (generation, rebalances)
    assert a.causes[-1] == "poll interval exceeded"
