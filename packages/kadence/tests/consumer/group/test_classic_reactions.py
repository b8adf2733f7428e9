"""What each answer does to a classic member: every error code of the protocol, in every state that can meet it.

The tables name what is special; a code that is in none is retriable (Kafka says which are) or ends the membership
with an error that `poll()` raises. Codes that nobody has defined yet are of the second kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.worlds.classic import Bench
from tests.worlds.cluster import NODE, partitions

from kadence.connection.request import Request
from kadence.consumer import events as m
from kadence.consumer.group.classic_joining import JoiningState
from kadence.consumer.group.membership import HeartbeatOutcome
from kadence.errors import BrokerError, DisconnectedError, KafkaError, RequestTimedOutError
from kadence.protocol import error_codes as ec
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence.types import GroupMetadata, TopicPartition

CODES = [
    ec.NONE,
    *sorted(ec.RETRIABLE),
    ec.UNKNOWN_SERVER_ERROR,
    ec.OFFSET_METADATA_TOO_LARGE,
    ec.ILLEGAL_GENERATION,
    ec.INCONSISTENT_GROUP_PROTOCOL,
    ec.INVALID_GROUP_ID,
    ec.UNKNOWN_MEMBER_ID,
    ec.INVALID_SESSION_TIMEOUT,
    ec.REBALANCE_IN_PROGRESS,
    ec.INVALID_COMMIT_OFFSET_SIZE,
    ec.TOPIC_AUTHORIZATION_FAILED,
    ec.GROUP_AUTHORIZATION_FAILED,
    ec.CLUSTER_AUTHORIZATION_FAILED,
    ec.UNSUPPORTED_VERSION,
    ec.INVALID_REQUEST,
    ec.NON_EMPTY_GROUP,
    ec.GROUP_ID_NOT_FOUND,
    ec.MEMBER_ID_REQUIRED,
    ec.GROUP_MAX_SIZE_REACHED,
    ec.FENCED_INSTANCE_ID,
    ec.FENCED_MEMBER_EPOCH,
    ec.STALE_MEMBER_EPOCH,
    999,  # which nobody has defined yet
]
SUCCESS = ec.NONE
AWAY = (ec.COORDINATOR_NOT_AVAILABLE, ec.NOT_COORDINATOR)

# ------------------------------------------------------------ what can be seen of a reaction


def again(bench: Bench) -> None:
    """It joins again after a backoff, as who it is, and keeps what it owns meanwhile."""
    assert bench.member.flowing == partitions("t", 0, 1)
    assert bench.callbacks == ["AssignPartitions"]
    assert bench.turn() == []
    bench.find(NODE)
    assert rejoins(bench, 130).member_id == "m-1"
    assert bench.member.of(m.Failed) == []


def again_elsewhere(bench: Bench) -> None:
    """The same, once the coordinator is found."""
    assert bench.member.coordinator.node_id is None
    bench.find(NODE)
    again(bench)


def at_once(bench: Bench) -> None:
    """It joins again without waiting, and keeps everything."""
    assert bench.member.flowing == partitions("t", 0, 1)
    assert bench.member.of(m.Failed) == []
    assert rejoins(bench).member_id == "m-1"


def adopted(bench: Bench) -> None:
    """It joins again with the id it was given."""
    assert rejoins(bench).member_id == "given"


def lost(bench: Bench) -> None:
    """All is lost; it joins as somebody new."""
    assert bench.callbacks[-1] == "LosePartitions"
    assert bench.member.owned == []
    assert rejoins(bench).member_id == ""
    assert bench.member.of(m.Failed) == []


def lost_but_known(bench: Bench) -> None:
    """All is lost, but the coordinator still knows the member id: another would be a duplicate of us."""
    assert bench.callbacks[-1] == "LosePartitions"
    assert bench.member.owned == []
    assert rejoins(bench).member_id == "m-1"


def fatal(bench: Bench) -> None:
    """All is lost and the application is told; the coordinator hears a goodbye, and the next poll tries again (B6)."""
    assert bench.callbacks[-1] == "LosePartitions"
    assert isinstance(bench.failed, BrokerError)
    assert not bench.member.of(m.Failed)[0].fatal
    bench.member.busy = True
    (goodbye,) = bench.turn(2_000)
    assert isinstance(goodbye.message, LeaveGroupRequest)
    assert bench.ship.state is JoiningState.UNJOINED
    bench.member.busy = False
    rejoins(bench)


def fenced(bench: Bench) -> None:
    """As fatal, but without a goodbye, which would be the other one's, and without coming back."""
    assert bench.callbacks[-1] == "LosePartitions"
    assert bench.member.of(m.Failed)[0].fatal
    assert bench.turn(60_000) == []


