"""How calls are carried, on a thread and on an event loop: user code, its errors, breaths, and interruptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from tests.patience import PATIENCE

from kadence.client import waits
from kadence.client.async_shell import AsyncShell
from kadence.client.gate import Gate
from kadence.client.loop_gate import LoopGate
from kadence.client.waits import BREATH, Run, Shell, Waits
from kadence.clock import FOREVER, SystemClock, add_ms

T = TypeVar("T")


def on_a_thread(call: Callable[[Gate], Waits[T]]) -> T:
    gate = Gate()
    try:
        return Shell(gate, SystemClock()).run(call(gate))
    finally:
        assert not gate.is_mine


def on_a_loop(call: Callable[[Gate], Waits[T]]) -> T:
    async def main() -> T:
        gate = LoopGate(asyncio.get_running_loop())
        try:
            return await AsyncShell("client", gate, SystemClock()).run(call(gate))
        finally:
            assert not gate.is_mine
            assert not gate._waiting

    return asyncio.run(main())


EITHER = pytest.mark.parametrize("carry", [on_a_thread, on_a_loop], ids=["thread", "loop"])


@EITHER
def test_user_code_runs_and_what_it_raises_is_the_calls(carry: Callable[..., Any]) -> None:
    done: list[str] = []

    def call(_gate: Gate) -> Waits[str]:
        yield Run(lambda: done.append("first"))
        try:
            yield Run(lambda: 1 // 0)
        except ZeroDivisionError:
            done.append("caught")
        # The last thing of a call may be user code.
        yield Run(lambda: done.append("last"))
        return "result"

    assert carry(call) == "result"
    assert done == ["first", "caught", "last"]


@EITHER
def test_a_call_that_waits_holding_the_lock_gives_it_back_meanwhile(carry: Callable[..., Any]) -> None:
    clock = SystemClock()

    def call(gate: Gate) -> Waits[int]:
        began, looks = clock.now_ms(), 0
        with gate:
            yield BREATH
            while not looks or clock.now_ms() < began + 20:
                looks += 1
                assert gate.is_mine
                yield add_ms(began, 20)
        return looks

    # Timers of the system may be early.
    assert 1 <= carry(call) <= 3


def test_where_no_signal_ends_the_wait_for_a_lock_it_is_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows Ctrl-C would be told only when a record comes."""
    waited: list[float | None] = []

    before = Gate.wait

    def wait(gate: Gate, timeout: float | None = None) -> bool:
        waited.append(timeout)
        return before(gate, timeout)

    monkeypatch.setattr(Gate, "wait", wait)
    monkeypatch.setattr(waits, "SLICE_S", 0.01)
    clock = SystemClock()
    late = add_ms(clock.now_ms(), int(PATIENCE * 1000))

    gate = Gate()

    def call() -> Waits[int]:
        with gate:
            while len(waited) < 4:
                yield FOREVER if len(waited) % 2 else late
        return 7

    assert Shell(gate, clock).run(call()) == 7
    assert all(seconds is not None and seconds <= 0.01 for seconds in waited)


@EITHER
def test_a_call_that_raises_leaves_no_lock(carry: Callable[..., Any]) -> None:
    def call(gate: Gate) -> Waits[None]:
        with gate:
            yield BREATH
            raise LookupError

    with pytest.raises(LookupError):
        carry(call)


def test_a_cancelled_call_leaves_no_lock_and_its_end_runs() -> None:
    ended: list[bool] = []

    def call(gate: Gate) -> Waits[None]:
        with gate:
            try:
                yield add_ms(SystemClock().now_ms(), 60_000)
            finally:
                ended.append(gate.is_mine)

    async def main() -> None:
        gate = LoopGate(asyncio.get_running_loop())
        task = asyncio.create_task(AsyncShell("client", gate, SystemClock()).run(call(gate)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not gate.is_mine

    asyncio.run(main())
    assert ended == [True]
