"""The broker's loop when its thread comes back late."""

from __future__ import annotations

import math
import selectors
import socket

import pytest

from kadence.clock import FOREVER
from kadence_broker.server.loop import Loop
from kadence_testing.clock import FakeClock


@pytest.mark.parametrize("by", ["a timer", "what is asked before each wait"])
def test_b8_what_has_arrived_is_served_before_a_session_is_judged_by_the_clock(by: str) -> None:
    """Else a heartbeat that came in time, but lies unread while the thread is held up, would save no session."""
    order: list[str] = []
    clock = FakeClock()
    session_ends_at = clock.now_ms() + 1_000

    def end_session() -> None:
        order.append("the session ends")
        loop.stop()

    def before_wait(now: int) -> int:
        if by == "a timer":
            return FOREVER
        if now >= session_ends_at:
            end_session()
        return session_ends_at

    def serve_one(_events: int) -> None:
        one_server.recv(1)
        order.append("one")
        # The thread is held up here, and meanwhile another client's heartbeat arrives.
        clock.advance(5_000)
        other.send(b"x")

    def serve_other(_events: int) -> None:
        other_server.recv(1)
        order.append("the heartbeat")

    loop = Loop(clock, before_wait)
    if by == "a timer":
        loop.at(session_ends_at, end_session)
    one, one_server = socket.socketpair()
    other, other_server = socket.socketpair()
    with one, one_server, other, other_server:
        loop.selector.register(one_server, selectors.EVENT_READ, serve_one)
        loop.selector.register(other_server, selectors.EVENT_READ, serve_other)
        one.send(b"x")
        loop.run()
        loop.close()
    assert order == ["one", "the heartbeat", "the session ends"]


def test_a_call_that_comes_while_a_late_loop_catches_up_is_not_left_waiting() -> None:
    """Catching up reads the call's wake-up, so nothing else would end the next wait."""
    clock = FakeClock()
    loop = Loop(clock, lambda now: now + 10)
    near, far = socket.socketpair()
    done: list[str] = []

    def finish() -> None:
        done.append("called")
        loop.stop()

    def on_readable(_events: int) -> None:
        said = near.recv(1)
        if said == b"1":
            # This turn is late: the next byte is found by the catching up.
            clock.advance(100_000)
            far.send(b"2")
        elif said == b"2":
            far.send(b"3")
        else:
            loop.call(finish)

    loop.selector.register(near, selectors.EVENT_READ, on_readable)
    far.send(b"1")
    waited: list[float | None] = []
    select = loop.selector.select

    def watched(timeout: float | None = None) -> object:
        waited.append(timeout)
        assert len(waited) < 50, "the loop waits, and the call is not run"
        return select(0)

    loop.selector.select = watched  # type: ignore[assignment, method-assign]
    loop.run()
    assert done == ["called"]
    assert waited[-1] == 0
    loop.close()
    near.close()
    far.close()


@pytest.mark.parametrize("wait_ms", [50, 6_000, 45_000, 300_000])
@pytest.mark.parametrize("slack", [1_000, 200])
def test_a_timer_is_not_late_by_what_linux_adds_to_a_long_wait(wait_ms: int, slack: int) -> None:
    """It adds up to a 1,000th, to a niced process a 200th, at most 100 ms. A group would outlive its members."""
    clock = FakeClock()
    due = clock.now_ms() + wait_ms
    fired: list[int] = []
    waits: list[float] = []

    def fire() -> None:
        fired.append(clock.now_ms())
        loop.stop()

    def late(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None
        waits.append(timeout)
        ms = timeout * 1000
        clock.advance(math.ceil(ms + min(ms / slack, 100)))
        return []

    loop = Loop(clock, lambda _now: FOREVER)
    loop.at(due, fire)
    loop.selector.select = late  # type: ignore[method-assign]
    loop.run()
    loop.close()
    assert due <= fired[0] <= due + 1
    assert len(waits) <= 5
