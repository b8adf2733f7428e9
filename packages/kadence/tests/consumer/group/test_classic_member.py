"""One classic member: how it reacts to each answer, judged against what was sent (C5, B6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.classic import NOW, Bench, member_of
from tests.worlds.cluster import NODE, partitions

from kadence.connection.request import Completed, ConnectionPurpose
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import without_void
from kadence.consumer.assignors import RebalanceProtocol
from kadence.consumer.assignors.embedded import decode_subscription
from kadence.consumer.group.classic_joining import TRANSITIONS, JoiningState
from kadence.consumer.group.membership import HeartbeatOutcome
from kadence.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    DisconnectedError,
    GroupAuthorizationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MalformedMessageError,
    UnsupportedVersionError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence.types import GroupMetadata, TopicPartition


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ------------------------------------------------------------ joining


def test_join_waits_for_the_application_to_poll() -> None:
    bench = Bench()
    bench.member.busy = True
    assert bench.turn() == []
    assert bench.ship.needs_polled
    bench.member.busy = False
    bench.ask(JoinGroupRequest)
    assert not bench.ship.needs_polled


def test_join_request_says_everything() -> None:
    bench = Bench(client_rack="r1", session_timeout_ms=6_000, max_poll_interval_ms=50_000)
    request = bench.ask(JoinGroupRequest)
    message = request.message
    assert request.purpose is ConnectionPurpose.JOIN
    assert (message.session_timeout_ms, message.rebalance_timeout_ms) == (6_000, 50_000)
    assert (message.member_id, message.protocol_type, message.reason) == ("", "consumer", "first join")
    assert [p.name for p in message.protocols] == ["cooperative-sticky"]
    said = decode_subscription(message.protocols[0].metadata)
    assert (said.topics, said.owned, said.generation, said.rack) == (frozenset("t"), (), -1, "r1")


@pytest.mark.parametrize(
    ("config", "parked"),
    [
        ({"max_poll_interval_ms": 300_000}, 305_000),
        ({"max_poll_interval_ms": 1_000, "request_timeout_ms": 40_000}, 40_000),
        ({"max_poll_interval_ms": 1_000, "session_timeout_ms": 60_000}, 65_000),
    ],
)
def test_join_may_be_parked_for_the_rebalance_timeout(config: dict[str, Any], parked: int) -> None:
    assert Bench(**config).ask(JoinGroupRequest).deadline == NOW + parked


def test_member_id_required_is_adopted_at_once(bench: Bench) -> None:
    request = bench.ask(JoinGroupRequest)
    bench.answer(request, JoinGroupResponse(error_code=ec.MEMBER_ID_REQUIRED, member_id="given"))
    assert bench.ask(JoinGroupRequest).message.member_id == "given"


@pytest.mark.parametrize(
    "code",
    [
        ec.COORDINATOR_LOAD_IN_PROGRESS,
        ec.REBALANCE_IN_PROGRESS,
        ec.NOT_COORDINATOR,
        ec.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_join_refused_for_now_is_repeated_after_a_backoff(bench: Bench, code: int) -> None:
    bench.answer(bench.ask(JoinGroupRequest), JoinGroupResponse(error_code=code))
    gone = code in (ec.NOT_COORDINATOR, ec.COORDINATOR_NOT_AVAILABLE)
    assert (bench.member.coordinator.node_id is None) == gone
    bench.find(NODE)
    assert bench.turn() == []
    bench.ask(JoinGroupRequest, 130)
    assert bench.member.background_events == []


def test_join_without_an_answer_forgets_the_coordinator_and_keeps_the_member_id(bench: Bench) -> None:
    bench.stable(0)
    bench.ship.rebalance(bench.now, "test")
    bench.fail(bench.ask(JoinGroupRequest), DisconnectedError("gone"))
    assert bench.member.coordinator.node_id is None
    bench.find(NODE)
    again = bench.ask(JoinGroupRequest, 130).message
    assert again.member_id == "m-1"
    assert decode_subscription(again.protocols[0].metadata).owned == (TopicPartition("t", 0),)


def test_unknown_member_id_without_an_id_does_not_spin(bench: Bench) -> None:
    bench.answer(bench.ask(JoinGroupRequest), JoinGroupResponse(error_code=ec.UNKNOWN_MEMBER_ID))
    assert bench.turn() == []
    bench.ask(JoinGroupRequest, 130)


def test_unknown_member_id_of_a_rejoin_starts_over_at_once(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    bench.answer(bench.ask(JoinGroupRequest), JoinGroupResponse(error_code=ec.UNKNOWN_MEMBER_ID))
    assert bench.member.owned == []
    assert bench.callbacks[-1] == "LosePartitions"
    again = bench.ask(JoinGroupRequest).message
    assert (again.member_id, again.reason) == ("", "session lost: UNKNOWN_MEMBER_ID")


def refusal(code: int) -> Callable[[Bench], None]:
    return lambda bench: bench.answer(bench.ask(JoinGroupRequest), JoinGroupResponse(error_code=code))


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ec.INCONSISTENT_GROUP_PROTOCOL, InconsistentGroupProtocolError, "partition.assignment.strategy"),
        (ec.INVALID_SESSION_TIMEOUT, InvalidSessionTimeoutError, "session.timeout.ms = 10000"),
        (ec.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError, "not allowed"),
        (ec.GROUP_MAX_SIZE_REACHED, BrokerError, "group.max.size"),
        (ec.INVALID_GROUP_ID, BrokerError, "group.id"),
        (999, BrokerError, "UNKNOWN(999)"),
    ],
)
def test_b6_refused_for_good_is_told_and_tried_again_by_the_next_poll(
    bench: Bench, code: int, kind: type[Exception], words: str
) -> None:
    refusal(code)(bench)
    assert isinstance(bench.failed, kind)
    assert words in str(bench.failed)
    assert bench.ship.state is JoiningState.UNJOINED
    bench.member.busy = True
    assert bench.turn(60_000) == []
    bench.member.busy = False
    bench.ask(JoinGroupRequest)


def test_static_membership_on_an_old_broker_says_what_to_do() -> None:
    bench = Bench(group_instance_id="one")
    bench.fail(bench.ask(JoinGroupRequest), UnsupportedVersionError("JoinGroup 4"))
    assert "group.instance.id" in str(bench.failed)


def test_authentication_failure_is_told(bench: Bench) -> None:
    bench.fail(bench.ask(JoinGroupRequest), AuthenticationError("no"))
    assert isinstance(bench.failed, AuthenticationError)


def test_b6_coordinator_that_may_not_be_looked_up_fails_the_join() -> None:
    bench = Bench()
    bench.member.coordinator.node = None
    bench.turn()
    request = bench.ask(FindCoordinatorRequest)
    answer = FindCoordinatorResponse(error_code=ec.GROUP_AUTHORIZATION_FAILED)
    bench.member.complete(bench.now, Completed(request, answer, None, 3, bench.now))
    assert isinstance(bench.failed, GroupAuthorizationError)
    assert bench.ship.state is JoiningState.UNJOINED
    assert bench.ship.needs_polled


@pytest.mark.parametrize("said", [{"protocol_name": "strange"}, {"protocol_type": "connect"}])
def test_join_success_of_another_protocol_is_inconsistent(bench: Bench, said: dict[str, Any]) -> None:
    bench.joined(bench.ask(JoinGroupRequest), **said)
    assert isinstance(bench.failed, InconsistentGroupProtocolError)


def test_pattern_without_a_match_does_not_join_until_there_is_one() -> None:
    bench = Bench(())
    bench.member.subscription.subscribe(frozenset(), "x.*", has_listener=False)
    bench.ship.subscription_changed(NOW)
    assert bench.turn() == []
    bench.member.subscription.topics = frozenset({"t"})
    bench.ask(JoinGroupRequest)


def test_c5_pattern_that_matches_more_rejoins_in_the_background(bench: Bench) -> None:
    bench.stable(0)
    bench.member.busy = True
    bench.member.subscription.topics = frozenset({"t", "u"})
    assert bench.ask(JoinGroupRequest).message.reason == "subscription changed"


def test_coordinator_that_moves_during_a_join_is_followed(bench: Bench) -> None:
    first = bench.ask(JoinGroupRequest)
    bench.find(8)
    second = bench.ask(JoinGroupRequest)
    assert second.node_id == 8
    bench.joined(first, member_id="stale")
    assert bench.ship.group.member_id == "", "T2: the answer to a join that was given up"


# ------------------------------------------------------------ sync


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (ec.REBALANCE_IN_PROGRESS, "the coordinator asked (sync)"),
        (ec.COORDINATOR_LOAD_IN_PROGRESS, "COORDINATOR_LOAD_IN_PROGRESS"),
        (ec.NOT_COORDINATOR, "NOT_COORDINATOR"),
        (ec.COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_sync_refused_for_now_joins_again_and_keeps_everything(bench: Bench, code: int, cause: str) -> None:
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.answer(bench.ask(SyncGroupRequest), SyncGroupResponse(error_code=code))
    bench.find(NODE)
    message = bench.ask(JoinGroupRequest, 130).message
    assert message.member_id == "m-1"
    assert bench.member.flowing == partitions("t", 0, 1)
    assert bench.callbacks == ["AssignPartitions"]
    assert bench.member.of(m.Failed) == []
    del cause


@pytest.mark.parametrize(("code", "kept"), [(ec.UNKNOWN_MEMBER_ID, ""), (ec.ILLEGAL_GENERATION, "m-1")])
def test_sync_says_that_we_are_not_who_we_were(bench: Bench, code: int, kept: str) -> None:
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.answer(bench.ask(SyncGroupRequest), SyncGroupResponse(error_code=code))
    assert bench.member.owned == []
    again = bench.ask(JoinGroupRequest).message
    assert again.member_id == kept
    assert decode_subscription(again.protocols[0].metadata).generation == -1


def test_sync_without_an_answer_joins_again(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    bench.fail(bench.ask(SyncGroupRequest), DisconnectedError("gone"))
    bench.find(NODE)
    assert bench.ask(JoinGroupRequest, 130).message.member_id == "m-1"


def test_sync_refused_for_good(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    bench.answer(bench.ask(SyncGroupRequest), SyncGroupResponse(error_code=ec.GROUP_AUTHORIZATION_FAILED))
    assert isinstance(bench.failed, GroupAuthorizationError)
    (goodbye,) = [r for r in bench.turn() if isinstance(r.message, LeaveGroupRequest)]
    assert goodbye.message.members[0].member_id == "m-1", "or its place would stay taken for a session"


def test_sync_of_another_protocol_is_inconsistent(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    bench.answer(
        bench.ask(SyncGroupRequest), SyncGroupResponse(protocol_type="consumer", protocol_name="range")
    )
    assert isinstance(bench.failed, InconsistentGroupProtocolError)


def test_assignment_that_cannot_be_read(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    bench.answer(bench.ask(SyncGroupRequest), SyncGroupResponse(assignment=b"\0\1\0"))
    assert isinstance(bench.failed, MalformedMessageError)


def test_assignment_of_topics_that_are_no_longer_subscribed_is_not_installed(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    request = bench.ask(SyncGroupRequest)
    bench.member.busy = True
    bench.member.subscribe(bench.now, ("u",))
    bench.synced(request, 0, 1)
    assert bench.member.owned == []
    assert decode_subscription(bench.ask(JoinGroupRequest).message.protocols[0].metadata).topics == frozenset(
        "u"
    )


def test_mistaken_leader_does_not_make_us_spin(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    bench.synced(bench.ask(SyncGroupRequest), 0, topic="never-subscribed")
    assert bench.turn() == []
    bench.ask(JoinGroupRequest, 130)


def test_history_tells_cause_times_and_what_changed(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    request = bench.ask(SyncGroupRequest, 40)
    bench.synced(request, 0, 1)
    bench.ship.rebalance(bench.now, "more")
    bench.joined(bench.ask(JoinGroupRequest, 5), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1, 2)
    first, second = (event.rebalance for event in bench.member.of(m.RebalanceFinished))
    assert (first.cause, first.started_monotonic_ms, first.ended_monotonic_ms, first.generation) == (
        "first join",
        NOW,
        NOW + 40,
        1,
    )
    assert first.added == tuple(partitions("t", 0, 1))
    assert second.cause == "enforced: more"
    assert (second.added, second.removed) == ((TopicPartition("t", 2),), (TopicPartition("t", 0),))
    assert bench.member.of(m.RebalanceFinished)[1].group == GroupMetadata("g", 2, "m-1")


# ------------------------------------------------------------ callbacks


def test_c5_revoked_partition_stops_at_once_and_goes_when_the_application_let_go(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.member.busy = True
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    assert bench.member.flowing == partitions("t", 1)
    assert bench.member.owned == partitions("t", 0, 1)
    assert bench.turn() == []
    bench.member.busy = False
    assert bench.ask(JoinGroupRequest).message.reason == "partitions revoked, second round (KIP-429)"
    assert bench.member.owned == partitions("t", 1)


def test_c5_partition_still_worked_on_is_claimed_by_a_join_in_between(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.member.busy = True
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    message = bench.ask(JoinGroupRequest).message
    assert decode_subscription(message.protocols[0].metadata).owned == tuple(partitions("t", 0, 1))


def test_c5_given_up_while_a_join_claimed_it_brings_another_round(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.member.busy = True
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    claiming = bench.ask(JoinGroupRequest)
    bench.member.busy = False
    assert bench.turn() == []
    assert bench.member.owned == partitions("t", 1)
    bench.joined(claiming, 3)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    again = bench.ask(JoinGroupRequest).message
    assert decode_subscription(again.protocols[0].metadata).owned == tuple(partitions("t", 1))


def test_c5_assigned_again_while_it_is_being_given_up_comes_back_as_new(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.member.busy = True
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    old = bench.member.subscription.partitions[TopicPartition("t", 0)]
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    bench.joined(bench.ask(JoinGroupRequest), 3)
    bench.synced(bench.ask(SyncGroupRequest), 0, 1)
    assert bench.member.flowing == partitions("t", 1)
    bench.member.busy = False
    bench.turn()
    bench.turn()
    assert bench.member.flowing == partitions("t", 0, 1)
    assert bench.member.subscription.partitions[TopicPartition("t", 0)] is not old
    assert bench.member.history[-1] == ("AssignPartitions", tuple(partitions("t", 0)))
    assert bench.ship.state is JoiningState.STABLE


def test_added_partitions_are_held_until_the_listener_ran() -> None:
    bench = Bench(has_listener=True)
    bench.member.busy = True
    bench.ship.polled(NOW)
    bench.stable(0)
    shared_partition = bench.member.subscription.partitions[TopicPartition("t", 0)].shared_partition
    assert shared_partition.held
    bench.member.busy = False
    bench.turn()
    assert not shared_partition.held


def test_callback_that_raised_counts_as_done(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.member.busy = True
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    (revoke,) = bench.member.of(m.RevokePartitions)
    bench.ship.callback_done(bench.now, revoke.id, "KeyError('x')")
    bench.ask(JoinGroupRequest)


@pytest.mark.parametrize("when", ["before it ran", "as it ran", "after it ran"])
def test_b11_a_revocation_that_had_not_begun_when_the_session_ends_is_a_loss(bench: Bench, when: str) -> None:
    """And each partition is revoked or lost, never both."""
    bench.stable(0, 1)
    bench.member.busy = True
    bench.ship.rebalance(bench.now, "test")
    bench.joined(bench.ask(JoinGroupRequest), 2)
    bench.synced(bench.ask(SyncGroupRequest), 1)
    (revoke,) = bench.member.of(m.RevokePartitions)
    if when == "after it ran":
        bench.ship.callback_done(bench.now, revoke.id, None)
    assert bench.heartbeat(ec.UNKNOWN_MEMBER_ID) is HeartbeatOutcome.LOST
    (lost,) = bench.member.of(m.LosePartitions)
    waiting = [lost] if when == "after it ran" else [revoke, lost]
    told = without_void(waiting, {revoke.id} if when == "as it ran" else ())
    assert [(type(event).__name__, event.partitions) for event in told] == {
        "before it ran": [("LosePartitions", tuple(partitions("t", 0, 1)))],
        "as it ran": [
            ("RevokePartitions", tuple(partitions("t", 0))),
            ("LosePartitions", tuple(partitions("t", 1))),
        ],
        "after it ran": [("LosePartitions", tuple(partitions("t", 1)))],
    }[when]
    bench.ship.callback_done(bench.now, revoke.id, None)
    assert bench.member.owned == []


def test_b11_with_range_a_poll_timeout_before_the_revocation_ran_is_a_loss_of_all() -> None:
    bench = Bench(partition_assignment_strategy=("range",))
    bench.stable(0, 1, protocol_name="range")
    bench.turn()
    bench.member.busy = True
    assert bench.heartbeat(ec.REBALANCE_IN_PROGRESS) is HeartbeatOutcome.ALIVE
    assert bench.callbacks[-1] == "RevokePartitions"
    bench.ship.poll_timed_out(bench.now)
    bench.member.busy = False
    bench.member.history.clear()
    bench.member.serve(bench.now)
    assert bench.member.history == [("LosePartitions", tuple(partitions("t", 0, 1)))]


def test_b11_with_a_listener_partitions_whose_assigned_callback_did_not_run_are_lost() -> None:
    bench = Bench(has_listener=True)
    bench.member.busy = True
    bench.member.membership.polled(bench.now)
    bench.stable(0, 1)
    bench.ship.poll_timed_out(bench.now)
    bench.member.busy = False
    bench.member.serve(bench.now)
    assert bench.member.history == [("LosePartitions", tuple(partitions("t", 0, 1)))]


@pytest.mark.parametrize(("name", "when"), [(None, ""), ("one", " when its session has ended")])
def test_b4_a_member_that_nothing_polled_says_when_its_partitions_go_to_others(
    name: str | None, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(group_instance_id=name)
    bench.stable(0, 1)
    bench.ship.poll_timed_out(bench.now)
    assert f"Its partitions go to other members{when}. Poll more often" in caplog.text


# ------------------------------------------------------------ heartbeats


def test_heartbeat_carries_the_present_identity(bench: Bench) -> None:
    bench.stable(0)
    message = bench.ship.heartbeat(NOW).message
    assert (message.group_id, message.generation_id, message.member_id) == ("g", 1, "m-1")


@pytest.mark.parametrize(("code", "kept"), [(ec.UNKNOWN_MEMBER_ID, ""), (ec.ILLEGAL_GENERATION, "m-1")])
def test_heartbeat_says_that_the_session_is_lost(bench: Bench, code: int, kept: str) -> None:
    bench.stable(0, 1)
    assert bench.heartbeat(code) is HeartbeatOutcome.LOST
    assert bench.callbacks[-1] == "LosePartitions"
    assert bench.ask(JoinGroupRequest).message.member_id == kept


@pytest.mark.parametrize("code", [ec.UNKNOWN_MEMBER_ID, ec.ILLEGAL_GENERATION, ec.FENCED_INSTANCE_ID])
def test_answer_to_an_earlier_identity_changes_nothing(bench: Bench, code: int) -> None:
    bench.stable(0, 1)
    assert bench.heartbeat(code, GroupMetadata("g", 0, "m-1")) is HeartbeatOutcome.ALIVE
    assert bench.ship.state is JoiningState.STABLE


@pytest.mark.parametrize("code", [ec.UNKNOWN_MEMBER_ID, ec.ILLEGAL_GENERATION])
def test_b3_while_a_join_is_parked_the_joins_answer_decides(bench: Bench, code: int) -> None:
    """The broker may end the generation and say so on this connection before the join's answer arrives on its own."""
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    join = bench.ask(JoinGroupRequest)
    assert bench.heartbeat(code) is HeartbeatOutcome.ALIVE
    assert bench.member.owned == partitions("t", 0, 1)
    bench.joined(join, 2)
    bench.synced(bench.ask(SyncGroupRequest), 0, 1)
    assert bench.callbacks == ["AssignPartitions", "AssignPartitions"]


