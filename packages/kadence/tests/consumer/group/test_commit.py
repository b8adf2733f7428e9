"""Commits: order, coalescing, deadlines, and rebalances in between. One member, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.cluster import NODE, id_of, partitions
from tests.worlds.desk import Desk
from tests.worlds.hand import START
from tests.worlds.members import Member

from kadence.connection.cluster import Cluster, Topic
from kadence.connection.request import Completed, Request
from kadence.consumer import events as m
from kadence.consumer.group.commit import CommitRequestManager
from kadence.errors import (
    BrokerError,
    CommitFailedError,
    ConnectError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kadence.layered import Layered
from kadence.protocol import error_codes as ec
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kadence.protocol.registry import decode_request, decode_response, encode_request, encode_response
from kadence.protocol.sync_group import SyncGroupRequest
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

T0, T1 = partitions("t", 0, 1)


@pytest.fixture
def desk() -> Desk:
    return Desk({"t": 4}, offset_metadata_max_bytes=10)


@pytest.fixture
def member(desk: Desk) -> Member:
    return desk.member


def committed(desk: Desk, member: Member, *wanted: TopicPartition) -> dict[TopicPartition, int | None]:
    call = member.fetch_committed(desk.now, wanted)
    desk.run(100)
    answer = member.answer_to(call)
    assert answer is not None
    if answer.error is not None:
        raise answer.error
    return {p: None if o is None else o.offset for p, o in answer.value.items()}  # type: ignore[attr-defined]


def codes(message: OffsetCommitRequest, *values: int) -> OffsetCommitResponse:
    """An answer with these codes, in the order of the request's partitions; the last one for the rest."""
    left = list(values)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=left.pop(0) if len(left) > 1 else left[0],
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def refuse_commits(desk: Desk, *plan: int | None) -> None:
    """The first commits are refused with these codes (None: let through), later ones go to the coordinator."""
    left = list(plan)

    def refuse(request: Request) -> Any:
        if isinstance(request.message, OffsetCommitRequest) and left:
            code = left.pop(0)
            return None if code is None else codes(request.message, code)
        return None

    desk.refuse = refuse


# ------------------------------------------------------------ the plain way


def test_commit_and_committed(desk: Desk, member: Member) -> None:
    call = member.commit(desk.now, {T0: 5, T1: 7})
    desk.run(100)
    assert member.answer_to(call) == m.Answer(call)
    assert committed(desk, member, T0, T1, *partitions("t", 2)) == {
        T0: 5,
        T1: 7,
        TopicPartition("t", 2): None,
    }


def test_epoch_and_metadata_travel(desk: Desk, member: Member) -> None:
    member.commits.commit(
        desk.now, m.Commit(99, desk.now + 1000, {T0: OffsetAndMetadata(5, 3, "note")}, True)
    )
    call = member.fetch_committed(desk.now, [T0])
    desk.run(100)
    answer = member.answer_to(call)
    assert answer is not None
    assert answer.value == {T0: OffsetAndMetadata(5, 3, "note")}


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_offset_commit(version: int) -> None:
    desk = Desk({"t": 2}, versions={8: version, 9: min(10, max(1, version))})
    member = desk.member
    call = member.commit(desk.now, {T0: 5})
    desk.run(100)
    assert member.answer_to(call) == m.Answer(call)
    assert committed(desk, member, T0) == {T0: 5}


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch(version: int) -> None:
    desk = Desk({"t": 2}, versions={9: version})
    member = desk.member
    member.commit(desk.now, {T0: 5})
    assert committed(desk, member, T0, T1) == {T0: 5, T1: None}


def test_topic_ids_cap_the_version_when_one_is_unknown(desk: Desk, member: Member) -> None:
    member.membership.leave(desk.now, reason="", callbacks=False)
    member.subscription.unsubscribe()
    for partition, version in ((T0, None), (TopicPartition("new", 0), 9)):
        manager = _alone(member)
        manager.commit(desk.now, m.Commit(1, desk.now + 1000, {partition: OffsetAndMetadata(1)}, True))
        (request,) = manager.poll(desk.now).requests
        assert request.max_version == version


