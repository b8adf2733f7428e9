"""Waking the network thread."""

from __future__ import annotations

import select
import threading

from kadence.net.wakeup import Wakeup


def is_readable(wakeup: Wakeup) -> bool:
    poller = select.poll()
    poller.register(wakeup.fileno(), select.POLLIN)
    return bool(poller.poll(0))


def test_a_flood_costs_one_byte() -> None:
    wakeup = Wakeup()
    for _ in range(100_000):
        wakeup.wake()
    assert wakeup._reader.recv(64) == b"\0"
    wakeup.close()


def test_a_wake_up_before_the_wait_is_not_lost_and_one_after_it_is_new() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    assert is_readable(wakeup)
    wakeup.clear()
    assert not is_readable(wakeup)
    wakeup.wake()
    assert is_readable(wakeup)
    wakeup.close()


def test_clearing_when_nothing_was_woken_and_waking_when_closed_do_no_harm() -> None:
    wakeup = Wakeup()
    wakeup.clear()
    wakeup.close()
    wakeup.wake()


def test_no_wake_up_is_lost_between_threads() -> None:
    wakeup = Wakeup()
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
    poller = select.poll()
    poller.register(wakeup.fileno(), select.POLLIN)
    while served < rounds:
        assert poller.poll(20_000), "a wake-up was lost"
        wakeup.clear()
        while served < asked:
            served += 1
            turn.release()
    thread.join()
    wakeup.close()
