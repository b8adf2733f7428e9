"""How calls are carried, on a thread and on an event loop: user code, its errors, breaths, and interruptions."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pytest
from tests.patience import PATIENCE

from kadence.client import waits
from kadence.client.async_shell import AsyncShell, Change
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


class Changes:
    """Those of a client without a lock, which may move to another loop."""

    is_held: ClassVar[bool] = False

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.watching: list[Change] = []

    def watch(self, changed: Change) -> None:
        self.watching.append(changed)

    def forget(self, changed: Change) -> None:
        self.watching.remove(changed)

    def release(self) -> None: ...

    def acquire(self) -> None: ...


def until_changed(waits: int, wait_ms: int) -> Waits[int]:
    clock, looks = SystemClock(), 0
    for _ in range(waits):
        yield add_ms(clock.now_ms(), wait_ms)
        looks += 1
    return looks


async def changed_each_time(shell: AsyncShell, changes: Changes, call: Waits[int]) -> int:
    task = asyncio.ensure_future(shell.run(call))
    while not task.done():
        await asyncio.sleep(0)
        for each in changes.watching:
            each.set()
    return await task


def test_waits_that_end_early_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        changes = Changes()
        shell, timers = AsyncShell("client", changes, SystemClock()), 0
        call_at = changes.loop.call_at

        def counted(*arguments: Any, **named: Any) -> asyncio.TimerHandle:
            nonlocal timers
            timers += 1
            return call_at(*arguments, **named)

        monkeypatch.setattr(changes.loop, "call_at", counted)
        assert await changed_each_time(shell, changes, until_changed(50, 60_000)) == 50
        assert timers == 1
        # One that is to end sooner needs a timer that is.
        assert await changed_each_time(shell, changes, until_changed(50, 30_000)) == 50
        assert timers == 2
        assert not changes.watching

    asyncio.run(main())


def test_each_wait_ends_at_its_own_time() -> None:
    """Whether a timer was set before for a longer wait, for a shorter one, or by another call."""

    async def main() -> None:
        changes, clock = Changes(), SystemClock()
        shell = AsyncShell("client", changes, clock)
        ends: list[int] = []

        def call(wait_ms: int) -> Waits[None]:
            end = add_ms(clock.now_ms(), wait_ms)
            while clock.now_ms() < end:
                yield end
            ends.append(wait_ms)

        await changed_each_time(shell, changes, until_changed(1, 60_000))
        calls = [shell.run(call(wait_ms)) for wait_ms in (90, 30, 60, 30)]
        await asyncio.wait_for(asyncio.gather(*calls), PATIENCE)
        assert ends == [30, 30, 60, 90]
        # The timer of a wait that has ended wakes nobody, and ends no other wait.
        await changed_each_time(shell, changes, until_changed(1, 20))
        await asyncio.wait_for(shell.run(call(50)), PATIENCE)

    asyncio.run(main())


def test_a_wait_on_another_loop_ends_though_the_timer_of_the_first_one_never_rings() -> None:
    async def first() -> tuple[AsyncShell, Changes]:
        changes = Changes()
        shell = AsyncShell("client", changes, SystemClock())
        await changed_each_time(shell, changes, until_changed(1, 20))
        return shell, changes

    async def second(shell: AsyncShell, changes: Changes) -> int:
        changes.loop = asyncio.get_running_loop()
        return await asyncio.wait_for(shell.run(until_changed(2, 30)), PATIENCE)

    assert asyncio.run(second(*asyncio.run(first()))) == 2


def test_a_loop_that_rounds_the_times_of_its_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each timer rings once."""
    timers = 0

    async def main() -> None:
        changes = Changes()
        call_at = changes.loop.call_at

        def rounded(when: float, *arguments: Any) -> asyncio.TimerHandle:
            nonlocal timers
            timers += 1
            handle = call_at(when, *arguments)
            monkeypatch.setattr(asyncio.TimerHandle, "when", lambda _handle: when - 0.000_001)
            return handle

        monkeypatch.setattr(changes.loop, "call_at", rounded)
        shell = AsyncShell("client", changes, SystemClock())
        assert await shell.run(until_changed(3, 10)) == 3

    asyncio.run(main())
    assert timers == 3


def test_a_timer_keeps_no_client_alive() -> None:
    async def main() -> None:
        changes = Changes()
        shell = AsyncShell("client", changes, SystemClock())
        await changed_each_time(shell, changes, until_changed(1, 60_000))
        gone = weakref.ref(shell)
        del shell
        gc.collect()
        assert gone() is None

    asyncio.run(main())


def test_a_change_while_a_call_looks_ends_its_next_wait_at_once() -> None:
    async def main() -> None:
        changes = Changes()

        def call() -> Waits[str]:
            changes.watching[0].set()
            yield FOREVER
            return "looked"

        shell = AsyncShell("client", changes, SystemClock())
        assert await asyncio.wait_for(shell.run(call()), PATIENCE) == "looked"

    asyncio.run(main())