def _alone(member: Member) -> CommitRequestManager:
    return CommitRequestManager(
        member.coordinator, member.membership, member.metadata, member.config, member.background_events
    )


def test_manual_assignment_commits_as_nobody() -> None:
    member = Member("m", {"t": 4}, group_instance_id="static")
    desk = Desk({"t": 4}, member, has_joined=False)
    call = member.commit(desk.now, {T0: 5})
    desk.run(100)
    assert member.answer_to(call) == m.Answer(call)
    (message,) = desk.sent(OffsetCommitRequest)
    sent = (message.generation_id_or_member_epoch, message.member_id, message.group_instance_id)
    assert sent == (-1, "", None)


# ------------------------------------------------------------ order


def test_order_is_kept_and_waiting_commits_go_out_as_one(desk: Desk, member: Member) -> None:
    ids = [member.commit(desk.now, {T0: n}, retry=False) for n in (1, 2)]
    desk.run(0)
    ids += [member.commit(desk.now, {T0: n}, retry=False) for n in (3, 4)]
    desk.run(100)
    assert [event.id for event in member.of(m.CommitCompleted)] == ids
    sent = [message.topics[0].partitions[0].committed_offset for message in desk.sent(OffsetCommitRequest)]
    assert sent == [2, 4]
    assert committed(desk, member, T0) == {T0: 4}


def test_commit_of_nothing_is_done_after_those_before_it(desk: Desk, member: Member) -> None:
    first = member.commit(desk.now, {T0: 1}, retry=False)
    second = member.commit(desk.now, {})
    desk.run(100)
    told = [event.id for event in member.background_events if isinstance(event, m.CommitCompleted | m.Answer)]
    assert told == [first, second]


def test_committed_sees_the_commits_before_it(desk: Desk, member: Member) -> None:
    member.commit(desk.now, {T0: 1}, retry=False)
    desk.run(0)
    member.commit(desk.now, {T0: 2}, retry=False)
    assert committed(desk, member, T0) == {T0: 2}


def test_a_look_up_waits_for_the_answer_of_the_commit_before_it(desk: Desk, member: Member) -> None:
    """It takes another connection, so it could overtake the commit."""
    desk.answers_after_ms = 200
    member.commit(desk.now, {T0: 1}, retry=False)
    desk.run(0)
    call = member.fetch_committed(desk.now, [T0])
    desk.run(199)
    assert desk.sent(OffsetFetchRequest) == []
    desk.run(201)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.value, dict)
    assert answer.value[T0].offset == 1


def test_a_repeated_commit_never_overtakes_a_newer_one(desk: Desk, member: Member) -> None:
    refuse_commits(desk, ec.COORDINATOR_LOAD_IN_PROGRESS)
    member.commit(desk.now, {T0: 1})
    desk.run(3)
    member.commit(desk.now, {T0: 2}, retry=False)
    desk.run(2_000)
    assert committed(desk, member, T0) == {T0: 2}


def test_pending_counts_what_is_not_told(desk: Desk, member: Member) -> None:
    member.commit(desk.now, {T0: 1}, retry=False)
    assert member.commits.pending == 1
    desk.run(10)
    assert member.commits.pending == 0


# ------------------------------------------------------------ failures


