"""What is left to the native thread, and when: decided ahead by the heartbeat manager, under virtual time (G3)."""

from __future__ import annotations

import pytest
from tests.consumer.group.test_heartbeat import NOW, Bench

from kadence.connection.request import ConnectionPurpose, NativeHeartbeatPlan, Request
from kadence.consumer.group.membership import SENT_NATIVELY, HeartbeatOutcome


class Armed:
    """What the native thread was left, in order."""

    def __init__(self, bench: Bench) -> None:
        self.left: list[NativeHeartbeatPlan | None] = []
        bench.manager.native_heartbeats.on_change = self.left.append

    @property
    def present(self) -> NativeHeartbeatPlan:
        assert self.left
        assert self.left[-1] is not None
        return self.left[-1]


@pytest.fixture
def bench() -> Bench:
    return Bench(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=60_000)


@pytest.fixture
def native_heartbeat(bench: Bench) -> Armed:
    return Armed(bench)


def beat(bench: Bench, now: int) -> Request:
    (request,) = bench.manager.poll(now).requests
    return request


def test_nothing_is_left_outside_a_group(bench: Bench, native_heartbeat: Armed) -> None:
    bench.member.active = False
    bench.manager.poll(NOW)
    assert native_heartbeat.left == []


def test_it_may_send_when_the_network_thread_is_late_by_half_an_interval(
    bench: Bench, native_heartbeat: Armed
) -> None:
    bench.manager.poll(NOW)
    request = beat(bench, NOW + 300)
    # The turn for an overdue answer comes 2,333 ms after the heartbeat.
    assert native_heartbeat.present.due == NOW + 300 + 2_333 + 1_500
    bench.beaten(NOW + 350, request)
    bench.manager.poll(NOW + 350)
    left = native_heartbeat.present
    assert left.due == NOW + 300 + 3_000 + 1_500
    assert (left.interval_ms, left.until) == (3_000, NOW + 350 + 60_000)
    assert (left.request.purpose, left.request.tag, left.request.message) == (
        ConnectionPurpose.GROUP,
        SENT_NATIVELY,
        bench.member.message,
    )


def test_it_is_left_nothing_new_in_turns_that_change_nothing(bench: Bench, native_heartbeat: Armed) -> None:
    bench.manager.poll(NOW)
    bench.beaten(NOW + 310, beat(bench, NOW + 300))
    bench.manager.poll(NOW + 310)
    before = len(native_heartbeat.left)
    for later in range(320, 3_000, 10):
        bench.progress.polled(NOW + later)
        bench.manager.poll(NOW + later)
    assert len(native_heartbeat.left) == before


def test_b4_from_the_processing_timeout_on_it_may_not_send(bench: Bench, native_heartbeat: Armed) -> None:
    bench.progress.leave_poll(NOW)
    bench.manager.poll(NOW)
    assert native_heartbeat.present.until == NOW + 60_000
    bench.beaten(NOW + 310, beat(bench, NOW + 300))
    bench.manager.poll(NOW + 310)
    assert native_heartbeat.present.until == NOW + 60_000, "nothing was polled since"


def test_b4_near_the_processing_timeout_a_poll_counts_in_the_next_turn() -> None:
    bench = Bench(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=15_000)
    native_heartbeat = Armed(bench)
    bench.progress.leave_poll(NOW)
    bench.manager.poll(NOW)
    bench.beaten(NOW + 310, beat(bench, NOW + 300))
    bench.manager.poll(NOW + 310)
    assert native_heartbeat.present.until == NOW + 15_000
    bench.progress.polled(NOW + 1_000)
    bench.manager.poll(NOW + 1_010)
    assert native_heartbeat.present.until == NOW + 1_000 + 15_000


def test_b4_once_the_group_is_left_it_may_send_nothing(bench: Bench, native_heartbeat: Armed) -> None:
    bench.manager.poll(NOW)
    bench.progress.leave_poll(NOW)
    bench.manager.poll(NOW + 60_000)
    assert bench.member.timed_out == [NOW + 60_000]
    assert native_heartbeat.left[-1] is None


def test_without_a_coordinator_it_may_send_nothing(bench: Bench, native_heartbeat: Armed) -> None:
    bench.manager.poll(NOW)
    assert native_heartbeat.present.request.node_id == 7
    bench.coordinator.mark_unknown(NOW, "test")
    bench.manager.poll(NOW)
    assert native_heartbeat.left[-1] is None
    bench.find(NOW + 10)
    bench.manager.poll(NOW + 10)
    assert native_heartbeat.present.request.node_id == 7


def test_another_identity_is_left_at_once_and_before_its_own_heartbeat(
    bench: Bench, native_heartbeat: Armed
) -> None:
    bench.manager.poll(NOW)
    bench.member.term, bench.member.message = 2, "of the next generation"
    bench.manager.poll(NOW + 10)
    assert native_heartbeat.present.request.message == "of the next generation"


def test_its_heartbeats_count_as_if_the_network_thread_had_sent_them(
    bench: Bench, native_heartbeat: Armed
) -> None:
    bench.manager.poll(NOW)
    bench.beaten(NOW + 310, beat(bench, NOW + 300))
    bench.manager.poll(NOW + 310)
    sent = [Request("again", 7, 0, ConnectionPurpose.GROUP, SENT_NATIVELY) for _ in range(3)]
    back = NOW + 11_500
    bench.manager.native_heartbeats_sent(back, sent, NOW + 10_800)
    assert bench.coordinator.node_id == 7
    for request in sent:
        bench.beaten(back, request)
    poll = bench.manager.poll(back)
    assert poll.requests == []
    assert poll.wake_at == NOW + 10_800 + 3_000
    assert bench.coordinator.node_id == 7


def test_the_next_heartbeat_waits_for_the_answers_to_those_of_the_native_heartbeat(
    bench: Bench, native_heartbeat: Armed
) -> None:
    """It could contradict what they say: an assignment and its epoch may be among them."""
    bench.manager.poll(NOW)
    bench.beaten(NOW + 310, beat(bench, NOW + 300))
    sent = Request("again", 7, 0, ConnectionPurpose.GROUP, SENT_NATIVELY)
    bench.manager.native_heartbeats_sent(NOW + 6_000, [sent], NOW + 4_800)
    bench.member.urgent = True
    assert bench.manager.poll(NOW + 6_000).requests == []
    bench.beaten(NOW + 6_010, sent)
    assert beat(bench, NOW + 6_010).message == "heartbeat"


def test_a_connection_that_was_lost_with_many_of_them_is_one_failure(
    bench: Bench, native_heartbeat: Armed
) -> None:
    bench.manager.poll(NOW)
    bench.beaten(NOW + 310, beat(bench, NOW + 300))
    sent = [Request("again", 7, 0, ConnectionPurpose.GROUP, SENT_NATIVELY) for _ in range(8)]
    bench.manager.native_heartbeats_sent(NOW + 9_000, sent, NOW + 8_900)
    bench.now, bench.member.outcome = NOW + 9_000, HeartbeatOutcome.RETRY
    for request in sent:
        bench.lose(request)
    assert bench.manager.poll(NOW + 9_000).wake_at <= NOW + 9_000 + 200
