"""Share sessions under virtual time, the brokers played by hand (KIP-932; reference §4, §11 and §13)."""

from __future__ import annotations

import pytest
from tests.worlds.share import (
    ACCEPT,
    LOCK_MS,
    NODE,
    OTHER,
    RENEW,
    Requests,
    batches_of,
    forgotten,
    moved_to,
    named,
    tip,
)

from kadence.clock import FOREVER
from kadence.consumer import events as m
from kadence.errors import DisconnectedError, InvalidRecordStateError, NotLeaderError
from kadence.protocol import error_codes as ec
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import PartitionData
from kadence.share.events import Sending
from kadence.types import TopicPartition


@pytest.fixture
def world() -> Requests:
    return Requests({0: NODE, 1: NODE})


def test_a_partition_that_went_is_forgotten(world: Requests) -> None:
    """Or each topic that is made, refused and deleted would stay for good."""
    world.waits()
    refused = [PartitionData(partition_index=0, error_code=ec.UNKNOWN_TOPIC_ID, records=b"")]
    world.answer_fetch(world.fetch(), refused)
    answers = world.manager._answers
    assert answers._retries
    assert answers.next_retry < FOREVER
    world.assign()
    assert not answers._retries
    assert answers.next_retry == FOREVER


def test_nothing_is_fetched_before_a_poll_waits(world: Requests) -> None:
    assert world.sent() == []
    world.waits()
    request = world.fetch()
    message = request.message
    assert (message.group_id, message.member_id, message.share_session_epoch) == ("q", "m1", 0)
    assert (message.max_records, message.batch_size, message.share_acquire_mode) == (500, 500, 0)
    assert (message.max_wait_ms, message.min_bytes) == (500, 1)
    assert named(request) == [0, 1]


def test_epochs_count_and_what_the_broker_knows_is_not_named_again(world: Requests) -> None:
    world.waits()
    epochs = []
    for _ in range(3):
        request = world.fetch()
        epochs.append((request.message.share_session_epoch, named(request)))
        world.hand.advance(500)
        world.answer_fetch(request)
    assert epochs == [(0, [0, 1]), (1, []), (2, [])]


def test_one_request_is_under_way_at_a_broker(world: Requests) -> None:
    world.waits()
    world.fetch()
    assert world.sent() == []


def test_brokers_are_asked_each_for_its_own_partitions() -> None:
    world = Requests({0: NODE, 1: OTHER})
    world.waits()
    assert {request.node_id: named(request) for request in world.sent()} == {NODE: [0], OTHER: [1]}


def test_partitions_come_and_go_with_the_assignment(world: Requests) -> None:
    world.waits()
    world.answer_fetch(world.fetch())
    world.cluster.leaders[TopicPartition("t", 2)] = NODE
    world.assign(1, 2)
    request = world.fetch()
    assert (named(request), forgotten(request)) == ([2], [0])