@pytest.mark.parametrize(
    "code",
    [
        ec.COORDINATOR_LOAD_IN_PROGRESS,
        ec.NOT_COORDINATOR,
        ec.COORDINATOR_NOT_AVAILABLE,
        ec.REQUEST_TIMED_OUT,
        ec.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_sync_commit_repeats_what_is_retriable(desk: Desk, member: Member, code: int) -> None:
    refuse_commits(desk, code, code)
    call = member.commit(desk.now, {T0: 5})
    desk.run(2_000)
    assert member.answer_to(call) == m.Answer(call)
    assert committed(desk, member, T0) == {T0: 5}


@pytest.mark.parametrize("code", [ec.NOT_COORDINATOR, ec.COORDINATOR_NOT_AVAILABLE, ec.REQUEST_TIMED_OUT])
def test_coordinator_is_looked_up_again(desk: Desk, member: Member, code: int) -> None:
    refuse_commits(desk, code)
    member.commit(desk.now, {T0: 5})
    desk.run(4)
    assert member.coordinator.node_id is None
    desk.run(1_000)
    assert member.coordinator.node_id == NODE


def test_async_commit_is_tried_once(desk: Desk, member: Member) -> None:
    refuse_commits(desk, ec.COORDINATOR_LOAD_IN_PROGRESS)
    member.commit(desk.now, {T0: 5}, retry=False)
    desk.run(2_000)
    (done,) = member.of(m.CommitCompleted)
    assert isinstance(done.error, BrokerError)
    assert done.error.retriable
    assert len(desk.sent(OffsetCommitRequest)) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ec.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
        (ec.OFFSET_METADATA_TOO_LARGE, OffsetMetadataTooLargeError),
        (ec.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (ec.INVALID_COMMIT_OFFSET_SIZE, BrokerError),
        (ec.FENCED_INSTANCE_ID, FencedInstanceIdError),
        (999, BrokerError),
    ],
)
def test_lasting_errors_reach_the_caller(
    desk: Desk, member: Member, code: int, kind: type[Exception]
) -> None:
    refuse_commits(desk, code)
    call = member.commit(desk.now, {T0: 5})
    desk.run(100)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, kind)


def test_denied_topics_are_collected(desk: Desk, member: Member) -> None:
    desk.refuse = lambda request: (
        codes(request.message, ec.TOPIC_AUTHORIZATION_FAILED, ec.NONE)
        if isinstance(request.message, OffsetCommitRequest)
        else None
    )
    call = member.commit(desk.now, {T0: 5, T1: 5})
    desk.run(100)
    answer = member.answer_to(call)
    assert answer is not None
    assert "not allowed to commit for t" in str(answer.error)


def test_each_commit_of_a_merged_request_gets_its_own_result(desk: Desk, member: Member) -> None:
    desk.refuse = lambda request: (
        codes(request.message, ec.NONE, ec.OFFSET_METADATA_TOO_LARGE)
        if isinstance(request.message, OffsetCommitRequest)
        else None
    )
    good = member.commit(desk.now, {T0: 5}, retry=False)
    bad = member.commit(desk.now, {T1: 5}, retry=False)
    desk.run(100)
    errors = {event.id: event.error for event in member.of(m.CommitCompleted)}
    assert errors[good] is None
    assert isinstance(errors[bad], OffsetMetadataTooLargeError)


def test_lost_connection_is_repeated_for_sync_and_told_for_async(desk: Desk, member: Member) -> None:
    lost: list[Request] = []

    def lose(request: Request) -> bool:
        if isinstance(request.message, OffsetCommitRequest) and len(lost) < 2:
            lost.append(request)
            return True
        return False

    desk.loses = lose
    quick = member.commit(desk.now, {T0: 1}, retry=False)
    desk.run(100)
    (done,) = member.of(m.CommitCompleted)
    assert done.id == quick
    assert isinstance(done.error, DisconnectedError)
    call = member.commit(desk.now, {T0: 2})
    desk.run(2_000)
    assert member.answer_to(call) == m.Answer(call)


def test_deadline_ends_a_commit_while_every_broker_is_silent(desk: Desk, member: Member) -> None:
    desk.loses = lambda request: isinstance(request.message, OffsetCommitRequest)
    call = member.commit(desk.now, {T0: 1}, timeout=500)
    desk.run(499)
    assert member.answer_to(call) is None
    desk.run(1)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, KafkaTimeoutError)
    assert "the connection was lost" in str(answer.error)
    assert member.commits.pending == 0


