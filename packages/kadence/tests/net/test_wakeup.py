"""Waking the network thread."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator

import pytest

from kadence.net.sockets import Poller, Wakeup, new_poller

WOKEN = [(None, selectors.EVENT_READ)]

Made = tuple[Poller, Wakeup]


@pytest.fixture
def made(half: str) -> Iterator[Made]:
    poller, wakeup = new_poller()
    yield poller, wakeup
    poller.close()
    wakeup.close()


def test_a_flood_is_one_wake_up(made: Made) -> None:
    poller, wakeup = made
    for _ in range(100_000):
        wakeup.wake()
    assert poller.wait(None) == WOKEN
    assert poller.wait(0) == []


def test_a_wake_up_before_the_wait_is_not_lost_and_one_after_it_is_new(made: Made) -> None:
    poller, wakeup = made
    wakeup.wake()
    assert poller.wait(None) == WOKEN
    wakeup.wake()
    assert poller.wait(None) == WOKEN
    assert poller.wait(0) == []


def test_waking_when_closed_does_no_harm_to_whoever_has_the_descriptor_now(made: Made) -> None:
    poller, wakeup = made
    poller.close()
    wakeup.close()
    wakeup.close()
    others = [end for _ in range(4) for end in socket.socketpair()]
    wakeup.wake()
    for end in others:
        end.setblocking(False)
        with pytest.raises(BlockingIOError):
            end.recv(1)
    for end in others:
        end.close()


def test_no_wake_up_is_lost_between_threads(made: Made) -> None:
    poller, wakeup = made
    asked, served, rounds = 0, 0, 2_000
    turn = threading.Semaphore(0)

    def ask() -> None:
        nonlocal asked
        for _ in range(rounds):
            asked += 1
            wakeup.wake()
            turn.acquire()

    thread = threading.Thread(target=ask)
    thread.start()
    while served < rounds:
        assert poller.wait(20_000) == WOKEN, "a wake-up was lost"
        while served < asked:
            served += 1
            turn.release()
    thread.join()
