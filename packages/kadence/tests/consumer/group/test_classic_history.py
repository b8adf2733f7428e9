"""The history of rebalances, whatever began them: cause, duration, and what came and went.

What fences a member is in test_group.
"""

from __future__ import annotations

import asyncio
import re

from tests.simulated import Group, causes, order, partitions, rebalances, work

from kadence import AsyncConsumer
from kadence.protocol import error_codes as ec
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence_testing.simulation import Program

ALL = partitions("t", 0, 1, 2, 3)
ASKED = "the coordinator asked (heartbeat)"


def shared() -> tuple[Group, Program, Program]:
    """Two members, each with half."""
    group = Group({"t": 4})
    a = group.member("a")
    group.settle()
    b = group.member("b")
    group.settle()
    group.run(1)
    return group, a, b


def test_join() -> None:
    with Group({"t": 4}, config={"group.initial.rebalance.delay.ms": 3_000}) as group:
        a = group.member("a")
        group.settle()
        (first,) = rebalances(a)
        assert (first.cause, first.generation, frozenset(first.added), first.removed) == (
            "first join",
            1,
            ALL,
            (),
        )
        assert 3.0 <= first.duration < 3.2


def test_another_member_joined_and_left() -> None:
    group, a, b = shared()
    with group:
        _, joined, second_round = rebalances(a)
        assert re.fullmatch(re.escape(ASKED) + r"; joined: b-1-\w+", joined.cause)
        assert (len(joined.removed), joined.added) == (2, ())
        assert second_round.cause == "partitions revoked, second round (KIP-429)"
        b.stop()
        group.until(lambda: b.is_done)
        group.settle()
        group.run(1)
        left = rebalances(a)[-1]
        assert re.fullmatch(re.escape(ASKED) + r"; left: b-1-\w+", left.cause)
        assert left.added == joined.removed
        assert (frozenset(left.assigned), left.removed) == (ALL, ())


def test_a_member_that_follows_does_not_know_who_came() -> None:
    group, _, b = shared()
    with group:
        group.member("c")
        group.settle()
        group.run(1)
        assert ASKED in causes(b)
        assert not any(";" in cause for cause in causes(b))


def test_many_newcomers_are_counted_not_listed() -> None:
    with Group({"t": 4}) as group:
        # Its heartbeats come late, so all the others join in one rebalance.
        a = group.member("a", heartbeat_interval_ms=9_000, session_timeout_ms=30_000)
        group.settle()
        for number in range(8):
            group.member(f"n{number}")
        group.run(15)
        (told,) = {cause for cause in causes(a) if "more" in cause}
        assert told.startswith(f"{ASKED}; joined: n")
        assert told.endswith(" and 3 more")


def test_metadata_changed() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a", metadata_max_age_ms=1_000)
        group.settle()
        group.add_partitions("t", 5)
        group.settle()
        group.run(1)
        last = rebalances(a)[-1]
        assert last.cause == "metadata of subscribed topics changed: t"
        assert frozenset(last.added) == partitions("t", 4)


def test_session_lost() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a", session_timeout_ms=10_000)
        group.settle()
        group.broker.core.faults.error(HeartbeatRequest, ec.UNKNOWN_MEMBER_ID, times=1)
        group.run(20)
        last = rebalances(a)[-1]
        assert last.cause == "session lost: UNKNOWN_MEMBER_ID"
        # All of it was lost, and others may have read it before it came back.
        assert (frozenset(last.removed), frozenset(last.added)) == (ALL, ALL)
        assert [told.kind for told in a.told] == ["assigned", "lost", "assigned"]


def test_poll_timeout() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a", max_poll_interval_ms=20_000)
        group.settle()
        work(group, a, 25)
        group.run(27)
        last = rebalances(a)[-1]
        assert last.cause == "poll interval exceeded"
        assert (frozenset(last.removed), frozenset(last.added)) == (ALL, ALL)
        assert last.duration < 1


def test_kip_800_the_cause_is_the_reason_that_the_coordinator_is_told() -> None:
    with Group({"t": 4}) as group:
        joins = group.observe(JoinGroupRequest)
        a = group.member("a")
        group.settle()
        group.member("b")
        group.settle()
        order(a, lambda consumer: consumer.enforce_rebalance("x" * 300))
        group.run(5)
        last = rebalances(a)[-1]
        assert (last.cause, last.added, last.removed) == ("enforced: " + "x" * 300, (), ())
        reasons = [call.message.reason for call in joins.calls if call.client_id == "a-1"]
        assert reasons[0] == "first join"
        assert ASKED in reasons
        assert reasons[-1] == ("enforced: " + "x" * 300)[:255]


def test_what_was_left_by_ones_own_will_is_not_counted_as_lost() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a")
        group.settle()

        async def leave_and_come_back(consumer: AsyncConsumer) -> None:
            await consumer.unsubscribe()
            await asyncio.sleep(1)
            await consumer.subscribe("t", listener=a.listener)

        a.order(leave_and_come_back)
        group.run(10)
        assert (rebalances(a)[-1].removed, frozenset(rebalances(a)[-1].added)) == ((), ALL)
        assert [told.kind for told in a.told] == ["assigned", "revoked", "assigned"]
