"""How a share consumer leaves: what was said goes out, the sessions end, what is held is released (KIP-932; Q4)."""

from __future__ import annotations

import pytest
from tests.worlds.share import ACCEPT, NODE, OTHER, RELEASE, Requests, batches_of, forgotten, tip

from kadence.protocol import error_codes as ec
from kadence.share.events import Sending


@pytest.fixture
def world() -> Requests:
    return Requests()


def test_the_session_ends_with_what_is_still_to_be_said(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.state.wants_results = True
    world.acknowledge(fetch, 0, 4)
    world.manager.leave()
    assert world.manager.pending
    request = world.said()
    assert request.message.share_session_epoch == -1
    assert batches_of(request) == {0: [(0, 4, [ACCEPT])]}
    world.answer(request)
    (ended,) = world.ended()
    assert ended.error is None
    assert not world.manager.pending


def test_what_is_not_acknowledged_is_void_from_then_on(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.manager.leave()
    assert fetch.void is not None
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    assert world.answer_to(call) == {tip(): fetch.void}


def test_every_broker_is_told() -> None:
    world = Requests({0: NODE, 1: OTHER})
    world.waits()
    for request in world.sent():
        world.answer_fetch(request)
    for request in world.sent():
        world.hand.advance(0)
        world.answer_fetch(request)
    world.state.unwant(world.now, found=True)
    world.manager.leave()
    closes = world.sent()
    assert {request.node_id: request.message.share_session_epoch for request in closes} == {
        NODE: -1,
        OTHER: -1,
    }
    for request in closes:
        world.answer(request)
    assert not world.manager.pending


def test_what_is_held_of_a_partition_that_has_left_the_session_is_released() -> None:
    """The end of the session releases only what the session has; the rest would stay locked until the locks end."""
    world = Requests({0: NODE, 1: NODE})
    world.acquired((0, 9, 1))
    world.assign(1)
    world.waits()
    request = world.fetch()
    assert forgotten(request) == [0]
    world.answer_fetch(request)
    world.manager.leave()
    closes = world.said()
    assert (closes.message.share_session_epoch, batches_of(closes)) == (-1, {0: [(0, 9, [RELEASE])]})


def test_a_session_that_was_never_opened_is_not_closed(world: Requests) -> None:
    world.manager.leave()
    world.assign()
    assert world.sent() == []
    assert not world.manager.pending


def test_records_that_come_after_leaving_are_not_given_out(world: Requests) -> None:
    world.waits()
    request = world.fetch()
    world.manager.leave()
    assert world.sent() == [], "one request at a time"
    world.bring(request, (0, 9, 1))
    assert not world.state.acquired_fetches
    assert world.said().message.share_session_epoch == -1, "which releases them"


def test_a_failed_goodbye_is_not_repeated(world: Requests) -> None:
    world.acquired((0, 9, 1))
    world.manager.leave()
    world.hand.lose(world.said())
    assert not world.manager.pending, "the broker released everything when the connection ended"


def test_retried_acknowledgements_go_out_before_the_session_ends(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    request = world.said()
    world.manager.leave()
    world.answer(request, p0=ec.COORDINATOR_NOT_AVAILABLE)
    world.hand.now = world.hand.wake_at()
    request = world.said()
    assert (request.message.share_session_epoch, batches_of(request)) == (-1, {0: [(0, 9, [ACCEPT])]})
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


@pytest.mark.parametrize("others", [False, True])
def test_an_epoch_error_while_the_member_leaves_loses_no_acknowledgement(
    world: Requests, *, others: bool
) -> None:
    """The locks hold, and of the request that closes the session the broker does not look at the epoch."""
    fetch = world.acquired((0, 9, 1))
    call = world.acknowledge(fetch, 0, 4, sending=Sending.SYNC)
    request = world.said()
    later = world.acknowledge(fetch, 5, 9, sending=Sending.SYNC) if others else None
    world.manager.leave()
    world.answer(request, ec.INVALID_SHARE_SESSION_EPOCH)
    assert world.manager.pending
    world.hand.now = world.hand.wake_at()
    request = world.said()
    assert request.message.share_session_epoch == -1
    assert batches_of(request) == {0: [(0, 9 if others else 4, [ACCEPT])]}
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}
    assert later is None or world.answer_to(later) == {tip(): None}
    assert not world.manager.pending


def test_the_next_membership_has_a_session_of_its_own(world: Requests) -> None:
    world.acquired((0, 9, 1))
    world.manager.leave()
    request = world.said()
    world.member.group = world.member.group.__class__("q", 1, "m2")
    world.assign(0)
    world.waits()
    assert world.sent() == [], "the old one first"
    world.answer(request)
    assert world.sent() == []
    request = world.fetch()
    assert (request.message.member_id, request.message.share_session_epoch) == ("m2", 0)


def test_a_long_poll_that_holds_nothing_is_waited_for(world: Requests) -> None:
    """Kafka would go on with it after the connection has closed, and acquire records for nobody."""
    world.waits()
    request = world.fetch()
    world.manager.leave()
    assert world.manager.pending
    world.answer_fetch(request)
    closes = world.said()
    assert closes.message.share_session_epoch == -1
    assert world.manager.pending
    world.answer(closes)
    assert not world.manager.pending


def test_what_is_held_is_waited_for_behind_a_long_poll(world: Requests) -> None:
    world.acquired((0, 9, 1))
    world.waits()
    request = world.fetch()
    world.manager.leave()
    assert world.manager.pending
    world.answer_fetch(request)
    world.answer(world.said())
    assert not world.manager.pending
