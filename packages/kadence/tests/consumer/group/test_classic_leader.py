"""A classic member that leads: topics, assignors (of one's own too), and what becomes of their failures."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulated import Group, causes, order
from tests.worlds.classic import Bench, lead, member_of
from tests.worlds.cluster import cluster_of, partitions

from kadence.consumer.assignors import Assignor, LastAssignment, RebalanceProtocol
from kadence.consumer.assignors.embedded import decode_subscription, encode_assignment
from kadence.consumer.group.classic_joining import JoiningState
from kadence.consumer.group.membership import HeartbeatOutcome
from kadence.errors import (
    AssignorError,
    MalformedMessageError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponseMember
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.sync_group import SyncGroupRequest
from kadence.types import TopicPartition


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_leader_assigns_all_members_and_asks_for_all_their_topics(bench: Bench) -> None:
    lead(bench, member_of("m-1", "t"), member_of("m-2", "t", "u"))
    assert bench.member.metadata.wanted == frozenset("tu")
    assert bench.turn() == [], "the assignor runs on the helper thread"
    assignments = {a.member_id: a.assignment for a in bench.ask(SyncGroupRequest).message.assignments}
    assert set(assignments) == {"m-1", "m-2"}
    assert assignments["m-1"] == encode_assignment(partitions("t", 0, 1, 2)) or assignments["m-1"]


def test_leader_waits_for_topics_it_does_not_know_but_not_for_ever(bench: Bench) -> None:
    lead(bench, member_of("m-1", "t"), member_of("m-2", "new"))
    assert bench.turn() == []
    assert [request.name for request in bench.turn(4_999)] == ["Heartbeat"]
    bench.turn(1)
    bench.ask(SyncGroupRequest)


def test_leader_goes_on_as_soon_as_the_topics_are_known(bench: Bench) -> None:
    lead(bench, member_of("m-1", "t"), member_of("m-2", "new"))
    bench.turn()
    bench.member.metadata.cluster = cluster_of({"t": 1, "new": 1})
    bench.turn(10)
    bench.ask(SyncGroupRequest)


def test_leader_cannot_read_a_member(bench: Bench) -> None:
    lead(bench, member_of("m-1", "t"), JoinGroupResponseMember(member_id="odd", metadata=b"\0"))
    bench.turn()
    assert isinstance(bench.failed, MalformedMessageError)
    assert "odd" in str(bench.failed)


class Custom(Assignor):
    """An assignor of somebody's own, which gives what the test says."""

    name = "custom"

    def __init__(self, gives: Any = None, says: Any = None) -> None:
        self._gives, self._says = gives, says

    def user_data(self, last: LastAssignment) -> bytes | None:
        data: bytes | None = _said(self._says)
        return data

    def assign(self, partitions: Any, members: Any) -> Any:
        return _said(self._gives)


def _said(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def custom(bench: Bench) -> SyncGroupRequest | None:
    """Lead with one's own assignor; what is sent after the helper thread ran it."""
    bench.turn()
    lead(bench, member_of("m-1", "t"), member_of("m-2", "u"), protocol_name="custom")
    bench.turn()
    syncs = [r.message for r in bench.turn() if isinstance(r.message, SyncGroupRequest)]
    return syncs[0] if syncs else None


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        (ZeroDivisionError("my bug"), "failed: ZeroDivisionError"),
        (None, "None is not a dict"),
        ({"stranger": []}, "no member 'stranger'"),
        ({"m-1": [("t", 0)]}, "is not a TopicPartition"),
        ({"m-1": TopicPartition("t", 0)}, "is not a TopicPartition"),
        ({"m-1": 5}, "is not a TopicPartition"),
        ({"m-1": [TopicPartition("t", 4)]}, "does not exist"),
        ({"m-1": [TopicPartition("u", 0)]}, "does not read 'u'"),
    ],
)
def test_assignor_that_fails_is_told_with_its_cause_and_leaves_the_group_to_others(
    gives: Any, words: str
) -> None:
    bench = Bench(partition_assignment_strategy=(Custom(gives),))
    assert custom(bench) is None
    assert isinstance(bench.failed, AssignorError)
    assert words in str(bench.failed)
    assert "'custom'" in str(bench.failed)
    assert bench.failed.__cause__ is (gives if isinstance(gives, Exception) else None)
    (left,) = bench.turn()
    assert left.message.members[0].member_id == "m-1"
    assert bench.turn() == [], "each attempt is a rebalance for all: not at once"
    bench.turn(130)
    bench.ask(JoinGroupRequest)


