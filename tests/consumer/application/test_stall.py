"""Stall reports alone (B4): how they are counted, and that nothing of them can hold up the network thread."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.consumer.application.test_interrupted_callbacks import AtCalls
from tests.patience import PATIENCE

from kadence.consumer.application.stall import Stall, Stalls
from kadence.consumer.events import Stalled

AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
FACT = Stalled(since=0, at=10, timeout_ms=20, left=False)


def stalls(callback: Callable[[Stall], object] | None = None) -> Stalls:
    made = Stalls("g", lambda: (0, {}), callback, lambda: 1_700_000_000_000)
    made.thread = threading.current_thread()
    return made


def test_times_are_those_of_the_wall_clock_with_the_monotonic_ones_beside() -> None:
    told = threading.Event()
    subject = stalls(lambda stall: told.set())
    subject.noticed(FACT)
    assert told.wait(PATIENCE)
    (stall,) = subject.history()
    assert (stall.since, stall.reported_at) == (AT, AT + timedelta(milliseconds=10))
    assert (stall.since_monotonic_ms, stall.reported_monotonic_ms) == (0, 10)
    assert stall.duration == 0.01
    subject.over(15_000, FACT)
    (stall,) = subject.history()
    assert (stall.ended_at, stall.ended_monotonic_ms) == (AT + timedelta(seconds=15), 15_000)
    assert stall.duration == 15


def test_b4_a_stall_counts_once() -> None:
    told = threading.Event()
    subject = stalls(lambda stall: told.set())
    subject.noticed(FACT)
    assert told.wait(PATIENCE)
    assert subject.count == len(subject.history()) == 1


def test_b4_ctrl_c_in_the_poll_that_ends_a_stall_leaves_the_network_thread_free() -> None:
    for at in itertools.count(1):
        subject = stalls()
        subject.noticed(FACT)
        interruption = AtCalls(at, ("consumer/application/stall.py", "/threading.py"))
        with contextlib.suppress(KeyboardInterrupt), interruption:
            subject.over(15, FACT)
        network = threading.Thread(target=subject.noticed, args=(FACT,), daemon=True)
        network.start()
        network.join(PATIENCE)
        assert not network.is_alive(), interruption.where
        if not interruption.happened:
            break
