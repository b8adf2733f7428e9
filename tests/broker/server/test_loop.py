"""The broker's loop when its thread comes back late."""

from __future__ import annotations

import selectors
import socket

import pytest

from kadence.broker.server.loop import Loop
from kadence.clock import FOREVER
from kadence.testing.clock import FakeClock


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