def test_b7_only_who_parts_from_partitions_gives_up_where_no_broker_is_there(
    desk: Desk, member: Member
) -> None:
    desk.loses = lambda request: isinstance(request.message, OffsetCommitRequest)
    patient = member.commit(desk.now, {T0: 1})
    parting = member.commit(desk.now, {T0: 2}, parting=True)
    desk.run(500)
    assert member.answer_to(parting) is None, "a broker may be there"
    member.commits.is_cut_off = lambda: True
    desk.run(200)
    answer = member.answer_to(parting)
    assert answer is not None
    assert isinstance(answer.error, ConnectError)
    assert member.answer_to(patient) is None


def test_deadline_of_an_unanswered_lookup(desk: Desk, member: Member) -> None:
    desk.loses = lambda request: isinstance(request.message, OffsetFetchRequest)
    call = member.fetch_committed(desk.now, [T0], timeout=500)
    desk.run(500)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, KafkaTimeoutError)


def test_commit_without_a_coordinator_waits_for_one(desk: Desk) -> None:
    member = Member("m", {"t": 4})
    wake = START + 60_000
    member.commit(START, {T0: 1})
    requests, wake_at = member.turn(START)
    assert requests == []
    assert wake_at == START, "the coordinator is looked up in the next turn, at once"
    requests, wake_at = member.turn(START)
    assert [request.name for request in requests] == ["FindCoordinator"]
    assert wake_at == wake


# ------------------------------------------------------------ rebalances in between


def test_c5_commit_that_a_rebalance_overtook_is_sent_again(desk: Desk, member: Member) -> None:
    """The generation ends between sending and arrival; the partition stays ours, so the commit is not lost."""
    refuse_commits(desk, ec.ILLEGAL_GENERATION)
    member.commit(desk.now, {T0: 9}, retry=False)
    desk.run(1)  # on its way
    member.membership.group = GroupMetadata(
        "g", member.membership.group.generation_id, member.membership.group.member_id
    )
    member.membership.rebalance(desk.now, "overtakes")
    desk.run(5_000)
    (done,) = member.of(m.CommitCompleted)
    assert done.error is None
    assert committed(desk, member, T0) == {T0: 9}


def test_c5_commit_waits_while_the_assignment_is_on_its_way(desk: Desk, member: Member) -> None:
    lost: list[Request] = []

    def lose(request: Request) -> bool:
        if isinstance(request.message, SyncGroupRequest) and not lost:
            lost.append(request)
            return True
        return False

    desk.loses = lose
    member.membership.rebalance(desk.now, "test")
    while member.membership.state.name != "COMPLETING_REBALANCE":
        desk.run(1)
    call = member.commit(desk.now, {T0: 3})
    desk.run(5_000)
    assert member.answer_to(call) == m.Answer(call)


def test_partitions_are_given_up_after_the_asynchronous_commits_that_were_given_before(
    desk: Desk, member: Member
) -> None:
    """Else what is given inside on_partitions_revoked would be of partitions that are not this member's any more."""
    given_up: list[int] = []
    member.commits.after(desk.now, (T0,), given_up.append)
    assert len(given_up) == 1, "there is nothing to wait for"
    member.commit(desk.now, {T0: 5, T1: 5}, retry=False)
    member.commit(desk.now, {T1: 6}, retry=False)
    member.commits.after(desk.now, (T0,), given_up.append)
    member.commits.after(desk.now, partitions("u", 0), given_up.append)
    assert len(given_up) == 2, "of others nothing is waited for"
    # What comes later is not waited for: it may never end.
    desk.run(0)
    member.commit(desk.now, {T0: 9}, retry=False)
    desk.run(2)
    assert len(given_up) == 3
    assert committed(desk, member, T0, T1) == {T0: 9, T1: 6}


def test_who_leaves_gives_partitions_up_without_waiting_for_a_coordinator(desk: Desk, member: Member) -> None:
    given_up: list[str] = []
    member.commit(desk.now, {T0: 5}, retry=False)
    member.coordinator.mark_unknown(desk.now, "test")
    member.commits.after(desk.now, (T0,), lambda now: given_up.append("stays"))
    member.commits.after(desk.now, (T0,), lambda now: given_up.append("leaves"), patient=False)
    assert given_up == ["leaves"]
    desk.run(1_000)
    assert given_up == ["leaves", "stays"]


