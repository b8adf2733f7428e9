"""The heartbeat manager by itself: rule B5's order, the timers, and B9. A membership of cardboard, answers by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds import kip848
from tests.worlds.hand import START, BackgroundEvents, Hand, Managers

from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.client_state import Progress
from kadence.consumer.events import Stalled
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.consumer.group.membership import HeartbeatOutcome
from kadence.errors import DisconnectedError
from kadence.types import Node

NOW = START


class Cardboard:
    """A membership that only heartbeats; the test says what each answer means."""

    def __init__(self) -> None:
        self.active = True
        self.joining = False
        self.urgent = False
        self.heartbeat_interval_ms, self.session_timeout_ms = 3_000, 10_000
        self.known_session_ms: int | None = 10_000
        self.term: object = 1
        self.outcome = HeartbeatOutcome.ALIVE
        self.timed_out: list[int] = []
        self.message: object = "again"

    def heartbeat(self, deadline: int) -> Request:
        return Request("heartbeat", 7, deadline)

    def native_heartbeat(self) -> Any:
        return self.message if self.active else None

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome:
        return self.outcome

    def poll_timed_out(self, now: int) -> None:
        self.timed_out.append(now)
        self.active = self.joining = False


class Bench(Hand):
    def __init__(self, **config: Any) -> None:
        self.config = ConsumerConfig(group_id="g", **config)
        self.member = Cardboard()
        self.progress = Progress()
        self.background_events = BackgroundEvents()
        self.coordinator = CoordinatorRequestManager("g", self.config, self.background_events)
        self.find()
        self.manager = HeartbeatRequestManager(
            self.coordinator,
            self.member,  # type: ignore[arg-type]
            self.progress,
            self.config,
            self.background_events,
        )
        super().__init__(Managers(self.manager), version=4)

    def find(self, now: int = NOW) -> None:
        self.coordinator.node, self.coordinator.found_at = Node(7, "b7", 9092), now

    def beaten(self, now: int, request: Request, outcome: HeartbeatOutcome = HeartbeatOutcome.ALIVE) -> None:
        """The coordinator's answer comes, and means this."""
        self.member.outcome = outcome
        self.now = now
        self.answer(request, object())


@pytest.fixture
def bench() -> Bench:
    return Bench(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=60_000)


def test_b3_no_heartbeat_outside_a_group(bench: Bench) -> None:
    bench.member.active = False
    poll = bench.manager.poll(NOW)
    assert (poll.requests, poll.wake_at) == ([], FOREVER)


def test_first_heartbeat_soon_after_joining_then_one_per_interval(bench: Bench) -> None:
    assert bench.manager.poll(NOW).wake_at == NOW + 300
    assert bench.manager.poll(NOW + 299).requests == []
    (request,) = bench.manager.poll(NOW + 300).requests
    bench.beaten(NOW + 300, request)
    assert bench.manager.poll(NOW + 300).wake_at == NOW + 3_300


def test_interval_counts_from_sending_not_from_the_answer(bench: Bench) -> None:
    bench.manager.poll(NOW)
    (request,) = bench.manager.poll(NOW + 3_000).requests
    bench.beaten(NOW + 5_000, request)
    assert bench.manager.poll(NOW + 5_000).wake_at == NOW + 6_000


