"""Locks that the network thread keeps while the application works, under virtual time (KIP-1222; Q2)."""

from __future__ import annotations

import pytest
from tests.worlds.share import ACCEPT, LOCK_MS, NODE, OTHER, RENEW, Requests, batches_of

from kadence.clock import FOREVER
from kadence.connection.request import Request
from kadence.errors import InvalidRecordStateError, UnsupportedVersionError
from kadence.protocol import error_codes as ec
from kadence.share.acknowledgements import Acknowledged
from kadence.share.events import Sending
from kadence.types import TopicPartition


@pytest.fixture
def world() -> Requests:
    return Requests()


def renewal(world: Requests) -> Request:
    """The renewal that goes out when the first is due."""
    world.hand.now = world.hand.wake_at()
    request = world.said()
    assert request.message.is_renew_ack
    return request


def test_q2_a_handler_of_ten_minutes_keeps_its_lock(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    began = world.now
    while world.now - began < 600_000:
        request = renewal(world)
        assert batches_of(request) == {0: [(0, 9, [RENEW])]}
        assert request.min_version == 2
        assert world.now <= fetch.lock_ends - LOCK_MS // 2, "half of the lock is left for what goes wrong"
        world.hand.advance(20)
        world.answer(request)
        assert fetch.is_locked(world.now)
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    world.answer(world.said())
    assert list(world.answer_to(call).values()) == [None]


def test_only_what_nothing_is_said_of_is_renewed(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, 2, 5, sending=Sending.ASYNC)
    world.answer(world.said())
    for request in world.sent():
        # One ahead, which brings nothing, and then more of them.
        world.answer(request)
    world.manager.assigned(world.now, {})
    assert batches_of(renewal(world)) == {0: [(0, 1, [RENEW]), (6, 9, [RENEW])]}


def test_what_lies_in_the_buffer_is_renewed_too(world: Requests) -> None:
    """Records that nobody saw use up no delivery counts, also when the pace was wrong (Q3)."""
    world.waits()
    world.bring(world.fetch(), (0, 9, 1))
    world.state.unwant(world.now, found=True)
    assert batches_of(renewal(world)) == {0: [(0, 9, [RENEW])]}


def test_locks_that_end_soon_are_renewed_in_one_request(world: Requests) -> None:
    world.acquired((0, 4, 1))
    world.hand.advance(5_000)
    world.acquired((5, 9, 1))
    world.hand.advance(9_000)
    world.acquired((10, 14, 1))
    request = renewal(world)
    assert batches_of(request) == {0: [(0, 9, [RENEW])]}, "the third is fresh"


def test_by_a_key_it_is_as_with_javas() -> None:
    world = Requests(share_lock_renewal=False)
    world.acquired((0, 9, 1))
    assert world.hand.wake_at() == FOREVER


def test_acknowledgements_do_not_go_with_renewals(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    other = world.acquired((10, 19, 1))
    world.hand.advance(LOCK_MS // 2)
    world.say({fetch: (Acknowledged(0, 9, ACCEPT),)}, sending=Sending.ASYNC)
    request = world.said()
    assert (request.message.is_renew_ack, batches_of(request)) == (False, {0: [(0, 9, [ACCEPT])]})
    world.answer(request)
    request = world.said()
    assert (request.message.is_renew_ack, batches_of(request)) == (True, {0: [(10, 19, [RENEW])]})
    assert other.is_locked(world.now)


def test_a_refused_renewal_is_split_so_that_the_others_locks_hold(world: Requests) -> None:
    lost, kept = world.acquired((0, 4, 1)), world.acquired((5, 9, 1))
    world.answer(renewal(world), p0=ec.INVALID_RECORD_STATE)
    request = world.said()
    assert batches_of(request) == {0: [(0, 4, [RENEW])]}
    world.answer(request, p0=ec.INVALID_RECORD_STATE)
    request = world.said()
    assert batches_of(request) == {0: [(5, 9, [RENEW])]}
    renewed_at = world.now
    world.answer(request)
    assert kept.lock_ends == renewed_at + LOCK_MS
    assert lost.lock_ends < kept.lock_ends
    assert world.sent() == [], "what was refused alone is not asked for again"


def test_a_record_whose_lock_was_renewed_apart_from_the_others_is_kept_when_theirs_have_ended(
    world: Requests,
) -> None:
    fetch = world.acquired((0, 9, 1))
    held = world.manager._nodes[NODE].held[fetch]
    held.renewed([(5, 5)], fetch.lock_ends + LOCK_MS)
    world.hand.now = fetch.lock_ends
    assert world.hand.wake_at() > world.now
    for _ in range(5):
        request = renewal(world)
        assert batches_of(request) == {0: [(5, 5, [RENEW])]}
        renewed_at = world.now
        world.answer(request)
        assert held.ends == renewed_at + LOCK_MS
    assert not fetch.is_locked(world.now)


def test_a_renewal_that_failed_for_a_while_is_tried_again_in_time(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    for _ in range(3):
        world.answer(renewal(world), ec.COORDINATOR_NOT_AVAILABLE)
    world.answer(renewal(world))
    assert fetch.lock_ends - world.now == LOCK_MS


def test_locks_that_are_renewed_again_and_again_are_kept_once(world: Requests) -> None:
    """An application may work on one record of a fetch for hours, when the others are lost or done."""
    fetch = world.acquired((0, 9, 1))
    held = world.manager._nodes[NODE].held[fetch]
    held.renewed([(2, 3), (5, 9)], fetch.lock_ends + 1)
    for more in range(2, 100):
        held.renewed([(5, 9)], fetch.lock_ends + more)
    assert len(fetch.apart) == 2
    assert held.locked_until([(2, 3)]) == fetch.lock_ends + 1
    assert held.locked_until([(5, 9)]) == fetch.lock_ends + 99


def test_a_broker_that_knows_no_renewals_is_not_asked_again(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.hand.fail(renewal(world), UnsupportedVersionError("only version 1"))
    assert world.hand.wake_at() == FOREVER
    assert fetch.void is None
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    world.answer(world.said())
    assert list(world.answer_to(call).values()) == [None]


def test_after_an_epoch_error_locks_are_renewed_in_the_session_that_is_opened_anew(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.answer(renewal(world), ec.INVALID_SHARE_SESSION_EPOCH)
    world.hand.now = world.hand.wake_at()
    opens = world.fetch()
    assert (opens.message.share_session_epoch, opens.message.max_records) == (0, 0)
    world.answer_fetch(opens)
    request = world.said()
    assert (request.message.share_session_epoch, request.message.is_renew_ack) == (1, True)
    world.answer(request)
    assert fetch.lock_ends - world.now == LOCK_MS


def test_nothing_is_renewed_for_who_has_left(world: Requests) -> None:
    world.acquired((0, 4, 1))
    world.hand.advance(LOCK_MS // 2)
    world.manager.leave()
    request = world.said()
    assert (request.message.share_session_epoch, request.message.is_renew_ack) == (-1, False)


def test_q2_locks_that_became_shorter_are_renewed_in_time(world: Requests) -> None:
    """An operator lowers the group's share.record.lock.duration.ms while a handler works."""
    fetch = world.acquired((0, 9, 1))
    world.lock_ms = 6_000
    began = world.now
    while world.now - began < 60_000:
        request = renewal(world)
        sent_at = world.now
        assert sent_at <= fetch.lock_ends - world.lock_ms // 2
        world.hand.advance(20)
        world.answer(request)
        assert fetch.lock_ends == sent_at + world.lock_ms, "the broker counts from the renewal"
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    world.answer(world.said())
    assert list(world.answer_to(call).values()) == [None]


def test_q2_a_part_that_the_application_renewed_for_a_shorter_time_is_renewed_with_the_rest(
    world: Requests,
) -> None:
    fetch = world.acquired((0, 9, 1))
    world.lock_ms = 6_000
    world.acknowledge(fetch, 2, 4, RENEW, sending=Sending.ASYNC)
    world.answer(world.said())
    began = world.now
    request = renewal(world)
    assert batches_of(request) == {0: [(0, 9, [RENEW])]}
    assert world.now == began + 3_000
    world.answer(request)
    assert fetch.lock_ends == world.now + 6_000


@pytest.mark.parametrize("renewed", [(0, 9), (2, 4), (0, 1)])
def test_q4_what_is_said_after_the_end_of_a_shorter_lock_is_late(renewed: tuple[int, int]) -> None:
    world = Requests(share_lock_renewal=False)
    fetch = world.acquired((0, 9, 1))
    world.lock_ms = 6_000
    world.acknowledge(fetch, *renewed, RENEW, sending=Sending.ASYNC)
    for request in world.sent():
        world.answer(request)
    world.ended()
    world.hand.advance(6_000)
    world.sent()
    call = world.say({fetch: (Acknowledged(0, 9, ACCEPT),)})
    kept = [(first, last) for first, last in ((0, renewed[0] - 1), (renewed[1] + 1, 9)) if first <= last]
    if kept:
        request = world.said()
        assert batches_of(request) == {0: [(*each, [ACCEPT]) for each in kept]}
        world.answer(request)
    [error] = world.answer_to(call).values()
    assert isinstance(error, InvalidRecordStateError)


def test_what_is_said_while_a_renewal_shortens_its_lock_is_late_after_that(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    request = renewal(world)
    world.acknowledge(fetch, 0, 3, sending=Sending.ASYNC)
    world.lock_ms = 6_000
    world.answer(request)
    world.answer(world.said(), p0=ec.COORDINATOR_NOT_AVAILABLE)
    world.hand.advance(6_000)
    world.sent()
    [ended] = [each for each in world.ended() if each.error]
    assert ended.acknowledged == (Acknowledged(0, 3, ACCEPT),)


def test_renewals_are_measured(world: Requests) -> None:
    world.acquired((0, 9, 1))
    world.answer(renewal(world))
    assert world.state.measures.renewed.total == 10


def test_a_renewal_that_is_answered_after_the_locks_have_ended_counts_for_nothing(world: Requests) -> None:
    """The application has dropped what lay in the buffer: were it renewed, nobody would ever have it again."""
    fetch = world.acquired((0, 9, 1))
    late = renewal(world)
    world.hand.now = fetch.lock_ends
    assert not fetch.is_locked(world.now)
    world.answer(late)
    assert not fetch.is_locked(world.now)
    for request in world.sent():
        assert not getattr(request.message, "is_renew_ack", False)


def test_a_renewal_of_the_application_that_is_answered_after_its_lock_has_failed(world: Requests) -> None:
    """The process was paused, and the broker has renewed the lock until a time that is over."""
    fetch = world.acquired((0, 9, 1))
    call = world.acknowledge(fetch, 0, 4, RENEW, sending=Sending.SYNC)
    late = world.said()
    world.hand.now = fetch.lock_ends
    world.answer(late)
    [error] = world.answer_to(call).values()
    assert isinstance(error, InvalidRecordStateError)


def test_what_is_said_of_offsets_whose_locks_have_ended_is_late_though_others_were_renewed() -> None:
    world = Requests(share_lock_renewal=False)
    fetch = world.acquired((0, 9, 1))
    for ms in (LOCK_MS // 2, LOCK_MS // 2 + 10):
        world.hand.advance(ms)
        world.acknowledge(fetch, 0, 0, RENEW, sending=Sending.ASYNC)
        for request in world.sent():
            world.answer(request)
    world.ended()
    call = world.say({fetch: (Acknowledged(0, 3, ACCEPT),)})
    request = world.said()
    assert batches_of(request) == {0: [(0, 0, [ACCEPT])]}
    world.answer(request)
    [error] = world.answer_to(call).values()
    assert isinstance(error, InvalidRecordStateError)


def test_q4_what_is_said_is_late_when_its_own_locks_have_ended_though_others_of_the_fetch_were_renewed(
    world: Requests,
) -> None:
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, 0, 4)
    began = world.now
    while world.now < began + LOCK_MS:
        for request in world.sent():
            if request.message.is_renew_ack:
                assert batches_of(request) == {0: [(5, 9, [RENEW])]}
                world.answer(request)
            elif batches_of(request):
                world.answer(request, p0=ec.COORDINATOR_NOT_AVAILABLE)
            else:
                world.answer_fetch(request)
        world.hand.advance(500)
    assert fetch.lock_ends > world.now
    assert all(first > 4 for request in world.sent() for first, _, _ in batches_of(request).get(0, ()))
    [ended] = world.ended()
    assert isinstance(ended.error, InvalidRecordStateError)
    assert ended.acknowledged == (Acknowledged(0, 4, ACCEPT),)


def test_what_is_said_while_a_renewal_is_under_way_is_locked_by_that(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.hand.advance(LOCK_MS // 2)
    renewal = world.said()
    world.acknowledge(fetch, 0, 9, sending=Sending.SYNC)
    world.answer(renewal)
    world.hand.advance(LOCK_MS * 3 // 4)
    world.answer(world.said())
    assert not [each for each in world.ended() if each.error]


def test_a_renewal_that_failed_for_the_moment_is_repeated_after_a_pause(world: Requests) -> None:
    world.acquired((0, 9, 1))
    world.answer(renewal(world), p0=ec.COORDINATOR_NOT_AVAILABLE)
    assert world.sent() == []
    world.hand.advance(1_000)
    assert world.said().message.is_renew_ack


def test_a_group_without_renewals_is_told_of_once(world: Requests, caplog: pytest.LogCaptureFixture) -> None:
    for first in (0, 10):
        world.acquired((first, first + 9, 1))
        world.answer(renewal(world), p0=ec.INVALID_RECORD_STATE)
    assert caplog.text.count("cannot be renewed") == 1


@pytest.mark.parametrize("code", [ec.NOT_LEADER_OR_FOLLOWER, ec.UNKNOWN_TOPIC_ID])
def test_a_renewal_that_meets_a_moved_partition_voids_its_locks_at_once(code: int) -> None:
    """Also once the session has forgotten the partition. Others' acknowledgements do not wait for it."""
    world = Requests({0: NODE, 1: NODE})
    fetch = world.acquired((0, 4, 1))
    world.cluster.leaders[TopicPartition("t", 0)] = OTHER
    world.cluster.version += 1
    world.hand.turn()
    for request in world.hand.turn():
        world.answer_fetch(request)
    kept = world.acquired((0, 4, 1), number=1)
    world.hand.now = fetch.lock_ends - LOCK_MS // 2
    [request] = [each for each in world.sent() if each.message.is_renew_ack]
    world.answer(request, p0=code)
    assert fetch.void is not None
    world.acknowledge(kept, sending=Sending.ASYNC)
    assert [batches_of(each) for each in world.sent() if each.node_id == NODE] == [{1: [(0, 4, [ACCEPT])]}]


def test_q2_a_record_renewed_until_sooner_leaves_the_others_of_its_fetch_locked(world: Requests) -> None:
    """The group's locks became shorter. What lies in the buffer was locked before that, and is returned."""
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, 0, 0, RENEW, sending=Sending.SYNC)
    held = world.manager._nodes[NODE].held[fetch]
    held.renewed([(0, 0)], world.now + LOCK_MS // 4)
    assert held.ends == world.now + LOCK_MS // 4
    now = world.now + LOCK_MS // 2
    assert not fetch.is_locked_at(now, 0)
    assert fetch.is_locked(now)
    assert fetch.is_locked_at(now, 1)
    held.expire(now)
    assert held.open == [(1, 9)]
    held.renewed(held.open, now + LOCK_MS)
    assert fetch.lock_ends == now + LOCK_MS
    assert not fetch.is_locked_at(now, 0)
