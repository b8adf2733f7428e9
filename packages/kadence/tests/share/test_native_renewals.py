"""What the native thread is left to renew, and what its answers do (Q2, G3): a C call that holds the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.share import LOCK_MS, NODE, OTHER, RENEW, Requests, batches_of

from kadence.connection.request import NativeHeartbeatPlan, Request
from kadence.errors import DisconnectedError
from kadence.protocol import error_codes as ec
from kadence.share.events import Sending
from kadence.types import TopicPartition

MINUTE = 60_000


class Armed(Requests):
    """With a native thread.

    Attributes:
        plan: what it has.
    """

    plan: NativeHeartbeatPlan | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.manager.native_renewals.on_change = self._armed

    def _armed(self, node_id: int, plan: NativeHeartbeatPlan | None) -> None:
        assert node_id == 1
        self.plan = plan

    def settled(self) -> NativeHeartbeatPlan:
        """The plan once everything that is due has been sent."""
        assert self.sent() == []
        assert self.plan is not None
        return self.plan

    def native(self, times: int = 1) -> list[Request]:
        """The network thread was kept from running, and the native thread has sent its frame so often."""
        assert self.plan is not None
        sent = self.plan.request
        requests = [
            Request(sent.message, sent.node_id, sent.deadline, sent.purpose, sent.tag) for _ in range(times)
        ]
        self.hand.now = self.plan.due + (times - 1) * self.plan.interval_ms
        self.hand._managers.owners.update(dict.fromkeys(requests, self.manager))
        self.manager.renewed_natively(requests, self.now)
        return requests


@pytest.fixture
def world() -> Armed:
    return Armed()


def test_it_has_all_that_is_held_with_the_next_epoch(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    plan = world.settled()
    message = plan.request.message
    assert (message.share_session_epoch, message.is_renew_ack, message.member_id) == (1, True, "m1")
    assert batches_of(plan.request) == {0: [(0, 9, [RENEW])]}
    assert plan.counter_behind == b"m1"
    assert world.now < plan.due == fetch.lock_ends - LOCK_MS // 3
    assert plan.interval_ms == LOCK_MS // 3


def test_it_has_them_before_the_application_does(world: Armed) -> None:
    """Whoever gets records may hold the interpreter at once."""
    world.waits()
    request = world.fetch()
    plans: list[object] = []
    world.state.signal.on_set = lambda: plans.append(world.plan)
    world.state.signal.enter()
    world.bring(request, (0, 9, 1))
    assert plans
    assert None not in plans
    assert world.take().is_locked(world.now + MINUTE)


def test_it_is_put_off_as_long_as_the_network_thread_renews(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    world.settled()
    world.hand.now = world.hand.wake_at()
    world.answer(world.said())
    assert world.settled().due == fetch.lock_ends - LOCK_MS // 3 > world.now + LOCK_MS // 2


def test_what_is_acknowledged_is_never_renewed(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    world.settled()
    world.acknowledge(fetch, 0, 4, sending=Sending.ASYNC)
    request = world.said()
    assert world.plan is not None
    assert (world.plan.request.message.share_session_epoch, batches_of(world.plan.request)) == (
        2,
        {0: [(5, 9, [RENEW])]},
    ), "behind the request that is under way"
    world.answer(request)
    world.manager.assigned(world.now, {})
    world.acknowledge(fetch, 5, 9, sending=Sending.ASYNC)
    world.sent()
    assert world.plan is None, "nothing is held"


def test_a_c_call_longer_than_the_lock_keeps_it(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    world.settled()
    requests = world.native(3)
    assert fetch.lock_ends < world.now
    assert fetch.is_locked(world.now), "the application is not told otherwise by a clock"
    assert world.sent() == [], "their answers are awaited"
    for request in requests:
        world.answer(request)
    assert fetch.lock_ends == world.now + LOCK_MS
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    request = world.said()
    assert request.message.share_session_epoch == 4, "each took one"
    world.answer(request)
    assert list(world.answer_to(call).values()) == [None]


def test_it_ends_when_the_application_must_have_polled(world: Armed) -> None:
    world.state.progress.polled(world.now)
    polled = world.now
    world.acquired((0, 9, 1))
    assert world.settled().until == polled + 5 * MINUTE
    world.hand.advance(20)
    world.state.progress.polled(world.now)
    world.hand.now = world.hand.wake_at()
    world.answer(world.said())
    assert world.settled().until == polled + 20 + 5 * MINUTE


def test_a_refused_epoch_is_mended_as_any_other(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    world.settled()
    for request in world.native(2):
        world.answer(request, ec.INVALID_SHARE_SESSION_EPOCH)
    world.hand.now = world.hand.wake_at()
    assert fetch.void is None


def test_a_lost_connection_ends_them_all(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    world.settled()
    for request in world.native(2):
        world.hand.fail(request, DisconnectedError("gone"))
    assert isinstance(fetch.void, DisconnectedError)
    world.sent()
    assert world.plan is None


def test_nothing_is_left_to_it_once_the_consumer_leaves(world: Armed) -> None:
    world.acquired((0, 9, 1))
    world.settled()
    world.manager.leave()
    world.said()
    assert world.plan is None


def test_by_a_key_nothing_is_left_to_it() -> None:
    world = Armed(share_lock_renewal=False)
    world.acquired((0, 9, 1))
    world.sent()
    assert world.plan is None


def test_a_broker_that_is_silent_keeps_no_lock_while_the_network_thread_runs(world: Armed) -> None:
    fetch = world.acquired((0, 9, 1))
    world.settled()
    world.hand.advance(LOCK_MS // 2)
    [renewal] = world.sent()
    assert fetch.is_locked(fetch.lock_ends + 1), "the native thread would keep it"
    world.hand.now = fetch.lock_ends
    assert world.sent() == []
    assert not fetch.is_locked(world.now)
    assert world.plan is None
    world.answer(renewal)
    assert not fetch.is_locked(world.now)


def test_what_a_new_leader_has_voided_is_renewed_no_more_where_it_was_held(world: Armed) -> None:
    plans: dict[int, NativeHeartbeatPlan | None] = {}
    world.manager.native_renewals.on_change = plans.__setitem__
    world.acquired((0, 4, 1))
    assert world.sent() == []
    assert plans[NODE] is not None
    world.cluster.moved(world.now, TopicPartition("t", 0), OTHER, 5, {})
    world.waits()
    (request,) = [each for each in world.sent() if each.node_id == OTHER]
    world.bring(request, (0, 4, 1))
    assert plans[NODE] is None
    assert plans[OTHER] is not None