def nothing(bench: Bench) -> None:
    """As if it had not been said."""
    assert bench.member.flowing == partitions("t", 0, 1)
    assert bench.callbacks == ["AssignPartitions"]
    assert bench.member.of(m.Failed) == []
    assert bench.ship.group.member_id == "m-1"
    assert bench.ship.state is not JoiningState.UNJOINED


Reaction = Callable[[Bench], None]


def rejoins(bench: Bench, after_ms: int = 0) -> JoinGroupRequest:
    message = bench.ask(JoinGroupRequest, after_ms).message
    assert isinstance(message, JoinGroupRequest)
    return message


def reactions(table: Mapping[int, Reaction], retriable: Reaction) -> list[tuple[int, Reaction]]:
    """What the table says of each code, and what goes for those it does not name."""
    return [
        (code, table.get(code, retriable if code in ec.RETRIABLE else fatal))
        for code in CODES
        if code != SUCCESS
    ]


def ids(value: object) -> str:
    return ec.name(value) if isinstance(value, int) else getattr(value, "__name__", str(value))


def rejoining() -> tuple[Bench, Request]:
    """A member of generation 1 that owns t-0 and t-1, and its JoinGroup."""
    bench = Bench()
    bench.stable(0, 1)
    bench.ship.rebalance(bench.now, "test")
    return bench, bench.ask(JoinGroupRequest)


# ------------------------------------------------------------ JoinGroup

JOIN: dict[int, Reaction] = {
    ec.COORDINATOR_NOT_AVAILABLE: again_elsewhere,
    ec.NOT_COORDINATOR: again_elsewhere,
    ec.REBALANCE_IN_PROGRESS: again,
    ec.UNKNOWN_MEMBER_ID: lost,
    ec.MEMBER_ID_REQUIRED: adopted,
    ec.FENCED_INSTANCE_ID: fenced,
}


@pytest.mark.parametrize(("code", "reaction"), reactions(JOIN, again), ids=ids)
def test_join_group(code: int, reaction: Reaction) -> None:
    bench, request = rejoining()
    bench.answer(request, JoinGroupResponse(error_code=code, member_id="given"))
    reaction(bench)


# ------------------------------------------------------------ SyncGroup

SYNC: dict[int, Reaction] = {
    ec.COORDINATOR_NOT_AVAILABLE: again_elsewhere,
    ec.NOT_COORDINATOR: again_elsewhere,
    ec.REBALANCE_IN_PROGRESS: at_once,
    ec.UNKNOWN_MEMBER_ID: lost,
    ec.ILLEGAL_GENERATION: lost_but_known,
    ec.FENCED_INSTANCE_ID: fenced,
}


@pytest.mark.parametrize(("code", "reaction"), reactions(SYNC, again), ids=ids)
def test_sync_group(code: int, reaction: Reaction) -> None:
    bench, request = rejoining()
    bench.joined(request, 2)
    bench.answer(bench.ask(SyncGroupRequest), SyncGroupResponse(error_code=code))
    reaction(bench)


# ------------------------------------------------------------ Heartbeat

STABLE_BEAT: dict[int, Reaction] = {
    ec.REBALANCE_IN_PROGRESS: at_once,
    ec.UNKNOWN_MEMBER_ID: lost,
    ec.ILLEGAL_GENERATION: lost_but_known,
    ec.FENCED_INSTANCE_ID: fenced,
}
PARKED_BEAT: dict[int, Reaction] = {
    # The join's own answer decides what became of the member (see the head of `classic`).
    ec.REBALANCE_IN_PROGRESS: nothing,
    ec.UNKNOWN_MEMBER_ID: nothing,
    ec.ILLEGAL_GENERATION: nothing,
    ec.FENCED_INSTANCE_ID: fenced,
}


