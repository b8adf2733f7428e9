"""One turn of the network thread under virtual time: what bounds its wait, and what happens after it (C2, B9).

The network here is a clock that advances by as long as it was told to wait, or longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kadence.client.request_manager import Poll
from kadence.clock import FOREVER
from kadence.connection.request import Completed
from kadence.consumer import events as m
from kadence.consumer.background_events import Reaper
from kadence.consumer.event_processor import RebalanceEventHandler
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.consumer.turn import Turn
from kadence.errors import KafkaTimeoutError
from kadence.types import TopicPartition
from kadence_testing import FakeClock

PARTITION = TopicPartition("t", 0)


class SilentNetwork:
    """Nobody ever answers. ``oversleeps``: how much longer than asked its waits take."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.waits: list[int | None] = []
        self.oversleeps = 0

    def send(self, owner: object, requests: Iterable[object]) -> None: ...

    def poll(self, wait_ms: int | None) -> list[Completed]:
        self.waits.append(wait_ms)
        self._clock.advance((10**6 if wait_ms is None else wait_ms) + self.oversleeps)
        return []

    def deliver(self, now: int, completed: object) -> None: ...


class Nothing:
    """A processor, jobs and a manager with nothing to say, but when to be asked again."""

    closing: m.Close | None = None
    finished = False

    def __init__(self) -> None:
        self.wake_at = FOREVER
        self.hurried: list[int] = []
        self.asked = 0

    def process(self, now: int, call: object) -> None: ...

    def answer_left(self, now: int) -> None: ...

    def hurry(self, now: int) -> None:
        self.hurried.append(now)

    def poll(self, now: int) -> Poll:
        self.asked += 1
        return Poll(wake_at=self.wake_at)

    def deliver(self, now: int) -> None: ...


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.shared_state = SharedState(lambda: None)
        self.network = SilentNetwork(self.clock)
        self.nothing = Nothing()
        self.managers = (self.nothing, Nothing(), Nothing())
        managers: Any = self.managers
        reaper = Reaper(lambda: "broker 1 is silent")
        parts: list[Any] = [self.network, self.nothing]
        self.turn = Turn(
            self.clock,
            self.shared_state,
            parts[0],
            parts[1],
            reaper,
            RebalanceEventHandler(self.shared_state, Subscription(), reaper),
            parts[1],
            None,
            managers,
        )

    def call(self, call_id: int, within_ms: int) -> None:
        deadline = self.clock.now_ms() + within_ms
        self.shared_state.application_events.append(m.ListOffsets(call_id, deadline, {}))

    def ended(self) -> list[tuple[int, str]]:
        return [
            (event.id, str(event.error))
            for event in self.shared_state.background_events
            if isinstance(event, m.Answer)
        ]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_c2_the_wait_is_bounded_by_the_nearest_deadline_and_the_call_fails_at_it(bench: Bench) -> None:
    bench.call(1, 500)
    bench.call(2, 150)
    began = bench.clock.now_ms()
    bench.turn.run_once()
    assert bench.network.waits == [150]
    assert bench.clock.now_ms() == began + 150
    assert bench.ended() == [(2, "looking up offsets did not finish in time; last error: broker 1 is silent")]
    bench.turn.run_once()
    assert bench.network.waits == [150, 350]
    assert [call_id for call_id, _ in bench.ended()] == [2, 1]
    bench.turn.run_once()
    assert bench.network.waits[-1] is None, "nobody waits any more"


def test_c2_a_manager_that_wants_its_turn_earlier_has_it(bench: Bench) -> None:
    bench.call(1, 500)
    bench.nothing.wake_at = bench.clock.now_ms() + 20
    bench.turn.run_once()
    assert bench.network.waits == [20]
    assert bench.ended() == []


def test_c2_a_call_without_any_time_gets_one_round_of_the_network(bench: Bench) -> None:
    bench.call(1, 0)
    bench.turn.run_once()
    assert bench.network.waits == [0]
    assert [call_id for call_id, _ in bench.ended()] == [1]
    (event,) = bench.shared_state.background_events
    assert isinstance(event, m.Answer)
    assert isinstance(event.error, KafkaTimeoutError)


def test_c2_reaping_reads_the_clock_after_the_wait(bench: Bench) -> None:
    """By the time before the network the call would wait for one turn more."""
    bench.call(1, 100)
    bench.nothing.wake_at = bench.clock.now_ms() + 90
    bench.network.oversleeps = 30
    bench.turn.run_once()
    assert [call_id for call_id, _ in bench.ended()] == [1]


