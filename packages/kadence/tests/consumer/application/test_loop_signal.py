"""How changes wake the tasks of an event loop: by a descriptor where the signal has one, else by the loop itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence import AsyncConsumer
from kadence.client.async_shell import Change
from kadence.consumer.application.async_shell import _LoopSignal
from kadence.consumer.client_state import Signal
from kadence.net import drain

has_descriptor = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)
BOTH = [pytest.param(True, id="descriptor", marks=has_descriptor), pytest.param(False, id="loop")]


def signal_of(*, compiled: bool) -> Any:
    return drain.drain.new_arrivals().flag() if compiled else Signal()


def watched(loop: asyncio.AbstractEventLoop) -> int:
    """How many descriptors the loop watches."""
    chosen: Any = loop
    return len(chosen._selector.get_map())


async def wakes(loop_signal: _LoopSignal, change: Callable[[], None]) -> None:
    changed = Change()
    changed.waiter = asyncio.get_running_loop().create_future()
    loop_signal.watch(changed)
    thread = threading.Thread(target=change)
    thread.start()
    await asyncio.wait_for(changed.waiter, PATIENCE)
    thread.join()
    loop_signal.forget(changed)


@pytest.mark.parametrize("compiled", BOTH)
def test_each_change_wakes_and_the_end_does_too(compiled: bool) -> None:
    signal = signal_of(compiled=compiled)

    async def work() -> None:
        before = watched(asyncio.get_running_loop())
        loop_signal = _LoopSignal(signal)
        for _ in range(3):
            await wakes(loop_signal, signal.set)
        await wakes(loop_signal, loop_signal.end_soon if compiled else signal.set)
        loop_signal.end()
        assert watched(asyncio.get_running_loop()) == before
        await wakes(loop_signal, signal.set)

    asyncio.run(work())


@pytest.mark.parametrize("compiled", BOTH)
def test_another_loop_takes_over_from_one_that_has_ended(compiled: bool) -> None:
    signal = signal_of(compiled=compiled)

    async def begin() -> _LoopSignal:
        return _LoopSignal(signal)

    async def go_on(loop_signal: _LoopSignal) -> None:
        loop_signal.move_to(asyncio.get_running_loop())
        await wakes(loop_signal, signal.set)
        loop_signal.end()

    loop_signal = asyncio.run(begin())
    signal.set()
    asyncio.run(go_on(loop_signal))
    loop_signal.end_soon()


@has_descriptor
def test_a_loop_that_watches_no_descriptors_is_woken_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    signal = signal_of(compiled=True)

    def refuse(*_: Any) -> None:
        raise NotImplementedError

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "add_reader", refuse)
            loop_signal = _LoopSignal(signal)
        assert signal.on_set is not None, "so records come by the network thread"
        await wakes(loop_signal, signal.set)

    asyncio.run(work())


def test_a_consumer_that_nobody_has_is_not_watched_for() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        before = watched(loop)
        subjects = [AsyncConsumer(bootstrap_servers="127.0.0.1:1")]
        with pytest.warns(ResourceWarning):
            subjects.clear()
        # Two turns of the loop: the end was asked for before the first.
        for _ in range(2):
            await asyncio.sleep(0)
        assert watched(loop) == before

    asyncio.run(asyncio.wait_for(work(), PATIENCE))
