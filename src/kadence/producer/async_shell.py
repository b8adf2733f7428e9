"""How an event loop carries the producer's calls; see shell.py. Nothing here blocks the loop.

The lock is given back before each await. Between the last await of a call and its return there is none, so a cancelled
``send()`` has handed over nothing, and one that returned has handed over its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, TypeVar, cast

from kadence.client.engine import Engine
from kadence.client.loop_gate import LoopGate
from kadence.client.waits import BREATH, Waits
from kadence.clock import Clock, add_ms, wait_seconds
from kadence.errors import ConcurrentAccessError
from kadence.idioms import NotAwaited, running_loop
from kadence.producer.futures import RecordFuture, RecordMetadata
from kadence.producer.network_state import END_MS, NetworkState

__all__ = ["AsyncShell"]

T = TypeVar("T")

_BREATH_MS = 5
"""How long calls that need no wait may keep the loop, about as long as a thread keeps the interpreter."""


class AsyncShell:
    """Waits on an event loop for what the producer's calls need.

    It belongs to the event loop on which its gate was made.

    Args:
        gate: the producer's lock, made by `new_gate`.
    """

    AWAITS: ClassVar[bool] = True

    def __init__(self, gate: LoopGate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self._turned_at = clock.now_ms()

    @staticmethod
    def new_gate() -> LoopGate:
        """The lock of one producer, on the loop that runs now."""
        return LoopGate(running_loop("AsyncProducer"))

    @staticmethod
    def stopped() -> None:
        """What `stop` returns, for those who await it as in aiokafka."""
        return cast(None, NotAwaited("producer", "says that the program is to end"))

    def check_loop(self) -> None:
        """Raise `ConcurrentAccessError` on another event loop than the producer's own."""
        if asyncio.get_running_loop() is not self._gate.loop:
            raise ConcurrentAccessError("this producer belongs to another event loop; make one on each loop")

    async def run(self, call: Waits[T]) -> T:
        """Carry a call until it returns. Cancelled, it ends where it waits.

        Raises:
            ConcurrentAccessError: on another event loop than the producer's own.
        """
        self.check_loop()
        gate = self._gate
        changed: asyncio.Event | None = None
        try:
            deadline = next(call)
            changed = asyncio.Event()
            while True:
                assert isinstance(deadline, int), "a producer runs no user code in its calls"
                changed.clear()
                gate.watch(changed)
                gate.release()
                try:
                    await (self.breathe() if deadline == BREATH else self._wait(changed, deadline))
                finally:
                    gate.acquire()
                deadline = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            if changed is not None:
                gate.forget(changed)
            call.close()

    def guarded(self, put: Callable[..., T]) -> Callable[..., T]:
        """The short way of a record. It never waits, so nothing else would tell another loop from the producer's."""
        running, own = asyncio.get_running_loop, self._gate.loop

        def checked(
            topic: object, value: object, key: object, partition: object, timestamp: object, headers: object
        ) -> T:
            if running() is not own:
                self.check_loop()
            return put(topic, value, key, partition, timestamp, headers)

        return checked

    async def breathe(self) -> None:
        """Let the loop turn if calls without a wait have kept it for long."""
        self.check_loop()
        now = self._clock.now_ms()
        if now - self._turned_at >= _BREATH_MS:
            await asyncio.sleep(0)
            self._turned_at = self._clock.now_ms()

    async def _wait(self, changed: asyncio.Event, deadline: int) -> None:
        try:
            async with asyncio.timeout(wait_seconds(deadline, self._clock.now_ms())):
                await changed.wait()
        except TimeoutError:
            pass

    async def outcome(self, future: RecordFuture) -> RecordMetadata:
        """Wait until a record is acknowledged."""
        return await future

    async def end(self, network: NetworkState, engine: Engine, deadline: int) -> None:
        """Wait until the network thread, which was told to end, has ended."""
        until = add_ms(deadline, END_MS)
        if self._gate.runs_here():
            await self.run(self._ended(network, until))
        else:
            # The loop that the producer belongs to may be closed, so nothing wakes a task.
            await asyncio.to_thread(engine.join, wait_seconds(until, self._clock.now_ms()))
        if not network.has_ended:
            network.left_behind()

    def _ended(self, network: NetworkState, until: int) -> Waits[None]:
        with self._gate:
            while not network.has_ended and self._clock.now_ms() < until:
                yield until
