"""The history of rebalances, whatever began them: cause, duration, and what came and went."""

from __future__ import annotations

from tests.worlds.classic_group import Group
from tests.worlds.cluster import cluster_of, partitions
from tests.worlds.members import Member

from kadence.connection.request import Request
from kadence.consumer.border import messages as m
from kadence.protocol import error_codes as ec
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.join_group import JoinGroupRequest

ALL = tuple(partitions("t", 0, 1, 2, 3))


def history(member: Member) -> list[m.Rebalance]:
    return [fact.rebalance for fact in member.of(m.RebalanceFinished)]


def shared() -> tuple[Group, Member, Member]:
    """Two members, each with half."""
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    b = group.member("b")
    group.settle()
    return group, a, b


def test_join() -> None:
    group = Group({"t": 4}, initial_rebalance_delay_ms=3_000)
    a = group.member("a")
    group.settle()
    (first,) = history(a)
    assert (first.cause, first.generation, first.added, first.removed) == ("first join", 1, ALL, ())
    assert 3.0 <= first.duration < 3.2


def test_another_member_joined_and_left() -> None:
    group, a, b = shared()
    _, joined, second_round = history(a)
    assert joined.cause == "the coordinator asked (heartbeat); joined: b-0002"
    assert (len(joined.removed), joined.added) == (2, ())
    assert second_round.cause == "partitions revoked, second round (KIP-429)"
    b.membership.leave(group.now, reason="done")
    group.advance(10_000)
    left = history(a)[-1]
    assert left.cause == "the coordinator asked (heartbeat); left: b-0002"
    assert left.added == joined.removed
    assert (left.assigned, left.removed) == (ALL, ())


def test_a_member_that_follows_does_not_know_who_came() -> None:
    group, _, b = shared()
    group.member("c")
    group.settle()
    assert "the coordinator asked (heartbeat)" in b.causes
    assert not any(";" in cause for cause in b.causes)


def test_many_newcomers_are_counted_not_listed() -> None:
    group = Group({"t": 4}, initial_rebalance_delay_ms=500)
    a = group.member("a")
    group.settle()
    a.work(group.now)  # so that all of them come in one rebalance
    for number in range(8):
        group.member(f"n{number}")
    group.advance(10)
    a.poll(group.now)
    group.advance(10_000)
    (told,) = {cause for cause in a.causes if "more" in cause}
    assert told.startswith("the coordinator asked (heartbeat); joined: n")
    assert told.endswith(" and 3 more")


def test_metadata_changed() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    group.topics["t"] = 5
    a.metadata.cluster = cluster_of({"t": 5})
    group.settle()
    last = history(a)[-1]
    assert last.cause == "metadata of subscribed topics changed: t"
    assert last.added == tuple(partitions("t", 4))


def test_session_lost() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    told: list[Request] = []

    def expelled(member: Member, request: Request) -> HeartbeatResponse | None:
        if isinstance(request.message, HeartbeatRequest) and not told:
            told.append(request)
            return HeartbeatResponse(error_code=ec.UNKNOWN_MEMBER_ID)
        return None

    group.refuse = expelled
    group.advance(20_000)
    last = history(a)[-1]
    assert last.cause == "session lost: UNKNOWN_MEMBER_ID"
    # All of it was lost, and others may have read it before it came back.
    assert (last.removed, last.added) == (ALL, ALL)


def test_fenced() -> None:
    group = Group({"t": 4})
    a = group.member("a", group_instance_id="one")
    group.settle()
    group.zombies = True
    group.member("thief", group_instance_id="one")
    group.advance(10_000)
    last = history(a)[-1]
    assert last.cause.startswith("fenced: FENCED_INSTANCE_ID (82): another process joined group 'g'")
    assert (last.removed, last.assigned, last.generation) == (ALL, (), -1)


def test_poll_timeout() -> None:
    group = Group({"t": 4})
    a = group.member("a", max_poll_interval_ms=20_000)
    group.settle()
    a.work(group.now)
    group.advance(25_000)
    a.poll(group.now)
    group.settle()
    last = history(a)[-1]
    assert last.cause == "poll interval exceeded"
    assert (last.removed, last.added) == (ALL, ALL)
    assert last.duration < 1


def test_enforced() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    a.membership.rebalance(group.now, "the cache is cold")
    group.settle()
    last = history(a)[-1]
    assert (last.cause, last.added, last.removed) == ("enforced: the cache is cold", (), ())


def test_kip_800_the_cause_is_the_reason_that_the_coordinator_is_told() -> None:
    group, a, _ = shared()
    a.membership.rebalance(group.now, "x" * 300)
    group.settle()
    reasons = [message.reason for message in group.sent(JoinGroupRequest, "a")]
    assert reasons[0] == "first join"
    assert "the coordinator asked (heartbeat)" in reasons
    assert reasons[-1] == ("enforced: " + "x" * 300)[:255]


def test_what_was_left_by_ones_own_will_is_not_counted_as_lost() -> None:
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    a.membership.leave(group.now, reason="unsubscribe() was called")
    group.advance(100)
    a.subscribe(group.now, ("t",))
    group.settle()
    assert (history(a)[-1].removed, history(a)[-1].added) == ((), ALL)