@pytest.mark.parametrize(("code", "reaction"), reactions(STABLE_BEAT, nothing), ids=ids)
def test_heartbeat_of_a_stable_member(code: int, reaction: Reaction) -> None:
    bench = Bench()
    bench.stable(0, 1)
    outcome = bench.heartbeat(code)
    assert outcome is _verdict(code, reaction)
    assert (bench.member.coordinator.node_id is None) == (code in AWAY)
    reaction(bench)


@pytest.mark.parametrize(("code", "reaction"), reactions(PARKED_BEAT, nothing), ids=ids)
def test_heartbeat_while_a_join_is_parked(code: int, reaction: Reaction) -> None:
    bench, _ = rejoining()
    outcome = bench.heartbeat(code)
    assert outcome is _verdict(code, reaction)
    reaction(bench)


@pytest.mark.parametrize(
    ("code", "reaction"),
    reactions({**STABLE_BEAT, ec.REBALANCE_IN_PROGRESS: nothing}, nothing),
    ids=ids,
)
def test_heartbeat_while_the_assignment_is_awaited(code: int, reaction: Reaction) -> None:
    """That the group rebalances again is remembered until the SyncGroup is answered."""
    bench, join = rejoining()
    bench.joined(join, 2)
    sync = bench.ask(SyncGroupRequest)
    assert bench.heartbeat(code) is _verdict(code, reaction)
    reaction(bench)
    if reaction is nothing:
        bench.synced(sync, 0, 1)
        joins = [r for r in bench.turn() if isinstance(r.message, JoinGroupRequest)]
        assert len(joins) == (code == ec.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize(
    ("code", "reaction"),
    reactions({**STABLE_BEAT, ec.REBALANCE_IN_PROGRESS: nothing}, nothing),
    ids=ids,
)
def test_heartbeat_while_an_eager_member_gives_up_its_partitions(code: int, reaction: Reaction) -> None:
    bench = Bench(partition_assignment_strategy=("range",))
    bench.joined(bench.ask(JoinGroupRequest), protocol_name="range")
    bench.synced(bench.ask(SyncGroupRequest), 0, 1)
    bench.turn()
    bench.member.busy = True
    bench.heartbeat(ec.REBALANCE_IN_PROGRESS)
    bench.turn()
    assert bench.ship.state is JoiningState.REVOKING
    assert bench.heartbeat(code) is _verdict(code, reaction)
    if reaction is nothing:
        assert bench.ship.state is JoiningState.REVOKING
        assert bench.member.owned == partitions("t", 0, 1)
    else:
        # The revocation has not begun: the application is told of the loss in its place (B11).
        assert bench.member.owned == []
        bench.member.busy = False
        bench.turn()
        assert bench.member.history[1:2] == [("LosePartitions", tuple(partitions("t", 0, 1)))]
    assert bench.turn() == [] or reaction is not nothing


@pytest.mark.parametrize("code", [code for code in CODES if code not in ec.RETRIABLE])
def test_heartbeat_of_an_earlier_identity(code: int) -> None:
    bench = Bench()
    bench.stable(0, 1)
    assert bench.heartbeat(code, GroupMetadata("g", 0, "m-0")) is HeartbeatOutcome.ALIVE
    nothing(bench)
    assert bench.ship.state is JoiningState.STABLE


def _verdict(code: int, reaction: Reaction) -> HeartbeatOutcome:
    if code in ec.RETRIABLE:
        return HeartbeatOutcome.RETRY
    return HeartbeatOutcome.ALIVE if reaction in (nothing, at_once) else HeartbeatOutcome.LOST


# ------------------------------------------------------------ LeaveGroup


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("where", ["top", "member"])
def test_leave_group_is_repeated_while_that_may_help_and_never_an_error(code: int, where: str) -> None:
    bench = Bench()
    bench.stable()
    bench.ship.leave(bench.now, reason="bye")
    request = bench.ask(LeaveGroupRequest)
    if where == "top":
        response = LeaveGroupResponse(error_code=code)
    else:
        response = LeaveGroupResponse(members=[MemberResponse(member_id="m-1", error_code=code)])
    bench.answer(request, response)
    assert bench.ship.group.member_id == ""
    if code in ec.RETRIABLE:
        assert not bench.ship.left
        bench.find(NODE)
        bench.answer(bench.ask(LeaveGroupRequest, 130), LeaveGroupResponse())
    assert bench.ship.left
    assert bench.member.of(m.Failed) == []


# ------------------------------------------------------------ OffsetCommit

COMMIT: dict[int, Reaction] = {
    ec.REBALANCE_IN_PROGRESS: at_once,
    ec.UNKNOWN_MEMBER_ID: lost,
    ec.ILLEGAL_GENERATION: lost_but_known,
    ec.FENCED_INSTANCE_ID: fenced,
    # Of KIP-848; a group that is being converted may say them to a classic member.
    ec.STALE_MEMBER_EPOCH: lost,
    ec.FENCED_MEMBER_EPOCH: lost,
}
ERRORS = {
    # Which error the caller gets in the end; None: it is repeated with the next identity.
    ec.REBALANCE_IN_PROGRESS: None,
    ec.UNKNOWN_MEMBER_ID: "CommitFailedError",
    ec.ILLEGAL_GENERATION: "CommitFailedError",
    ec.FENCED_INSTANCE_ID: "FencedInstanceIdError",
    ec.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLargeError",
    ec.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationError",
    ec.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationError",
}


@pytest.mark.parametrize("code", [code for code in CODES if code != SUCCESS], ids=ids)
def test_offset_commit(code: int) -> None:
    bench = Bench()
    bench.stable(0, 1)
    call = bench.member.commit(bench.now, {TopicPartition("t", 0): 5})
    request = bench.ask(OffsetCommitRequest)
    bench.answer(request, committed(code))
    bench.member.commits.poll(bench.now)
    answer = bench.member.answer_to(call)
    if code in ec.RETRIABLE or ERRORS.get(code, "") is None:
        assert answer is None, "repeated until the call's deadline"
    else:
        assert answer is not None
        kind = ERRORS.get(code)
        assert type(answer.error).__name__ == kind if kind else isinstance(answer.error, KafkaError)
    if reaction := COMMIT.get(code):
        reaction(bench)
    else:
        nothing(bench)


def committed(code: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


# ------------------------------------------------------------ no answer


@pytest.mark.parametrize(
    "error", [DisconnectedError("gone"), RequestTimedOutError("late")], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("what", ["join", "sync"])
def test_no_answer_to_a_join_or_a_sync(what: str, error: KafkaError) -> None:
    bench, request = rejoining()
    if what == "sync":
        bench.joined(request, 2)
        request = bench.ask(SyncGroupRequest)
    bench.fail(request, error)
    bench.find(NODE)
    again(bench)


# ------------------------------------------------------------ on the way out


@pytest.mark.parametrize("code", [code for code in CODES if code != SUCCESS], ids=ids)
@pytest.mark.parametrize("what", ["join", "sync"])
def test_what_is_answered_to_a_member_that_leaves_moves_it_no_more(what: str, code: int) -> None:
    """Its join or sync was under way when it was told to leave, and its application still has to let go."""
    bench, request = rejoining()
    if what == "sync":
        bench.joined(request, 2)
        request = bench.ask(SyncGroupRequest)
    bench.member.busy = True
    bench.ship.leave(bench.now, reason="bye")
    assert bench.ship.state is JoiningState.LEAVING
    if what == "join":
        bench.answer(request, JoinGroupResponse(error_code=code, member_id="given"))
    else:
        bench.answer(request, SyncGroupResponse(error_code=code))
    assert bench.ship.state is JoiningState.LEAVING
    assert bench.ship.settled, "what it commits is sent: the coordinator says what becomes of it"
    bench.find(NODE)
    bench.member.busy = False
    (goodbye,) = bench.turn()
    assert isinstance(goodbye.message, LeaveGroupRequest)
    assert bench.member.of(m.Failed) == []


@pytest.mark.parametrize("code", [code for code in CODES if code != SUCCESS], ids=ids)
def test_a_join_that_was_given_up_is_over_whatever_it_says(code: int) -> None:
    bench, request = rejoining()
    bench.find(8)
    second = bench.ask(JoinGroupRequest)
    bench.answer(request, JoinGroupResponse(error_code=code, member_id="stale"))
    assert bench.ship.group.member_id == "m-1"
    bench.joined(second, 2)
    bench.synced(bench.ask(SyncGroupRequest), 0, 1)
    assert bench.ship.state is JoiningState.STABLE