def test_a_partition_that_only_carries_acknowledgements_is_forgotten_with_them(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.assign(1)
    world.acknowledge(fetch)
    world.waits()
    request = world.fetch()
    assert batches_of(request) == {0: [(0, 4, [ACCEPT])]}
    assert forgotten(request) == [0]


def test_epoch_0_carries_no_acknowledgements(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.acknowledge(fetch)
    world.waits()
    request = world.fetch()
    assert request.message.share_session_epoch == 1
    world.answer(request, ec.INVALID_SHARE_SESSION_EPOCH)
    world.hand.advance(200)
    request = world.fetch()
    assert (request.message.share_session_epoch, batches_of(request)) == (0, {})


def test_13_7_after_an_epoch_error_the_session_is_opened_with_limits_0_and_the_locks_hold(
    world: Requests,
) -> None:
    fetch = world.acquired((0, 4, 1))
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    world.answer(world.said(), ec.INVALID_SHARE_SESSION_EPOCH)
    assert world.told.of(m.Answer) == []
    world.hand.advance(200)
    request = world.fetch()
    opens = request.message
    assert (opens.share_session_epoch, opens.max_wait_ms, opens.min_bytes) == (0, 0, 0)
    assert (opens.max_bytes, opens.max_records) == (0, 0)
    world.answer_fetch(request)
    request = world.said()
    assert (request.message.share_session_epoch, batches_of(request)) == (1, {0: [(0, 4, [ACCEPT])]})
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


def test_a_connection_that_is_lost_behind_an_epoch_error_takes_the_locks_with_it(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    call = world.acknowledge(fetch, 0, 1, sending=Sending.SYNC)
    world.answer(world.said(), ec.INVALID_SHARE_SESSION_EPOCH)
    error = DisconnectedError("gone")
    world.manager.disconnected(world.now, NODE, error)
    assert fetch.void is error
    assert world.answer_to(call) == {tip(): error}


def test_a_lost_session_has_released_everything(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    call = world.acknowledge(fetch, 0, 1, sending=Sending.SYNC)
    world.answer(world.said(), ec.SHARE_SESSION_NOT_FOUND)
    assert fetch.void is not None
    (error,) = world.answer_to(call).values()
    assert error.code == ec.SHARE_SESSION_NOT_FOUND
    (ended,) = world.ended()
    assert ended.error is error
    world.waits()
    world.hand.advance(200)
    assert world.fetch().message.share_session_epoch == 0


def test_a_transport_error_voids_what_was_under_way_waits_and_is_held(world: Requests) -> None:
    first = world.acquired((0, 4, 1))
    world.waits()
    world.bring(world.fetch(), (5, 9, 1))
    second = world.state.acquired_fetches[-1]
    under_way = world.acknowledge(first, 0, 2, sending=Sending.SYNC)
    request = world.said()
    waiting = world.acknowledge(first, 3, 4, sending=Sending.SYNC)
    world.hand.lose(request)
    for call in (under_way, waiting):
        (error,) = world.answer_to(call).values()
        assert isinstance(error, DisconnectedError)
    assert isinstance(second.void, DisconnectedError), "what is buffered is to be dropped"
    late = world.acknowledge(second, sending=Sending.SYNC)
    assert world.answer_to(late) == {tip(): second.void}
    world.hand.advance(200)
    assert world.fetch().message.share_session_epoch == 0


def test_a_full_cache_of_sessions_is_waited_for_and_not_spun_on(world: Requests) -> None:
    world.waits()
    world.answer_fetch(world.fetch(), code=ec.SHARE_SESSION_LIMIT_REACHED)
    assert world.sent() == []
    assert 0 < world.hand.wake_at() - world.now <= 1_200
    world.hand.now = world.hand.wake_at()
    assert world.fetch().message.share_session_epoch == 0


def test_13_4_a_refused_request_leaves_its_epoch_unused(world: Requests) -> None:
    world.acquired((0, 4, 1))
    world.waits()
    world.answer_fetch(world.fetch(), code=ec.INVALID_REQUEST)
    world.hand.advance(200)
    world.waits()
    assert world.fetch().message.share_session_epoch == 1


def test_a_session_without_partitions_locks_or_words_is_closed(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.assign()
    assert world.sent() == [], "records of it are held"
    world.acknowledge(fetch, sending=Sending.ASYNC)
    world.answer(world.said())
    request = world.said()
    assert (request.message.share_session_epoch, request.message.topics) == (-1, [])
    world.answer(request)
    assert world.sent() == []
    assert not world.manager.pending


def test_records_are_acknowledged_where_they_were_fetched(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.cluster.leaders[TopicPartition("t", 0)] = OTHER
    world.cluster.version += 1
    world.acknowledge(fetch, sending=Sending.SYNC)
    (request,) = [each for each in world.sent() if batches_of(each)]
    assert request.node_id == NODE
    assert isinstance(request.message, ShareAcknowledgeRequest)


@pytest.mark.parametrize("code", [ec.NOT_LEADER_OR_FOLLOWER, ec.FENCED_LEADER_EPOCH])
def test_a_moved_leader_is_followed_and_its_locks_are_void(world: Requests, code: int) -> None:
    fetch = world.acquired((0, 4, 1))
    world.waits()
    world.answer_fetch(
        world.fetch(),
        [PartitionData(partition_index=0, error_code=code, current_leader=moved_to(OTHER), records=b"")],
    )
    assert world.cluster.told == [(TopicPartition("t", 0), OTHER, 5)]
    assert fetch.void is not None
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    assert world.answer_to(call) == {tip(): fetch.void}, "never sent to the new leader"
    world.hand.advance(200)
    assert {request.node_id: named(request) for request in world.sent()} == {NODE: [], OTHER: [0]}


def test_a_partition_that_is_not_initialised_yet_is_waited_for(world: Requests) -> None:
    world.waits()
    world.answer_fetch(
        world.fetch(), [PartitionData(partition_index=0, error_code=ec.UNKNOWN_SERVER_ERROR, records=b"")]
    )
    assert world.told == []
    request = world.fetch()
    assert forgotten(request) == [0], "not read while it is waited for"
    world.hand.advance(500)
    world.answer_fetch(request)
    assert named(world.fetch()) == [0]


def test_a_topic_that_may_not_be_read_is_told_of(world: Requests) -> None:
    world.waits()
    world.answer_fetch(
        world.fetch(),
        [PartitionData(partition_index=0, error_code=ec.TOPIC_AUTHORIZATION_FAILED, records=b"")],
    )
    (failed,) = world.told.of(m.Failed)
    assert "'t'" in str(failed.error)


def test_the_locks_are_counted_from_when_the_fetch_left(world: Requests) -> None:
    world.waits()
    request = world.fetch()
    sent_at = world.now
    world.hand.advance(400)
    world.bring(request, (0, 4, 1))
    assert world.state.lock_timeout_ms == LOCK_MS
    fetch = world.take()
    assert fetch.lock_ends == sent_at + LOCK_MS
    world.hand.now = fetch.lock_ends
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    (error,) = world.answer_to(call).values()
    assert isinstance(error, InvalidRecordStateError)


def test_q4_records_that_a_new_leader_gives_void_the_locks_of_the_old_one(world: Requests) -> None:
    """Nobody may have asked the old one since: what is held of it would be worked on twice."""
    world.waits()
    world.bring(world.fetch(), (0, 4, 1))
    old = world.take()
    world.cluster.moved(world.now, TopicPartition("t", 0), OTHER, 5, {})
    world.waits()
    (request,) = [each for each in world.sent() if each.node_id == OTHER]
    world.bring(request, (0, 4, 1))
    new = world.state.acquired_fetches[-1]
    assert isinstance(old.void, NotLeaderError)
    assert new.void is None
    call = world.acknowledge(new, sending=Sending.SYNC)
    (request,) = [each for each in world.sent() if batches_of(each)]
    assert request.node_id == OTHER
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


def test_q4_an_older_answer_that_comes_late_is_the_one_that_is_void(world: Requests) -> None:
    world.waits()
    late = world.fetch()
    world.cluster.moved(world.now, TopicPartition("t", 0), OTHER, 5, {})
    world.hand.advance(10)
    world.waits()
    (request,) = [each for each in world.sent() if each.node_id == OTHER]
    world.bring(request, (0, 4, 1))
    world.bring(late, (0, 4, 1))
    new, old = world.state.acquired_fetches
    assert (new.void, type(old.void)) == (None, NotLeaderError)


def test_q4_records_that_a_broker_gives_again_are_locked_by_the_last_answer_alone(world: Requests) -> None:
    """It has lost the partition and led it again, between two requests."""
    world.waits()
    world.bring(world.fetch(), (0, 4, 1))
    old = world.take()
    world.waits()
    world.bring(world.fetch(), (5, 9, 1))
    other = world.take()
    world.waits()
    world.bring(world.fetch(), (3, 4, 1))
    assert isinstance(old.void, InvalidRecordStateError)
    assert other.void is None, "of these nothing is known"
    assert world.take().void is None


def test_q4_records_that_come_again_after_their_locks_void_no_renewed_ones_beside_them() -> None:
    world = Requests(share_lock_renewal=False)
    old = world.acquired((0, 9, 1))
    world.hand.advance(LOCK_MS - 300)
    world.acknowledge(old, 0, 4, RENEW, sending=Sending.ASYNC)
    world.answer(world.said())
    world.waits()
    request = world.fetch()
    world.hand.advance(300)
    world.bring(request, (5, 9, 2))
    assert old.void is None
    world.take()
    call = world.acknowledge(old, 0, 4, sending=Sending.SYNC)
    world.answer(world.said())
    assert world.answer_to(call) == {tip(): None}


@pytest.mark.parametrize("code", [ec.UNKNOWN_TOPIC_OR_PARTITION, ec.NOT_LEADER_OR_FOLLOWER])
def test_q4_records_that_come_with_the_refusal_of_older_ones_are_not_void(world: Requests, code: int) -> None:
    """A broker that leads a partition anew knows no locks, refuses what is said of them, and gives out records."""
    old = world.acquired((0, 4, 1))
    world.acknowledge(old, 0, 2)
    world.waits()
    request = world.fetch()
    assert batches_of(request)
    world.bring(request, (0, 4, 1), acknowledge_code=code)
    (ended,) = world.ended()
    assert ended.error is not None
    assert old.void is not None
    new = world.take()
    assert new.void is None
    call = world.acknowledge(new, sending=Sending.SYNC)
    world.answer(world.said())
    assert world.answer_to(call) == {tip(): None}
