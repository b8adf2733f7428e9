"""The asyncio shell: how a consumer's calls wait on an event loop. Application side.

The same generators as under threads (`calls`), the same network thread behind the border. Nothing here blocks
the loop, and nothing runs in a thread pool. Several tasks may be inside at once (a poll that waits, a commit
beside it), because every step between two awaits runs alone; only a second poll is refused.

Progress (B4) means here that the *loop* turns: while a poll waits, a timer on the loop says so. A loop that
something blocks says nothing, and that is processing.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from types import TracebackType
from typing import TypeVar, cast

from kadence.clock import Clock, wait_seconds
from kadence.consumer.border.buffer import Border
from kadence.consumer.core import Core, Run, Waits
from kadence.consumer.shell import forks
from kadence.errors import ClosedError, ConcurrentAccessError, ForkedError

__all__ = ["AsyncShell"]

T = TypeVar("T")

_BREATH_MS = 5
"""How long polls that need no wait may keep the loop, about as long as a thread keeps the interpreter."""

_TICKS_PER_INTERVAL = 20
"""How often a turning loop says so, in each processing timeout."""


class AsyncShell:
    """Carries calls on one event loop: the one on which it was made."""

    def __init__(self, core: Core, border: Border, clock: Clock) -> None:
        self._core = core
        self._border = border
        self._clock = clock
        self._fork = forks()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Event] = set()
        self._polling: _Polling | None = None
        self._turned_at = clock.now_ms()
        border.progress.by_turns = True
        border.signal.on_set = self._wake
        border.signal.prepare()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the consumer."""
        return self._fork != forks()

    def enter(self) -> None:
        """Check that this call may begin.

        Raises:
            ClosedError. ForkedError. ConcurrentAccessError: called on another event loop than the consumer's own.
        """
        if self.forked:
            raise ForkedError("this consumer was made before fork(); make a new one in the child (C8)")
        if self._core.closed:
            raise ClosedError("this consumer is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise ConcurrentAccessError("this consumer belongs to another event loop (C7)")

    async def run(self, call: Waits[T]) -> T:
        """Carry a call until it returns.

        A cancelled await closes the call where it waits: between taking records and returning them there is no
        await, so none is lost; and what was not returned is never committed.
        """
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            step = next(call)
            while True:
                if isinstance(step, Run):
                    error = await self._run_user_code(step)
                    step = call.send(None) if error is None else call.throw(error)
                    continue
                event.clear()
                # Looked at again with the event armed: what came since the last look is not slept through.
                step = call.send(None)
                if isinstance(step, Run):
                    continue
                await self._wait(event, step)
                step = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            self._waiting.discard(event)
            call.close()

    async def breathe(self) -> None:
        """Let the loop turn if polls from the buffer have kept it for long. Before records are taken, never after."""
        now = self._clock.now_ms()
        if now - self._turned_at >= _BREATH_MS:
            self._turned_at = now
            await asyncio.sleep(0)

    def polling(self) -> _Polling:
        """Held by the one poll that is under way; the loop's turning counts as progress meanwhile."""
        return _Polling(self)

    async def _wait(self, event: asyncio.Event, deadline: int) -> None:
        try:
            async with asyncio.timeout(wait_seconds(deadline, self._clock.now_ms())):
                await event.wait()
        except TimeoutError:
            pass

    async def _run_user_code(self, step: Run) -> BaseException | None:
        """Run it and give back what it raised: the call itself goes on outside, where its return can be told."""
        progress = self._border.progress
        progress.enter_callback(self._clock.now_ms())
        try:
            result = step.work()
            if inspect.isawaitable(result):
                await result
        except BaseException as error:  # noqa: BLE001 - whatever it is, the call decides what it means
            return error
        finally:
            progress.leave_callback(self._clock.now_ms())
        return None

    def _wake(self) -> None:
        """Called by the network thread."""
        try:
            self._loop.call_soon_threadsafe(self._wake_all)
        except RuntimeError:
            # The loop was closed before the consumer: nobody waits on it any more.
            self._border.signal.cancel()

    def _wake_all(self) -> None:
        for event in self._waiting:
            event.set()


class _Polling:
    """See `AsyncShell.polling`. A poll whose task has ended (Ctrl-C, anywhere) is over, whatever it left undone."""

    def __init__(self, shell: AsyncShell) -> None:
        self._shell = shell
        self._task = asyncio.current_task()
        self._outer = shell._polling
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _is_over(self) -> bool:
        return self._task is not None and self._task.done()

    def __enter__(self) -> None:
        outer = self._outer
        if outer is not None and outer._task is not self._task and not outer._is_over:
            raise ConcurrentAccessError(
                "another task is inside poll(); one task reads, others may do the rest (C7)"
            )
        self._shell._polling = self
        if self._task is not None:
            self._shell._core.stalls.task = weakref.ref(self._task)
        self._tick()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        outer = self._outer
        self._shell._polling = None if outer is None or outer._is_over else outer
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        shell = self._shell
        if shell._polling is not self or self._is_over:
            return
        shell._border.progress.turned(shell._clock.now_ms())
        every = shell._core.config.processing_timeout_ms / 1000 / _TICKS_PER_INTERVAL
        self._timer = shell._loop.call_later(every, self._tick)