def test_after_a_join_without_an_answer_the_next_joins_answer_decides(bench: Bench) -> None:
    """The coordinator counts the member in a generation of which it has not heard; nobody else owns its partitions."""
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    bench.fail(bench.ask(JoinGroupRequest), DisconnectedError("gone"))
    bench.find(NODE)
    assert bench.heartbeat(ec.ILLEGAL_GENERATION) is HeartbeatOutcome.ALIVE
    assert bench.ship.commit_refused(bench.now, bench.ship.group, ec.ILLEGAL_GENERATION)
    assert bench.member.owned == partitions("t", 0, 1)
    again = bench.ask(JoinGroupRequest, 130)
    assert again.message.member_id == "m-1"
    assert decode_subscription(again.message.protocols[0].metadata).generation == 1
    bench.joined(again, 3)
    bench.synced(bench.ask(SyncGroupRequest), 0, 1)
    assert bench.callbacks == ["AssignPartitions", "AssignPartitions"]


def test_after_a_join_without_an_answer_a_member_may_still_be_unknown(bench: Bench) -> None:
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    bench.fail(bench.ask(JoinGroupRequest), DisconnectedError("gone"))
    bench.find(NODE)
    assert bench.heartbeat(ec.UNKNOWN_MEMBER_ID) is HeartbeatOutcome.LOST
    assert bench.member.owned == []


