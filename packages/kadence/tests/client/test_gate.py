"""The lock of a client: a wait under it that Ctrl-C ends."""

from __future__ import annotations

import threading

import pytest
from tests.consumer.application.test_interrupted import SOURCE, Interruption

from kadence.client.gate import Gate


@pytest.mark.parametrize("how", ["wait", "wait_for"])
def test_ctrl_c_in_a_wait_is_raised_as_that_and_leaves_the_lock_free(how: str) -> None:
    """Also where the condition of the standard library has released the lock, and is not in its ``try`` yet."""
    gate, at, happened = Gate(), 0, True
    while happened:
        at += 1
        interruption = Interruption(at, (SOURCE, threading.__file__), at_once=True)
        try:
            with gate, interruption:
                if how == "wait":
                    gate.wait(0.001)
                else:
                    gate.wait_for(lambda: False, 0.001)
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            error.add_note(f"after an interruption at line {at}: {interruption.where}")
            raise
        assert not gate.is_mine, interruption.where
        happened = interruption.happened
    assert at > 8
