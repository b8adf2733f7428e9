"""Whole groups in virtual time, consumers and broker: rules C5, B3, B4, B7 end to end."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.simulated import Group, causes, flowing, order, partitions, rebalances, revoked, work

from kadence import AsyncConsumer
from kadence.errors import FencedInstanceIdError, TopicAuthorizationError
from kadence.protocol import error_codes
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.sync_group import SyncGroupRequest
from kadence_testing.simulation import Program

RANGE = "range"
ALL = partitions("t", 0, 1, 2, 3)


def test_one_member_gets_everything() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a")
        group.settle(1)
        assert a.owned == ALL
        assert causes(a) == ["first join"]


def test_c5_second_member_takes_half_in_two_rounds() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a")
        group.settle()
        b = group.member("b")
        group.settle()
        group.run(1)
        assert (len(a.owned), len(b.owned)) == (2, 2)
        first, asked, second = causes(a)
        assert (first, second) == ("first join", "partitions revoked, second round (KIP-429)")
        assert re.fullmatch(r"the coordinator asked \(heartbeat\); joined: b-1-\w+", asked)
        assert [(told.kind, len(told.partitions)) for told in a.told] == [
            ("assigned", 4),
            ("revoked", 2),
            ("assigned", 0),
            ("assigned", 0),
        ]


def test_c5_busy_member_does_not_delay_others_and_keeps_what_it_works_on() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a")
        group.settle()
        work(group, a, 30)
        b = group.member("b")
        group.run(20)
        assert [len(each.added) for each in rebalances(b)] == [0], "it has joined, and waits"
        assert len(flowing(a)) == 2, "what stays keeps flowing"
        assert len(a.owned) == 4, "what moves waits for the application"
        assert b.owned == frozenset()
        group.settle()
        assert (len(a.owned), len(b.owned)) == (2, 2)


def test_c5_busy_member_gives_up_nothing_when_others_only_leave() -> None:
    with Group({"t": 4}) as group:
        a, b = group.member("a"), group.member("b")
        group.settle()
        work(group, a, 15)
        b.stop()
        group.run(10)
        assert flowing(a) == ALL
        group.run(10)
        assert a.held == ALL
        assert not revoked(a)[1:], "once for b, when it came, and nothing since"


def test_eager_group_revokes_all_and_reassigns() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a", partition_assignment_strategy=RANGE)
        group.settle()
        b = group.member("b", partition_assignment_strategy=RANGE)
        group.settle()
        shares = {a.owned, b.owned}
        assert shares == {partitions("t", 0, 1), partitions("t", 2, 3)}
        assert revoked(a) == [ALL]


def test_c5_eager_member_joins_only_after_the_application_let_go() -> None:
    with Group({"t": 2}) as group:
        a = group.member("a", partition_assignment_strategy=RANGE)
        joins = group.observe(JoinGroupRequest, a)
        group.settle()
        work(group, a, 20)
        group.member("b", partition_assignment_strategy=RANGE)
        group.run(15)
        assert len(joins) == 2  # with and without a member id, at the start
        assert group.coordinated.state_name == "PreparingRebalance"
        group.settle()
        assert len(a.owned) == 1
        assert len(joins) == 3


@pytest.mark.parametrize("strategy", [RANGE, "cooperative-sticky"])
def test_killed_member_is_replaced_after_its_session(strategy: str) -> None:
    with Group({"t": 4}) as group:
        a, b = (
            group.member(name, partition_assignment_strategy=strategy, session_timeout_ms=10_000)
            for name in "ab"
        )
        group.settle()
        b.kill()
        assert 10 - 3.1 <= group.settle() <= 10 + 3.1
        assert a.owned == ALL


def test_b3_heartbeats_continue_through_a_rebalance() -> None:
    with Group({"t": 2}) as group:
        a = group.member("a", partition_assignment_strategy=RANGE)
        group.settle()
        work(group, a, 60)
        group.member("b", partition_assignment_strategy=RANGE)
        group.run(4)
        beats = group.observe(HeartbeatRequest, a)
        group.run(30)
        assert len(beats) >= 9
        assert len(group.coordinated.members) == 2


def test_b4_slow_member_keeps_its_place_beyond_the_session_timeout() -> None:
    with Group({"t": 4}) as group:
        a, b = (group.member(name, session_timeout_ms=10_000) for name in "ab")
        group.settle()
        generation = group.coordinated.generation_id
        work(group, a, 65)
        group.run(60)  # six sessions
        assert group.coordinated.generation_id == generation
        assert (len(a.owned), len(b.owned)) == (2, 2)


def test_b4_member_that_does_not_poll_leaves_and_comes_back_with_the_next_poll() -> None:
    with Group({"t": 4}) as group:
        a, b = (group.member(name, max_poll_interval_ms=20_000) for name in "ab")
        group.settle()
        leaves = group.observe(LeaveGroupRequest, a)
        work(group, a, 30)
        group.run(25)
        assert a.owned == frozenset()
        assert len(leaves) == 1
        assert b.owned == ALL
        group.settle()
        assert len(a.owned) == 2
        assert "poll interval exceeded" in causes(a)
        assert [told.kind for told in a.told].count("lost") == 1


def test_b4_static_member_that_does_not_poll_says_nothing() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a", max_poll_interval_ms=20_000, group_instance_id="one", session_timeout_ms=10_000)
        group.settle()
        leaves, beats = group.observe(LeaveGroupRequest), group.observe(HeartbeatRequest)
        work(group, a, 25)
        group.run(20.1)
        assert a.owned == frozenset()
        sent = len(beats)
        group.run(3.5)
        assert (len(leaves), len(beats)) == (0, sent)


def test_b7_leave_gives_up_then_tells_the_coordinator() -> None:
    with Group({"t": 2}) as group:
        a = group.member("a")
        group.settle()
        leaves = group.observe(LeaveGroupRequest)
        a.stop()
        group.until(lambda: a.is_done, 2)
        assert a.told[-1][1:] == ("revoked", tuple(sorted(partitions("t", 0, 1))))
        (left,) = leaves.messages
        assert left.members[0].reason == "the consumer is closing"
        assert group.coordinated.is_empty


def test_b7_leave_before_the_first_join_is_answered_leaves_no_phantom() -> None:
    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, group_id="g", group_protocol="classic"
        ) as consumer:
            await consumer.subscribe("t")
            await consumer.poll(0.5)

    with Group({"t": 2}) as group:
        group.broker.core.faults.delay(JoinGroupRequest, 1)
        joins, leaves = group.observe(JoinGroupRequest), group.observe(LeaveGroupRequest)
        a = group.start("a", main)
        group.until(lambda: a.is_done, 20)
        group.run(1)
        assert (len(joins), len(leaves)) == (1, 1)
        assert group.coordinated.is_empty
        assert not group.coordinated.pending_joins


def test_lost_connection_during_join_keeps_the_member_id() -> None:
    with Group({"t": 2}) as group:
        a = group.member("a")
        group.settle()
        members = set(group.coordinated.members)
        with group.broker.core.faults.disconnect(JoinGroupRequest, times=1) as lost:
            order(a, lambda consumer: consumer.enforce_rebalance("test"))
            group.until(lambda: causes(a)[-1] == "enforced: test")
        assert lost.hits == 1
        assert set(group.coordinated.members) == members


def test_a_lost_answer_to_a_join_costs_no_partition() -> None:
    """As with Kafka's client, which sends no heartbeat until the next answer to a join has come."""
    with Group({"t": 4}) as group:
        config: dict[str, Any] = dict.fromkeys(("retry_backoff_ms", "retry_backoff_max_ms"), 1_000)
        config["heartbeat_interval_ms"] = 100
        a, b = group.member("a", **config), group.member("b", **config)
        group.settle()
        owned = (a.owned, b.owned)
        with group.broker.core.faults.truncate(JoinGroupRequest, 1, times=1) as lost:
            order(b, lambda consumer: consumer.enforce_rebalance("test"))
            group.until(lambda: lost.hits == 1)
        group.settle()
        assert (a.owned, b.owned) == owned
        assert "lost" not in {told.kind for told in [*a.told, *b.told]}


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group(version: int) -> None:
    versions = {
        JoinGroupRequest: version,
        SyncGroupRequest: min(version, 5),
        HeartbeatRequest: min(version, 4),
        LeaveGroupRequest: min(version, 5),
        OffsetFetchRequest: max(1, min(version, 7)),
    }
    with Group({"t": 4}, versions=versions) as group:
        joins = group.observe(JoinGroupRequest)
        a, b = group.member("a"), group.member("b")
        group.settle()
        assert {call.version for call in joins.calls} == {version}
        assert (len(a.owned), len(b.owned)) == (2, 2)
        b.stop()
        group.until(lambda: b.is_done)
        group.settle(10)
        assert a.owned == ALL