@pytest.mark.parametrize("end", ["the time is over", "the group is lost"])
def test_partitions_are_given_up_though_the_commits_before_fail(desk: Desk, member: Member, end: str) -> None:
    desk.loses = lambda request: isinstance(request.message, OffsetCommitRequest)
    given_up: list[int] = []
    member.commit(desk.now, {T0: 5}, retry=False, timeout=500)
    member.commits.after(desk.now, (T0,), given_up.append)
    if end == "the group is lost":
        member.membership.poll_timed_out(desk.now)
    desk.run(600)
    assert len(given_up) == 1


def test_while_no_coordinator_is_known_the_oldest_of_many_asynchronous_commits_fail(
    desk: Desk, member: Member
) -> None:
    """A broker that is gone for a minute must not cost the memory of all commits of that minute."""
    member.coordinator.mark_unknown(desk.now, "test")
    for offset in range(1_500):
        member.commit(desk.now, {T0: offset}, retry=False)
    assert member.commits.pending == 1_000
    ends = member.of(m.CommitCompleted)
    assert len(ends) == 500
    assert all(isinstance(event.error, BrokerError) and event.error.retriable for event in ends)
    desk.run(1_000)
    assert member.commits.pending == 0
    assert committed(desk, member, T0) == {T0: 1_499}


def test_commit_of_lost_partitions_fails_with_advice(desk: Desk, member: Member) -> None:
    member.membership.poll_timed_out(desk.now)
    call = member.commit(desk.now, {T0: 3})
    desk.run(100)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, CommitFailedError)
    assert "max.poll.interval.ms" in str(answer.error)
    assert "max.poll.records" in str(answer.error)
    assert desk.sent(OffsetCommitRequest) == []


def test_commit_given_before_a_loss_is_not_sent_after_it(desk: Desk, member: Member) -> None:
    """Lost and assigned again: somebody else may have read it in between, so the old commit is void."""
    member.coordinator.mark_unknown(desk.now, "test")
    call = member.commit(desk.now, {T0: 3}, retry=False)
    answer = HeartbeatResponse(error_code=ec.UNKNOWN_MEMBER_ID)
    heartbeat = Request(None, NODE, desk.now)
    identity = member.membership.group
    heartbeat.message = HeartbeatRequest("g", identity.generation_id, identity.member_id)
    member.membership.on_heartbeat(desk.now, Completed(heartbeat, answer, None, 4, desk.now))
    desk.run(15_000)
    assert T0 in member.owned
    (done,) = member.of(m.CommitCompleted)
    assert done.id == call
    assert isinstance(done.error, CommitFailedError)


def test_unknown_member_at_commit_fails_it_and_rejoins(desk: Desk, member: Member) -> None:
    refuse_commits(desk, ec.UNKNOWN_MEMBER_ID)
    call = member.commit(desk.now, {T0: 3})
    desk.run(20_000)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, CommitFailedError)
    assert member.of(m.LosePartitions)
    assert member.membership.state.name == "STABLE"
    assert member.causes[-1] == "session lost: UNKNOWN_MEMBER_ID"


# ------------------------------------------------------------ look-ups


def refuse_fetches(desk: Desk, *plan: int, partition: bool) -> None:
    left = list(plan)

    def refuse(request: Request) -> Any:
        if not (isinstance(request.message, OffsetFetchRequest) and left):
            return None
        code, (asked,) = left.pop(0), request.message.groups
        topics = [
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(n, -1, -1, "", code if partition else 0)
                    for n in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
        top = 0 if partition else code
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(asked.group_id, topics, top)])

    desk.refuse = refuse


