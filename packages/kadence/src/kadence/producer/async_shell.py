"""Runs the producer's calls on an event loop: `client.async_shell` with the producer's additions; see shell.py.

A cancelled ``send()`` has not queued its record; one that returned has.
"""

from __future__ import annotations

import asyncio
from typing import cast

from kadence._native.append import ShortWay
from kadence.client import async_shell
from kadence.client.engine import END_MS, Engine
from kadence.client.loop_gate import LoopGate
from kadence.client.waits import Waits
from kadence.clock import Clock, add_ms, wait_seconds
from kadence.deserializers import converts_on_loop
from kadence.idioms import NotAwaited, running_loop
from kadence.producer.futures import RecordFuture
from kadence.producer.network_state import NetworkState

__all__ = ["AsyncShell"]


class AsyncShell(async_shell.AsyncShell):
    """Waits on the event loop on which its gate was made.

    Args:
        gate: the producer's lock, made by `new_gate`.
    """

    def __init__(self, gate: LoopGate, clock: Clock) -> None:
        super().__init__("producer", gate, clock)
        self._gate = gate
        self._short_way: ShortWay | None = None

    @staticmethod
    def new_gate() -> LoopGate:
        """A producer's lock, bound to the running loop."""
        return LoopGate(running_loop("AsyncProducer"), "producer")

    @staticmethod
    def stopped() -> None:
        """The result of `stop`, for programs that await it as in aiokafka."""
        return cast(None, NotAwaited("producer", "announces that the program is to end"))

    def guard(self, short_way: ShortWay) -> None:
        """Check the loop on the short way of a record, which never waits, so nothing else would check it."""
        # In a forked child no loop runs, and `check_loop` raises.
        short_way.only_on(self._gate.loop, asyncio._get_running_loop, self.check_loop)
        self._short_way = short_way
        if not short_way.is_plain:
            converts_on_loop(self)

    def is_converting(self) -> bool:
        """True if the caller is a serialiser of this producer."""
        short_way = self._short_way
        return (
            short_way is not None
            and short_way.is_serializing
            and asyncio._get_running_loop() is self._gate.loop
        )

    def outcome(self, future: RecordFuture) -> RecordFuture:
        """What waits until a record is acknowledged: a coroutine around it would only cost time."""
        return future

    async def end(self, network: NetworkState, engine: Engine, deadline: int) -> None:
        """Wait until the network thread, which was asked to end, has ended, and the callbacks of futures have run."""
        until = add_ms(deadline, END_MS)
        if self._gate.runs_here():
            await self.run(self._ended(network, until))
        else:
            # The loop that the producer belongs to may be closed; then it wakes no task.
            seconds = wait_seconds(until, self._clock.now_ms())
            try:
                await asyncio.to_thread(engine.join, seconds)
            except RuntimeError:
                # In a handler of `atexit` no threads can be started, and no other task runs.
                engine.join(seconds)
        if not network.has_ended:
            network.left_behind()

    def _ended(self, network: NetworkState, until: int) -> Waits[None]:
        with self._gate:
            while (not network.has_ended or network.is_notifying) and self._clock.now_ms() < until:
                yield until