def test_b9_a_turn_that_comes_late_is_seen_by_the_next(bench: Bench) -> None:
    bench.nothing.wake_at = bench.clock.now_ms() + 100
    bench.network.oversleeps = 2_000
    bench.turn.run_once()
    bench.turn.run_once()
    assert bench.shared_state.lateness.longest_ms == 2_000
    assert bench.shared_state.lateness.seen(bench.clock.now_ms()).longest == 2.0


@pytest.mark.parametrize(
    ("session_ms", "told"), [(10_000, "10.0 s"), (None, "the broker's group.consumer.session.timeout.ms")]
)
def test_b9_a_late_turn_tells_how_long_a_membership_lasts_where_it_is_known(
    bench: Bench, caplog: pytest.LogCaptureFixture, session_ms: int | None, told: str
) -> None:
    """KIP-848's session is the broker's, which tells it to nobody."""
    member: Any = SimpleNamespace(active=True, heartbeat_interval_ms=1_000, known_session_ms=session_ms)
    bench.turn._liveness = member
    bench.turn._tell_late(2_000)
    (line,) = caplog.messages
    assert "kept from running for 2.0 s" in line
    assert f"The membership ends after {told} without heartbeats" in line


def test_b7_a_close_without_time_tells_the_group_and_gets_one_round_of_the_network(bench: Bench) -> None:
    bench.nothing.closing = m.Close(1, bench.clock.now_ms(), leave=None)
    assert not bench.turn.run_once()
    assert bench.nothing.hurried == [bench.clock.now_ms()]
    assert bench.network.waits == [0]


def test_b7_a_close_that_nobody_answers_ends_at_its_deadline(bench: Bench) -> None:
    began = bench.clock.now_ms()
    bench.nothing.closing = m.Close(1, began + 300, leave=None)
    while bench.turn.run_once():
        pass
    assert bench.clock.now_ms() == began + 300


def test_an_error_that_repeats_while_nobody_polls_is_kept_once(bench: Bench) -> None:
    """A partition assigned by hand may fail each second, for days, while the application works on something else."""
    reaper = Reaper(lambda: None)
    background_event_handler = RebalanceEventHandler(bench.shared_state, Subscription(), reaper)
    for _ in range(1_000):
        background_event_handler(m.Failed(KafkaTimeoutError("not yet")))
        background_event_handler(m.Failed(KafkaTimeoutError("not yet"), partition=PARTITION, fetch_epoch=3))
    assert len(bench.shared_state.background_events) == 2
    background_event_handler(m.Failed(KafkaTimeoutError("not yet"), fatal=True))
    assert len(bench.shared_state.background_events) == 3
    bench.shared_state.background_events.clear()
    background_event_handler(m.Failed(KafkaTimeoutError("not yet")))
    assert len(bench.shared_state.background_events) == 1, "the application has taken what was told before"


def test_an_error_that_was_taken_is_told_again_though_other_events_wait(bench: Bench) -> None:
    """A member that gives up tells which partitions it has lost, and then why."""
    reaper = Reaper(lambda: None)
    background_event_handler = RebalanceEventHandler(bench.shared_state, Subscription(), reaper)
    background_event_handler(m.Failed(KafkaTimeoutError("again"), gave_up=True))
    bench.shared_state.background_events.clear()
    lost = m.LosePartitions(1, (PARTITION,))
    background_event_handler(lost)
    again = m.Failed(KafkaTimeoutError("again"), gave_up=True)
    background_event_handler(again)
    background_event_handler(m.Failed(KafkaTimeoutError("again"), gave_up=True))
    assert list(bench.shared_state.background_events) == [lost, again]


def test_c3_every_turn_asks_every_manager_whatever_happened(bench: Bench) -> None:
    """What one manager waits for may be for another to do: the coordinator is looked for when a commit needs it."""
    bench.turn.run_once()
    bench.call(1, 500)
    bench.turn.run_once()
    bench.shared_state.application_events.append(m.Commit(9, 2**62, {}, retry=False))
    bench.turn.run_once()
    assert [manager.asked for manager in bench.managers] == [3, 3, 3]


def test_c2_the_wait_is_bounded_by_whichever_manager_is_first(bench: Bench) -> None:
    first, second, third = bench.managers
    first.wake_at = bench.clock.now_ms() + 100
    second.wake_at = bench.clock.now_ms() + 40
    bench.turn.run_once()
    second.wake_at, third.wake_at = FOREVER, bench.clock.now_ms()
    bench.turn.run_once()
    assert bench.network.waits == [40, 0]