def test_rebalance_during_sync_is_remembered(bench: Bench) -> None:
    bench.joined(bench.ask(JoinGroupRequest))
    request = bench.ask(SyncGroupRequest)
    assert bench.heartbeat(ec.REBALANCE_IN_PROGRESS) is HeartbeatOutcome.ALIVE
    bench.synced(request, 0)
    assert bench.ask(JoinGroupRequest).message.reason == "the coordinator asked (heartbeat)"


@pytest.mark.parametrize(
    "code", [ec.NOT_COORDINATOR, ec.COORDINATOR_NOT_AVAILABLE, ec.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_heartbeat_that_says_nothing_about_us(bench: Bench, code: int) -> None:
    bench.stable(0)
    assert bench.heartbeat(code) is HeartbeatOutcome.RETRY
    assert bench.member.owned == partitions("t", 0)
    assert (bench.member.coordinator.node_id is None) == (code != ec.COORDINATOR_LOAD_IN_PROGRESS)


def test_heartbeat_refused_for_good(bench: Bench) -> None:
    bench.stable(0)
    assert bench.heartbeat(ec.GROUP_AUTHORIZATION_FAILED) is HeartbeatOutcome.LOST
    assert isinstance(bench.failed, GroupAuthorizationError)
    assert bench.member.owned == []


# ------------------------------------------------------------ leaving


def test_leave_is_repeated_while_the_coordinator_cannot_hear_it(bench: Bench) -> None:
    bench.stable()
    bench.ship.leave(bench.now, reason="bye")
    bench.fail(bench.ask(LeaveGroupRequest), DisconnectedError("gone"))
    assert not bench.ship.left
    bench.find(NODE)
    again = bench.ask(LeaveGroupRequest, 130)
    bench.answer(again, LeaveGroupResponse())
    assert bench.ship.left


def test_leave_ends_when_the_session_would_have(bench: Bench) -> None:
    bench.stable()
    bench.ship.leave(bench.now, reason="bye")
    bench.ask(LeaveGroupRequest)
    bench.turn(10_000)
    assert bench.ship.left


def test_b7_leave_waits_for_a_silent_coordinator_no_longer_than_half_a_request() -> None:
    """The other half is for the commit before it."""
    bench = Bench(request_timeout_ms=4_000)
    bench.stable()
    bench.ship.leave(bench.now, reason="bye")
    assert bench.ship.has_parted
    bench.ask(LeaveGroupRequest)
    bench.turn(1_999)
    assert not bench.ship.left
    bench.turn(1)
    assert bench.ship.left


def test_member_that_joins_again_does_not_wait_for_its_own_farewell(bench: Bench) -> None:
    bench.stable()
    bench.ship.leave(bench.now, reason="bye")
    bench.ask(LeaveGroupRequest)
    bench.member.subscribe(bench.now, ("u",))
    assert bench.ask(JoinGroupRequest).message.member_id == ""


def test_static_member_leaves_without_a_word() -> None:
    bench = Bench(group_instance_id="one")
    bench.stable()
    bench.ship.leave(bench.now, reason="bye")
    assert bench.ship.left
    assert bench.turn() == []


def test_session_lost_while_leaving_has_nobody_left_to_tell(bench: Bench) -> None:
    bench.stable(0)
    bench.member.busy = True
    bench.ship.leave(bench.now, reason="bye")
    assert bench.ship.state is JoiningState.LEAVING
    bench.heartbeat(ec.UNKNOWN_MEMBER_ID)
    assert bench.ship.left
    assert bench.turn() == []


@pytest.mark.parametrize("sent", ["join", "sync"])
@pytest.mark.parametrize("leads", [False, True])
def test_who_leaves_in_the_middle_of_a_rebalance_still_syncs(leads: bool, sent: str) -> None:
    """Its application may commit while it gives up, and the coordinator takes no commit before the SyncGroup."""
    bench = Bench()
    bench.stable(0, 1)
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    join = bench.ask(JoinGroupRequest)
    leader: dict[str, Any] = {"leader": "m-1", "members": [member_of("m-1", "t")]} if leads else {}
    if sent == "sync":
        bench.joined(join, 2, **leader)
    bench.member.busy = True
    bench.ship.leave(bench.now, reason="bye")
    if sent == "join":
        assert bench.ship.settled, "the generation before it may not be over"
        bench.joined(join, 2, **leader)
    assert bench.ship.state is JoiningState.LEAVING
    assert not bench.ship.settled
    if leads:
        assert bench.turn() == []
        bench.member.jobs.run(bench.now)
    sync = bench.ask(SyncGroupRequest)
    assert [each.member_id for each in sync.message.assignments] == (["m-1"] if leads else [])
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    bench.synced(sync, 0, 1, 2)
    assert bench.ship.settled
    assert bench.ship.group.generation_id == 2
    assert bench.callbacks == ["AssignPartitions", "RevokePartitions"]
    assert bench.turn() == []
    bench.member.busy = False
    bench.ask(LeaveGroupRequest)


def test_leave_outside_a_group_is_nothing(bench: Bench) -> None:
    bench.member.busy = True
    bench.ship.leave(bench.now, reason="bye")
    assert bench.ship.left
    assert not bench.ship.needs_polled


# ------------------------------------------------------------ the table


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(JoiningState)
    assert all(TRANSITIONS[state] for state in JoiningState)
    assert set().union(*TRANSITIONS.values()) == set(JoiningState)


def test_repr_is_one_line_of_state(bench: Bench) -> None:
    bench.stable(0, 1)
    assert repr(bench.ship) == "<classic member m-1 of g STABLE generation=1 partitions=2>"


def test_assignors_that_share_no_protocol_are_refused() -> None:
    from kadence.consumer.assignors import (
        CooperativeStickyAssignor,
        RangeAssignor,
        common_protocol,
    )

    class Only(CooperativeStickyAssignor):
        protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    assert common_protocol([RangeAssignor(), CooperativeStickyAssignor()]) is RebalanceProtocol.EAGER
    assert common_protocol([CooperativeStickyAssignor()]) is RebalanceProtocol.COOPERATIVE
    with pytest.raises(ConfigError):
        common_protocol([RangeAssignor(), Only()])
