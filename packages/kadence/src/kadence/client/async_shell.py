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

__all__ = ["BREATH_MS", "AsyncShell", "Change", "LoopChanges"]

T = TypeVar("T")

BREATH_MS: Final = 5
"""The time for which calls without a wait may keep the loop, about as long as a thread keeps the GIL."""


class Change:
    """Something has changed, perhaps, for one call that waits. It costs less than `asyncio.Event`. On the loop.

    Attributes:
        is_up: a change has come since the call looked. waiter: what the call's task awaits; None: it does not wait.
    """

    __slots__ = ("is_up", "waiter")

    def __init__(self) -> None:
        self.is_up = False
        self.waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """A change has come."""
        self.is_up = True
        self.end_wait()

    def end_wait(self) -> None:
        """Let the call look, for whatever reason."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class _Alarm:
    """Ends waits when their time is over. It has one timer of the loop, which most waits find set already.

    It refers to no client: the loop keeps a timer, and would otherwise keep an unclosed client alive.
    """

    __slots__ = ("_at", "_ends", "_loop", "_timer")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: dict[Change, float] = {}
        """Until when the calls wait at most, in the time of the loop."""
        self._timer: asyncio.TimerHandle | None = None
        # The loop's own time of the timer may be rounded, and would then seem to be before that.
        self._at = 0.0

    def begin(self, loop: asyncio.AbstractEventLoop, changed: Change, seconds: float) -> None:
        """A call waits for so long at most."""
        end = self._ends[changed] = loop.time() + seconds
        # A client whose loop has ended may be closed on another one.
        if self._timer is None or self._loop is not loop or end < self._at:
            self._set(loop, end)

    def end(self, changed: Change) -> None:
        """Its wait is over. The timer stays: the next wait will not have to set one."""
        self._ends.pop(changed, None)

    def _set(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._at = loop, end
        self._timer = loop.call_at(end, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        left = []
        for changed, end in self._ends.items():
            if end <= self._at:
                changed.end_wait()
            else:
                left.append(end)
        if left:
            self._set(loop, min(left))


class LoopChanges(Protocol):
    """The changes that the calls of a client wait for on an event loop.

    Attributes:
        loop: the loop of the waiting tasks. is_held: whether a call holds a lock while it looks, against
        changes meanwhile.
    """

    loop: asyncio.AbstractEventLoop
    is_held: ClassVar[bool]

    def watch(self, changed: Change) -> None:
        """Have ``changed`` set by each change from now on."""
        ...

    def forget(self, changed: Change) -> None:
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
        self._alarm = _Alarm()

    @property
    def forked(self) -> bool:
        """True if this process is a child of the one that made the client."""
        return self._fork != FORKS.count

    def check_loop(self) -> None:
        """Raise `ConcurrentAccessError` on another event loop than the client's own.

        Raise `ForkedError` in a child, where the loop of its parent does not run.
        """
        if self._fork != FORKS.count:
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
        changed: Change | None = None
        try:
            if not changes.is_held:
                changes.watch(changed := Change())
            while True:
                # It looks while that is down: what changes after that sets it.
                step = call.send(None)
                while isinstance(step, Run):
                    error = await self._error_of(step)
                    step = call.send(None) if error is None else call.throw(error)
                if changed is None:
                    changes.watch(changed := Change())
                changes.release()
                try:
                    await (self.breathe() if step == BREATH else self._wait(changed, step))
                finally:
                    changes.acquire()
                changed.is_up = False
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

    async def _wait(self, changed: Change, deadline: int) -> None:
        if changed.is_up:
            return
        loop = self._changes.loop
        seconds = wait_seconds(deadline, self._clock.now_ms())
        changed.waiter = loop.create_future()
        try:
            if seconds is not None:
                self._alarm.begin(loop, changed, seconds)
            await changed.waiter
        finally:
            changed.waiter = None
            self._alarm.end(changed)

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
