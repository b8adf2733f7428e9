"""The flag that ends the application's waits, interrupted wherever Python can be (C7)."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from tests.patience import PATIENCE

from kadence.consumer.client_state import Signal


def wait_interrupted_at(signal: Signal, step: int) -> bool:
    """Enter and wait with an interruption at the ``step``-th line, whoever's line; whether there was one."""
    left = step

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        if event == "line" and frame.f_code.co_name != "wait_interrupted_at":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        signal.enter()
        signal.wait(0.001)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_c7_an_interrupted_wait_never_leaves_the_setter_hanging() -> None:
    step = 0
    was_interrupted = True
    while was_interrupted:
        step += 1
        signal = Signal()
        was_interrupted = wait_interrupted_at(signal, step)
        signal.enter()
        setter = threading.Thread(target=signal.set, daemon=True)
        setter.start()
        setter.join(PATIENCE)
        assert not setter.is_alive(), f"set() hangs after an interruption at line {step}"
        # It was set, so this returns at once.
        signal.wait(60)
    assert step > 3


def test_c7_a_flag_that_is_up_stays_up_and_goes_down_by_enter() -> None:
    signal = Signal()
    signal.enter()
    signal.set()
    signal.set()
    signal.wait(60)
    signal.enter()
    signal.wait(0.01)
    signal.leave()
    assert not signal.waiting


def test_c13_a_call_in_the_midst_of_a_wait_makes_that_one_look_again() -> None:
    signal = Signal()
    signal.enter()
    interrupts = signal.waiting
    signal.enter()
    signal.set()
    signal.wait(60)
    signal.leave(interrupts=interrupts)
    # The wait of the first ends at once, and no change after it is missed.
    signal.wait(60)
    signal.set()
    signal.wait(60)