def test_new_partitions_are_assigned_by_the_leader() -> None:
    with Group({"t": 2}) as group:
        a, b = (group.member(name, metadata_max_age_ms=1_000) for name in "ab")
        group.settle()
        group.add_partitions("t", 5)
        group.settle()
        assert len(a.owned) + len(b.owned) == 5
        group.run(1)
        assert "metadata of subscribed topics changed: t" in causes(a) + causes(b)


def test_changed_subscription_rejoins_with_the_next_poll() -> None:
    with Group({"t": 2, "u": 2}) as group:
        a = group.member("a")
        group.until(lambda: a.held == partitions("t", 0, 1))

        async def subscribe(consumer: AsyncConsumer) -> None:
            await consumer.subscribe("u", listener=a.listener)

        a.order(subscribe)
        group.until(lambda: a.held == partitions("u", 0, 1), 5)
        assert causes(a) == ["first join", "subscription changed"]
        assert revoked(a) == [partitions("t", 0, 1)]


def test_static_member_comes_back_without_a_rebalance() -> None:
    with Group({"t": 4}) as group:
        a = group.member("a", group_instance_id="one")
        b = group.member("b", group_instance_id="two")
        group.settle()
        generation, owned = group.coordinated.generation_id, b.owned
        b.kill()
        b.restart()
        group.settle()
        group.run(20)
        assert b.owned == owned
        assert group.coordinated.generation_id == generation
        assert len(a.owned) == 2