def test_assignor_that_fails_while_its_member_leaves_ends_the_membership_at_once() -> None:
    """Nobody else would sync the group, so the commits of its callback would wait for nothing."""

    class Cooperative(Custom):
        protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    bench = Bench(partition_assignment_strategy=(Cooperative(ZeroDivisionError("my bug")),))
    bench.turn()
    bench.stable(0, 1, protocol_name="custom")
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    bench.turn()
    lead(bench, member_of("m-1", "t"), generation=2, protocol_name="custom")
    bench.member.busy = True
    bench.ship.leave(bench.now, reason="bye")
    assert bench.ship.state is JoiningState.LEAVING
    bench.turn()
    bench.turn()
    goodbye = bench.ask(LeaveGroupRequest)
    assert goodbye.message.members[0].member_id == "m-1"
    assert bench.callbacks[-2:] == ["RevokePartitions", "LosePartitions"]
    assert isinstance(bench.failed, AssignorError)
    assert not bench.ship.needs_polled


def test_assignor_that_gives_a_partition_twice() -> None:
    one = TopicPartition("t", 0)
    bench = Bench(partition_assignment_strategy=(Custom({"m-1": [one], "m-2": [one]}),))
    bench.turn()
    lead(bench, member_of("m-1", "t"), member_of("m-2", "t"), protocol_name="custom")
    bench.turn()
    bench.turn()
    assert "t-0 is given to m-1 and to m-2" in str(bench.failed)


def test_assignor_of_ones_own_assigns_and_a_member_left_out_gets_nothing() -> None:
    bench = Bench(partition_assignment_strategy=(Custom({"m-1": [TopicPartition("t", 2)]}),))
    sync = custom(bench)
    assert sync is not None
    assert {a.member_id: a.assignment for a in sync.assignments} == {
        "m-1": encode_assignment(partitions("t", 2)),
        "m-2": encode_assignment(()),
    }


def test_assignor_that_does_not_end_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    lead(bench, member_of("m-1", "t"))
    first = bench.ship.poll(bench.now)  # the job waits, as if it ran
    assert first.wake_at == bench.now + 10_000
    for _ in range(3):
        bench.now += 10_000
        bench.ship.poll(bench.now)
    told = [each.getMessage() for each in caplog.records if "has been running" in each.getMessage()]
    assert told == [
        "the assignor 'cooperative-sticky' has been running for 10 s; the whole group is waiting for it"
    ]
    bench.ask(SyncGroupRequest)


def test_user_data_of_ones_own_assignor_is_made_on_the_helper_thread() -> None:
    bench = Bench(partition_assignment_strategy=(Custom(says=b"mine"),))
    assert bench.turn() == []
    message = bench.ask(JoinGroupRequest).message
    assert decode_subscription(message.protocols[0].metadata).user_data == b"mine"


@pytest.mark.parametrize(("says", "words"), [(KeyError("x"), "user_data"), ("text", "not bytes")])
def test_user_data_that_fails_is_told(says: Any, words: str) -> None:
    bench = Bench(partition_assignment_strategy=(Custom(says=says),))
    bench.turn()
    bench.turn()
    assert isinstance(bench.failed, AssignorError)
    assert words in str(bench.failed)


class Swapping(Assignor):
    """Cooperative, and gives each partition to another member each time."""

    name = "swapping"
    protocols = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        self.turn = 0

    def assign(self, partitions: Any, members: Any) -> Any:
        self.turn += 1
        chosen = sorted(members)[self.turn % len(members)]
        return {chosen: [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]}


def test_kip_429_cooperative_assignor_of_ones_own_never_makes_two_owners() -> None:
    """The simulation ends if a generation gives a partition to two members, or one is given up by who never had it."""
    with Group({"t": 4}) as group:
        a, b = (group.member(name, partition_assignment_strategy=(Swapping(),)) for name in "ab")
        group.settle()
        for _ in range(4):
            order(a, lambda consumer: consumer.enforce_rebalance("again"))
            group.run(20)
            assert not a.held & b.held
        assert a.held | b.held == set(partitions("t", 0, 1, 2, 3))
        assert "partitions revoked, second round (KIP-429)" in causes(a) + causes(b)


def test_skip_assignment_keeps_what_the_group_has(bench: Bench) -> None:
    lead(bench, member_of("m-1", "t"), skip_assignment=True)
    request = bench.ask(SyncGroupRequest)
    assert request.message.assignments == []
    bench.synced(request, 0, 1)
    bench.turn()
    bench.member.metadata.cluster = cluster_of({"t": 9})
    assert bench.ask(JoinGroupRequest).message.reason == "metadata of subscribed topics changed: t"


def test_assignment_computed_for_an_abandoned_rebalance_is_dropped(bench: Bench) -> None:
    lead(bench, member_of("m-1", "t"))
    bench.ship.poll(bench.now)  # the job waits
    assert bench.heartbeat(ec.REBALANCE_IN_PROGRESS) is HeartbeatOutcome.ALIVE
    bench.ask(JoinGroupRequest)
    assert bench.turn() == []
    assert bench.ship.state is JoiningState.PREPARING_REBALANCE