@pytest.mark.parametrize(
    ("code", "partition"),
    [
        (ec.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ec.NOT_COORDINATOR, False),
        (ec.UNSTABLE_OFFSET_COMMIT, True),
        (ec.UNKNOWN_TOPIC_ID, True),
    ],
)
def test_lookup_repeats_what_is_retriable(desk: Desk, member: Member, code: int, partition: bool) -> None:
    member.commit(desk.now, {T0: 5})
    desk.run(50)
    refuse_fetches(desk, code, code, partition=partition)
    call = member.fetch_committed(desk.now, [T0])
    desk.run(2_000)
    answer = member.answer_to(call)
    assert answer is not None
    assert answer.value == {T0: OffsetAndMetadata(5)}


def test_unknown_topic_id_asks_for_metadata(desk: Desk, member: Member) -> None:
    refuse_fetches(desk, ec.UNKNOWN_TOPIC_ID, partition=True)
    member.fetch_committed(desk.now, [T0])
    desk.run(10)
    assert member.metadata.updates == 1


@pytest.mark.parametrize(
    ("code", "partition", "kind"),
    [
        (ec.GROUP_AUTHORIZATION_FAILED, False, GroupAuthorizationError),
        (ec.TOPIC_AUTHORIZATION_FAILED, True, TopicAuthorizationError),
        (ec.UNKNOWN_TOPIC_OR_PARTITION, True, BrokerError),
    ],
)
def test_lookup_refused_for_good(
    desk: Desk, member: Member, code: int, partition: bool, kind: type[Exception]
) -> None:
    refuse_fetches(desk, code, partition=partition)
    with pytest.raises(kind):
        committed(desk, member, T0)


def test_lookup_that_is_repeated_after_a_refusal_for_good_does_not_spin(desk: Desk, member: Member) -> None:
    refuse_fetches(desk, *[ec.GROUP_AUTHORIZATION_FAILED] * 1_000, partition=False)
    refused: list[int] = []

    def again(now: int, result: object) -> None:
        refused.append(now)
        member.commits.lookup(now, frozenset([T0]), again)

    member.commits.lookup(desk.now, frozenset([T0]), again)
    desk.run(10_000)
    assert 5 <= len(refused) <= 20


def test_equal_lookups_that_wait_are_one_request(desk: Desk, member: Member) -> None:
    before = len(desk.sent(OffsetFetchRequest))
    seen: list[Any] = []
    calls = [member.fetch_committed(desk.now, [T0]) for _ in range(3)]
    member.commits.lookup(desk.now, frozenset([T0]), lambda now, result: seen.append(result))
    desk.run(100)
    assert len(desk.sent(OffsetFetchRequest)) == before + 1
    assert all(member.answer_to(call) is not None for call in calls)
    assert seen == [{T0: None}]


def test_require_stable_is_always_asked(desk: Desk, member: Member) -> None:
    member.fetch_committed(desk.now, [T0])
    desk.run(10)
    assert all(message.require_stable for message in desk.sent(OffsetFetchRequest))


def test_old_form_of_a_lookup_reads_back() -> None:
    """Version 7 has one group and its topics at the top; the bytes must be those of Kafka's own message."""
    member = Member("m", {"t": 4})
    member.coordinator.node = None
    member.fetch_committed(START, [T0, T1])
    desk = Desk({"t": 4}, member, versions={9: 7}, has_joined=False)
    desk.run(10)
    (message,) = desk.sent(OffsetFetchRequest)
    frame = encode_request(message, 7, 1, "c")
    _, read = decode_request(frame)
    assert (read.group_id, [(t.name, t.partition_indexes) for t in read.topics], read.groups) == (
        "g",
        [("t", [0, 1])],
        [],
    )
    assert decode_response(type(message), 7, encode_response(OffsetFetchResponse(), 7, 1))


@pytest.mark.parametrize("told", [True, False], ids=["metadata says so", "metadata knows it no more"])
def test_commit_of_a_topic_that_was_deleted_does_not_wait_for_it(
    desk: Desk, member: Member, told: bool
) -> None:
    """A rebalance because of the deletion commits first, and would be held up until request.timeout.ms."""
    gone = {"t": Topic("t", error_code=ec.UNKNOWN_TOPIC_OR_PARTITION)} if told else {}
    member.metadata.cluster = Cluster(topics=Layered(gone))
    refuse_commits(desk, ec.UNKNOWN_TOPIC_OR_PARTITION)
    call = member.commit(desk.now, {T0: 5})
    desk.run(50)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, UnknownTopicOrPartitionError)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