@pytest.mark.parametrize("leads", [True, False])
def test_what_a_static_member_gave_up_before_it_was_killed_finds_its_owner(leads: bool) -> None:
    """It gave a partition up in the first round, and is killed before it asks for the second one, which it owes."""
    with Group({"t": 3}) as group:
        names = ("a", "b") if leads else ("b", "a")
        members = {name: group.member(name, group_instance_id=name) for name in names}
        group.settle()
        a, b = members["a"], members["b"]
        assert (len(a.owned), len(b.owned)) == (2, 1)
        assert group.coordinated.leader_id.startswith(names[0])
        new = group.member("new")
        group.until(lambda: len(a.held) == 1)
        a.kill()
        a.restart()
        assert group.settle() < 10
        assert [len(each.owned) for each in (a, b, new)] == [1, 1, 1]
        assert causes(a)[-1].startswith("no member has t-")


@pytest.mark.parametrize("strategy", ["cooperative-sticky", RANGE])
def test_a_static_member_that_comes_back_with_more_topics_gets_them(strategy: str) -> None:
    """The coordinator gives it its old place, for the assignor is the same, and no rebalance follows from that."""
    with Group({"t": 2, "u": 2}) as group:
        a = group.member("a", ("t", "u"), group_instance_id="one", partition_assignment_strategy=strategy)
        group.settle()

        async def subscribe(consumer: AsyncConsumer) -> None:
            await consumer.subscribe("u", listener=a.listener)

        a.order(subscribe)
        group.until(lambda: causes(a)[1:] == ["subscription changed"], 10)
        a.kill()
        a.restart()
        assert group.settle() < 10
        assert causes(a) == ["first join", "no member has t-0, t-1"]


def test_a_static_leader_gets_the_partitions_that_were_made_while_it_was_down() -> None:
    """It is told to skip the assignment, so it does not compare the topics with those that it assigned."""
    with Group({"t": 2}) as group:
        a = group.member("a", group_instance_id="one", partition_assignment_strategy=RANGE)
        group.settle()
        a.kill()
        group.add_partitions("t", 3)
        a.restart()
        assert group.settle() < 10
        assert causes(a) == ["first join", "no member has t-2"]


def test_fenced_static_member_gives_up_for_good() -> None:
    async def main(program: Program) -> str:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers,
            group_id="g",
            group_protocol="classic",
            group_instance_id="one",
        ) as consumer:
            await consumer.subscribe("t", listener=program.attach(consumer))
            try:
                while True:
                    await consumer.poll(1)
            except FencedInstanceIdError as error:
                assert consumer.assignment() == frozenset()
                return str(error)

    with Group({"t": 4}) as group:
        a = group.start("a", main)
        group.settle()
        thief = group.member("thief", group_instance_id="one")
        group.until(lambda: a.is_done, 10)
        assert "group.instance.id" in a.result()
        last = rebalances(a)[-1]
        assert last.cause.startswith("fenced: FENCED_INSTANCE_ID (82): another process joined group 'g'")
        assert (frozenset(last.removed), last.assigned, last.generation) == (ALL, (), -1)
        assert thief.owned == ALL


def test_static_member_that_polls_again_within_its_session_has_lost_nothing_to_others() -> None:
    """Its partitions waited for it, so nobody else rebalances: only its own application hears of a loss."""
    with Group({"t": 4}) as group:
        a, b = (
            group.member(name, max_poll_interval_ms=20_000, group_instance_id=name, session_timeout_ms=10_000)
            for name in "ab"
        )
        group.settle()
        group.run(1)
        generation, owned, told = group.coordinated.generation_id, a.owned, len(causes(b))
        work(group, a, 22)
        group.run(21)
        assert a.owned == frozenset()
        group.settle()
        group.run(1)
        assert a.owned == owned
        assert (group.coordinated.generation_id, len(causes(b))) == (generation, told)
        assert causes(a)[-1] == "poll interval exceeded"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_new_subscription_takes_effect_though_each_poll_raises(protocol: str) -> None:
    """The program waits so long after each error that the next one is there already."""

    async def main(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, group_id="g", group_protocol=protocol
        ) as consumer:
            await consumer.subscribe(["denied", "t"], listener=program.attach(consumer))
            errors = 0
            while True:
                try:
                    await consumer.poll(1)
                except TopicAuthorizationError:
                    errors += 1
                    if errors == 2:
                        await consumer.subscribe(["denied", "t", "u"], listener=program.listener)
                    await asyncio.sleep(5)

    with Group({"t": 1, "u": 1, "denied": 1}, protocol=protocol) as group:
        group.broker.core.faults.error(FetchRequest, error_codes.TOPIC_AUTHORIZATION_FAILED, topic="denied")
        group.start("a", main)
        group.settle(60)
