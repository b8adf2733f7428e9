"""Runs the calls of a client on an event loop; see waits.py. Nothing here blocks the loop.

A lock that a call holds while it looks is given back before each await. Between the last await of a call and its return
there is none, so what a call has taken, or handed over, is not lost when its task is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import ClassVar, Final, Protocol, TypeVar, cast

from kadence.client.engine import forked_error
from kadence.client.waits import BREATH, Run, Waits
from kadence.clock import Clock, wait_seconds
from kadence.errors import ConcurrentAccessError
from kadence.forked import FORKS

__all__ = ["BREATH_MS", "AsyncShell", "LoopChanges"]

T = TypeVar("T")

BREATH_MS: Final = 5
"""The time for which calls without a wait may keep the loop, about as long as a thread keeps the GIL."""


class LoopChanges(Protocol):
    """The changes that the calls of a client wait for on an event loop.

    Attributes:
        loop: the loop of the waiting tasks. is_held: whether a call holds a lock while it looks, against
        changes meanwhile.
    """

    loop: asyncio.AbstractEventLoop
    is_held: ClassVar[bool]

    def watch(self, changed: asyncio.Event) -> None:
        """Have ``changed`` set by each change from now on."""
        ...

    def forget(self, changed: asyncio.Event) -> None:
        """Stop waiting for it."""
        ...

    def release(self) -> None:
        """Give back the lock that a call holds."""
        ...

    def acquire(self) -> object:
        """Take it again."""
        ...


class AsyncShell:
    """Waits on an event loop for what calls need: on the one that ``changes`` belongs to.

    Args:
        kind: of the client, for messages: consumer, producer, admin client.
    """

    AWAITS: ClassVar[bool] = True

    def __init__(self, kind: str, changes: LoopChanges, clock: Clock) -> None:
        self._kind = kind
        self._changes = changes
        self._clock = clock
        self._fork = FORKS.count
        self._turned_at = clock.now_ms()

    @property
    def forked(self) -> bool:
        """True if this process is a child of the one that made the client."""
        return self._fork != FORKS.count

    def check_loop(self) -> None:
        """Raise `ConcurrentAccessError` on another event loop than the client's own.

        Raise `ForkedError` in a child, where the loop of its parent does not run.
        """
        if self.forked:
            raise forked_error(self._kind)
        if asyncio.get_running_loop() is not self._changes.loop:
            raise ConcurrentAccessError(
                f"this {self._kind} belongs to another event loop; make one on each loop"
            )

    async def run(self, call: Waits[T]) -> T:
        """Carry a call until it returns. A cancelled await closes the call where it waits.

        Raises:
            ConcurrentAccessError: on another event loop than the client's own. ForkedError.
        """
        self.check_loop()
        changes = self._changes
        changed: asyncio.Event | None = None
        try:
            if not changes.is_held:
                changes.watch(changed := asyncio.Event())
            while True:
                # It looks while the event is clear: what changes after that sets it.
                step = call.send(None)
                while isinstance(step, Run):
                    error = await self._error_of(step)
                    step = call.send(None) if error is None else call.throw(error)
                if changed is None:
                    changes.watch(changed := asyncio.Event())
                changes.release()
                try:
                    await (self.breathe() if step == BREATH else self._wait(changed, step))
                finally:
                    changes.acquire()
                changed.clear()
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            if changed is not None:
                changes.forget(changed)
            call.close()

    async def breathe(self) -> None:
        """Let the loop turn if calls without a wait have kept it for long. Before anything is taken, never after."""
        self.check_loop()
        now = self._clock.now_ms()
        if now - self._turned_at >= BREATH_MS:
            await asyncio.sleep(0)
            self._turned_at = self._clock.now_ms()

    async def _wait(self, changed: asyncio.Event, deadline: int) -> None:
        try:
            async with asyncio.timeout(wait_seconds(deadline, self._clock.now_ms())):
                await changed.wait()
        except TimeoutError:
            pass

    async def _error_of(self, step: Run) -> BaseException | None:
        """Run user code. Its exception is for the call, which ends by StopIteration: no coroutine may raise that."""
        try:
            await self._do(step)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the call decides what it means
            return error
        return None

    async def _do(self, step: Run) -> None:
        result = step.work()
        if inspect.isawaitable(result):
            await result