def test_kip516_a_position_is_committed_to_the_topic_it_was_read_from(
    desk: Desk, member: Member, again: bool
) -> None:
    """By its name it would become the position in a topic that was made anew, whose first records nobody would read."""
    state = member.subscription.partitions[T0]
    state.topic_id = old = id_of("t")
    topics = {"t": Topic("t", b"new".ljust(16))} if again else {}
    member.metadata.cluster = Cluster(topics=Layered(topics))
    sent: list[Request] = []

    def refuse(request: Request) -> Any:
        if not isinstance(request.message, OffsetCommitRequest):
            return None
        sent.append(request)
        return codes(request.message, ec.UNKNOWN_TOPIC_ID)

    desk.refuse = refuse
    call = member.commit(desk.now, {T0: 5})
    state.topic_id = b"new".ljust(16)
    desk.run(5_000)
    answer = member.answer_to(call)
    assert answer is not None
    assert isinstance(answer.error, BrokerError)
    assert answer.error.code == ec.UNKNOWN_TOPIC_ID
    (request,) = sent
    assert request.max_version is None
    assert [topic.topic_id for topic in request.message.topics] == [old]


def test_c19_an_offset_counts_only_under_the_fetch_epoch_under_which_it_was_read(
    desk: Desk, member: Member
) -> None:
    """A reset came in between: neither who waits nor who does not is told that it is committed."""
    epochs = {p: member.subscription.partitions[p].shared_partition.fetch_epoch for p in (T0, T1)}
    member.subscription.position(T0, 0, None)
    offsets = {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(7)}
    for call, retry in ((101, True), (102, False), (103, True)):
        read = offsets if call < 103 else {T0: OffsetAndMetadata(5)}
        member.commits.commit(
            desk.now,
            m.Commit(call, desk.now + 1000, read, retry, read_under={p: epochs[p] for p in read}),
        )
    desk.run(100)
    assert committed(desk, member, T0, T1) == {T0: None, T1: 7}
    assert member.answer_to(101) == m.Answer(101, frozenset({T0}))
    assert member.answer_to(103) == m.Answer(103, frozenset({T0}))
    (completed,) = [e for e in member.background_events if isinstance(e, m.CommitCompleted)]
    assert completed == m.CommitCompleted(102, {T1: OffsetAndMetadata(7)}, None)


def test_c19_an_offset_that_waits_is_void_once_its_topic_is_known_to_be_made_anew(
    desk: Desk, member: Member
) -> None:
    """Brokers before OffsetCommit 10 know topics by their names, and would take it for the new one."""
    state = member.subscription.partitions[T0]
    state.topic_id = old = id_of("t")
    read_under = {T0: state.shared_partition.fetch_epoch}
    refuse_commits(desk, ec.COORDINATOR_LOAD_IN_PROGRESS)
    member.commits.commit(
        desk.now, m.Commit(101, desk.now + 5_000, {T0: OffsetAndMetadata(5)}, True, read_under=read_under)
    )
    desk.run(20)
    state.former_topic_ids |= {old}
    desk.run(2_000)
    assert committed(desk, member, T0) == {T0: None}
    assert member.answer_to(101) == m.Answer(101, frozenset({T0}))


def test_who_parts_from_partitions_commits_without_metadata_that_is_too_large(
    desk: Desk, member: Member
) -> None:
    """Nobody could shorten it any more: the partitions are another member's as soon as the commit has ended."""
    call = m.Commit(
        101,
        desk.now + 1000,
        {T0: OffsetAndMetadata(5, None, "x" * 11), T1: OffsetAndMetadata(7)},
        False,
        True,
    )
    member.commits.commit(desk.now, call)
    desk.run(1_000)
    assert committed(desk, member, T0, T1) == {T0: 5, T1: 7}