def test_one_heartbeat_at_a_time(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.manager.poll(NOW + 3_000)
    assert bench.manager.poll(NOW + 6_000).requests == []


def test_b5_unknown_coordinator_is_asked_for_first(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.coordinator.mark_unknown(NOW, "test")
    poll = bench.manager.poll(NOW + 70_000)
    assert poll.requests == []
    assert poll.wake_at == NOW + 70_000, "asked for at once"
    assert [r.name for r in bench.coordinator.poll(NOW + 70_000).requests] == ["FindCoordinator"]


def test_b5_session_without_an_answer_gives_the_coordinator_up(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.manager.poll(NOW + 3_000)
    assert bench.manager.poll(NOW + 9_999).wake_at == NOW + 10_000
    silent: list[tuple[int, int]] = []
    bench.coordinator.on_silent = lambda node_id, since: silent.append((node_id, since))
    node_id = bench.coordinator.node_id
    bench.manager.poll(NOW + 10_000)
    assert bench.coordinator.node_id is None
    assert silent == [(node_id, NOW)], "nothing may queue behind what it swallowed"


def test_b10_while_heartbeats_run_only_they_say_that_the_coordinator_is_gone(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.coordinator.check_elsewhere(NOW, 7, DisconnectedError("another connection"))
    assert bench.coordinator.node_id == 7
    bench.member.active = False
    bench.manager.poll(NOW)
    bench.coordinator.check_elsewhere(NOW, 7, DisconnectedError("another connection"))
    assert bench.coordinator.node_id is None


def test_b5_session_is_looked_at_before_the_poll_timer_and_both_count(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.progress.leave_poll(NOW)
    bench.manager.poll(NOW + 60_000)
    assert bench.coordinator.node_id is None, "the goodbye must not wait for one that is silent"
    assert bench.member.timed_out == [NOW + 60_000]


def test_b4_holds_while_the_coordinator_is_unknown(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.coordinator.mark_unknown(NOW, "test")
    bench.progress.leave_poll(NOW)
    assert bench.manager.poll(NOW + 1).wake_at == NOW + 1, "asked for at once"
    bench.coordinator.poll(NOW + 1)
    assert bench.manager.poll(NOW + 2).wake_at == NOW + 30_000, "then the stall is told"
    assert bench.manager.poll(NOW + 30_000).wake_at == NOW + 60_000, "and then the group is left"
    bench.manager.poll(NOW + 59_999)
    assert bench.member.timed_out == []
    bench.manager.poll(NOW + 60_000)
    assert bench.member.timed_out == [NOW + 60_000]


def told(bench: Bench) -> list[tuple[int, int, bool]]:
    return [
        (event.since, event.at, event.left) for event in bench.background_events if isinstance(event, Stalled)
    ]


def run(bench: Bench, until: int, now: int = NOW) -> None:
    """Turn after turn, each heartbeat answered at once."""
    while now < until and not bench.member.timed_out:
        poll = bench.manager.poll(now)
        for request in poll.requests:
            bench.beaten(now, request)
        now = min(until, poll.wake_at, bench.manager.poll(now).wake_at)


def test_b4_a_stall_is_told_once_at_its_share_and_once_when_the_group_is_left(bench: Bench) -> None:
    bench.progress.leave_poll(NOW)
    run(bench, NOW + 100_000)
    assert told(bench) == [(NOW, NOW + 30_000, False), (NOW, NOW + 60_000, True)]


def test_b4_each_stall_is_told_anew(bench: Bench) -> None:
    bench.progress.leave_poll(NOW)
    run(bench, NOW + 40_000)
    bench.progress.polled(NOW + 40_000)
    run(bench, NOW + 75_000, NOW + 40_000)
    assert told(bench) == [(NOW, NOW + 30_000, False), (NOW + 40_000, NOW + 70_000, False)]


def test_b4_waiting_in_poll_is_no_stall_and_a_callback_inside_it_is(bench: Bench) -> None:
    bench.progress.enter_poll(NOW)
    run(bench, NOW + 100_000)
    assert told(bench) == []
    bench.progress.enter_callback(NOW + 100_000)
    run(bench, NOW + 140_000, NOW + 100_000)
    assert told(bench) == [(NOW + 100_000, NOW + 130_000, False)]


def test_b4_a_stall_while_joining_is_told_too(bench: Bench) -> None:
    bench.member.active, bench.member.joining = False, True
    bench.progress.leave_poll(NOW)
    run(bench, NOW + 100_000)
    assert told(bench) == [(NOW, NOW + 30_000, False), (NOW, NOW + 60_000, True)]


def test_b4_share_zero_tells_nothing_before_the_group_is_left() -> None:
    bench = Bench(stall_report_ratio=0.0, max_poll_interval_ms=60_000)
    bench.progress.leave_poll(NOW)
    run(bench, NOW + 100_000)
    assert told(bench) == [(NOW, NOW + 60_000, True)]


def swallow(bench: Bench) -> list[int]:
    """The path is dead: hanging up ends what is on its way, by the network's own error. Whom it hung up on."""
    calls: list[int] = []
    bench.coordinator.on_hang_up = calls.append
    return calls


def test_a_path_that_swallows_heartbeats_is_left_in_time_for_two_more_in_the_session(bench: Bench) -> None:
    hung_up = swallow(bench)
    bench.manager.poll(NOW)
    (request,) = bench.manager.poll(NOW + 300).requests
    bench.beaten(NOW + 300, request)
    sent: list[int] = []
    now, in_flight = NOW + 300, None
    while now < NOW + 10_000:
        bench.coordinator.poll(now)
        calls = len(hung_up)
        poll = bench.manager.poll(now)
        if len(hung_up) > calls:
            bench.member.outcome = HeartbeatOutcome.RETRY
            error = DisconnectedError("given up")
            assert in_flight is not None
            bench.coordinator.check(now, 7, error)
            bench.manager.on_response(now, Completed(in_flight, None, error, -1, now))
        elif poll.requests:
            (in_flight,) = poll.requests
            sent.append(now - NOW)
        assert bench.coordinator.node_id == 7, "a dead path says nothing of the coordinator"
        now = max(now + 1, min(poll.wake_at, bench.manager.poll(now).wake_at))
    # Due at 3.3 s; the coordinator, which heard of us at 0.3 s, ends the session at 10.3 s.
    assert sent[0] == 3_300
    assert len(sent) >= 3
    assert sent[2] <= 8_600, "well before the end, whatever the backoff's jitter adds"
    assert set(hung_up) == {7}


def test_a_coordinator_that_is_slow_and_alive_is_hung_up_on_no_more_than_twice(bench: Bench) -> None:
    hung_up = swallow(bench)
    bench.manager.poll(NOW)
    now, in_flight, answer_at = NOW, None, FOREVER
    while now < NOW + 60_000:
        bench.coordinator.poll(now)
        if now >= answer_at and in_flight is not None:
            answer_at = FOREVER
            bench.beaten(now, in_flight)
        calls = len(hung_up)
        poll = bench.manager.poll(now)
        if len(hung_up) > calls:
            assert in_flight is not None
            bench.member.outcome, answer_at = HeartbeatOutcome.RETRY, FOREVER
            bench.manager.on_response(now, Completed(in_flight, None, DisconnectedError("given up"), -1, now))
        elif poll.requests:
            (in_flight,) = poll.requests
            answer_at = now + 2_900
        now = max(now + 1, min(answer_at, poll.wake_at, bench.manager.poll(now).wake_at))
    assert len(hung_up) == 2
    assert bench.coordinator.node_id == 7
    assert bench.manager.heartbeats_sent >= 15


def test_a_real_loss_of_the_connection_still_gives_the_coordinator_up(bench: Bench) -> None:
    swallow(bench)
    bench.coordinator.hang_up(NOW, "test")
    bench.coordinator.check(NOW, 7, DisconnectedError("by us"))
    assert bench.coordinator.node_id == 7
    bench.coordinator.poll(NOW + 1)
    bench.coordinator.check(NOW + 1, 7, DisconnectedError("by it"))
    assert bench.coordinator.node_id is None


def test_coordinator_found_again_is_told_at_once_that_we_live(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.manager.poll(NOW + 3_000)
    bench.coordinator.mark_unknown(NOW + 3_500, "test")
    bench.manager.poll(NOW + 3_500)
    bench.find(NOW + 3_600)
    assert len(bench.manager.poll(NOW + 3_600).requests) == 1


def test_b4_no_poll_for_the_processing_timeout_leaves(bench: Bench) -> None:
    bench.progress.leave_poll(NOW)
    now = NOW
    while not bench.member.timed_out and now < NOW + 100_000:
        poll = bench.manager.poll(now)
        for request in poll.requests:
            bench.beaten(now, request)
        if not bench.member.timed_out:
            now = min(poll.wake_at, bench.manager.poll(now).wake_at)
    assert bench.member.timed_out == [NOW + 60_000]
    assert bench.manager.poll(now).requests == []


def test_b4_waiting_in_poll_is_progress(bench: Bench) -> None:
    bench.progress.enter_poll(NOW)
    keep_alive(bench, NOW, NOW + 200_000)
    assert bench.member.timed_out == []


def test_b4_a_callback_inside_poll_is_not(bench: Bench) -> None:
    bench.progress.enter_poll(NOW)
    bench.progress.enter_callback(NOW + 10_000)
    keep_alive(bench, NOW, NOW + 200_000)
    assert bench.member.timed_out == [NOW + 70_000]


def test_b4_holds_while_the_member_is_still_joining(bench: Bench) -> None:
    bench.member.active, bench.member.joining = False, True
    bench.progress.leave_poll(NOW)
    assert bench.manager.poll(NOW + 30_000).wake_at == NOW + 60_000
    bench.manager.poll(NOW + 60_000)
    assert bench.member.timed_out == [NOW + 60_000]


def test_b2_processing_timeout_is_never_below_the_session() -> None:
    bench = Bench(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=1_000)
    bench.progress.leave_poll(NOW)
    keep_alive(bench, NOW, NOW + 9_999)
    assert bench.member.timed_out == []
    keep_alive(bench, NOW + 10_000, NOW + 10_000)
    assert bench.member.timed_out == [NOW + 10_000]


def test_b5_failure_is_repeated_after_a_backoff_not_after_an_interval(bench: Bench) -> None:
    bench.manager.poll(NOW)
    (request,) = bench.manager.poll(NOW + 3_000).requests
    bench.beaten(NOW + 3_010, request, HeartbeatOutcome.RETRY)
    wake_at = bench.manager.poll(NOW + 3_010).wake_at
    assert NOW + 3_010 + 80 <= wake_at <= NOW + 3_010 + 120
    assert len(bench.manager.poll(wake_at).requests) == 1


def test_failures_back_off_further_each_time(bench: Bench) -> None:
    bench.manager.poll(NOW)
    now, waits = NOW + 3_000, []
    for _ in range(3):
        (request,) = bench.manager.poll(now).requests
        bench.beaten(now, request, HeartbeatOutcome.RETRY)
        wake_at = bench.manager.poll(now).wake_at
        waits.append(wake_at - now)
        now = wake_at
    assert waits[0] < waits[1] < waits[2]


def test_failure_does_not_extend_the_session(bench: Bench) -> None:
    bench.manager.poll(NOW)
    now = NOW + 3_000
    while bench.coordinator.node_id is not None:
        poll = bench.manager.poll(now)
        for request in poll.requests:
            bench.beaten(now, request, HeartbeatOutcome.RETRY)
        now = max(bench.manager.poll(now).wake_at, now) if poll.requests else max(poll.wake_at, now + 1)
    assert NOW + 10_000 <= now <= NOW + 12_000


def test_what_is_urgent_goes_at_once_but_not_beside_another_and_not_before_the_backoff(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.member.urgent = True
    (request,) = bench.manager.poll(NOW).requests
    assert bench.manager.poll(NOW).requests == []
    bench.beaten(NOW + 10, request, HeartbeatOutcome.RETRY)
    poll = bench.manager.poll(NOW + 10)
    assert poll.requests == []
    assert NOW + 90 <= poll.wake_at <= NOW + 130
    assert len(bench.manager.poll(poll.wake_at).requests) == 1


def test_the_interval_of_the_answer_holds_from_the_heartbeat_that_it_answers(bench: Bench) -> None:
    bench.manager.poll(NOW)
    (request,) = bench.manager.poll(NOW + 300).requests
    bench.member.heartbeat_interval_ms = 500
    bench.beaten(NOW + 400, request)
    assert bench.manager.poll(NOW + 400).wake_at == NOW + 800


def test_new_term_starts_all_timers_again(bench: Bench) -> None:
    bench.manager.poll(NOW)
    bench.manager.poll(NOW + 3_000)
    bench.member.term = 2
    assert bench.manager.poll(NOW + 4_000).wake_at == NOW + 4_300


def test_b9_lateness_is_measured_and_its_maximum_kept(bench: Bench) -> None:
    bench.manager.poll(NOW)
    (request,) = bench.manager.poll(NOW + 300).requests
    bench.beaten(NOW + 301, request)
    (request,) = bench.manager.poll(NOW + 3_300).requests
    bench.beaten(NOW + 3_301, request)
    assert (bench.manager.heartbeats_sent, bench.manager.last_lateness_ms) == (2, 0)
    (request,) = bench.manager.poll(NOW + 6_750).requests
    bench.beaten(NOW + 6_751, request)
    assert (bench.manager.last_lateness_ms, bench.manager.max_lateness_ms) == (450, 450)
    bench.manager.poll(NOW + 9_750)
    assert (bench.manager.heartbeats_sent, bench.manager.last_lateness_ms) == (4, 0)
    assert bench.manager.max_lateness_ms == 450
    assert repr(bench.manager) == "<heartbeat sent=4 max_lateness=450 ms>"


def keep_alive(bench: Bench, start: int, end: int) -> None:
    """Answer every heartbeat at once until ``end``."""
    now = start
    while now <= end:
        poll = bench.manager.poll(now)
        for request in poll.requests:
            bench.beaten(now, request)
        if not bench.member.active:
            return
        now = max(bench.manager.poll(now).wake_at, now + 1)


def test_b4_holds_for_a_kip_848_member_too_while_the_coordinator_is_unknown() -> None:
    member = kip848.Bench(max_poll_interval_ms=60_000)
    member.settle(0, 1)
    member.progress.leave_poll(member.now)
    member.coordinator.mark_unknown(member.now, "test")
    since = member.now
    member.now = since + 59_999
    assert member.sent() == []
    assert len(member.owned) == 2
    member.now = since + 60_000
    assert member.sent() == [], "nobody is there to be told"
    assert member.owned == []
    assert [name for name, _ in member.serve()] == ["LosePartitions"]
    member.now += 1_000
    member.find()
    (goodbye,) = member.sent()
    assert goodbye.message.member_epoch == -1


def test_a_kip_848_member_says_all_again_after_hanging_up() -> None:
    """What the dead path swallowed may have been an acknowledgement."""
    member = kip848.Bench()
    member.settle(0, 1)
    request = member.beat()
    assert kip848.said(request) == {}
    hung_up: list[int] = []
    member.coordinator.on_hang_up = hung_up.append
    for _ in range(10):
        member.coordinator.poll(member.now)
        assert member.sent() == []
        if hung_up:
            break
        member.now = member.heartbeat.poll(member.now).wake_at
    assert hung_up == [7]
    member.fail(request, DisconnectedError("given up"))
    assert member.coordinator.node_id == 7
    again = kip848.said(member.beat())
    assert again["topics"] == ["t"]
    assert again["owned"] == kip848.own(0, 1)
