"""The asyncio shell: how a consumer's calls wait on an event loop. Application side.

The same generators as under threads (`calls`), the same network thread behind the shared state. Nothing here blocks
the loop, and nothing runs in a thread pool. Several tasks may be inside at once (a poll that waits, a commit
beside it), because every step between two awaits runs alone; only a second poll is refused.

Progress (B4) means here that the *loop* turns: while a poll waits, a timer on the loop says so. A loop that
something blocks says nothing, and that is processing.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, TypeVar, cast

from kadence.client.waits import Run, Waits
from kadence.clock import Clock, wait_seconds
from kadence.consumer.application.core import Core
from kadence.consumer.application.shell import forks, watch_forks
from kadence.consumer.shared_state import SharedState, Signal
from kadence.errors import ClosedError, ConcurrentAccessError, ForkedError, KafkaError

__all__ = ["AsyncShell"]

T = TypeVar("T")

_BREATH_MS = 5
"""How long polls that need no wait may keep the loop, about as long as a thread keeps the interpreter."""

_TICKS_PER_INTERVAL = 20
"""How often a turning loop says so, in each processing timeout."""


class AsyncShell:
    """Entered with ``with`` by each call. Carries calls on one event loop: the one on which it was made."""

    BEFORE_TAKING: ClassVar[tuple[type[BaseException], ...]] = (
        KafkaError,
        asyncio.CancelledError,
        GeneratorExit,
    )
    """What ends a poll before it has taken any record. A cancelled or collected task notices at an await, and between
    taking records and returning them there is none.
    """

    AWAITS: ClassVar[bool] = True

    def __init__(self, core: Core, shared_state: SharedState, clock: Clock) -> None:
        self._core = core
        self._shared_state = shared_state
        self._clock = clock
        self._fork = forks()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Event] = set()
        self._polling: _Polling | None = None
        self._turned_at = clock.now_ms()
        watch_forks(shared_state)
        shared_state.progress.by_turns = True
        shared_state.signal.on_set = _waker(self._loop, self._waiting, shared_state.signal)
        shared_state.signal.prepare()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the consumer."""
        return self._fork != forks()

    def __enter__(self) -> Core:
        """Check that this call may begin.

        Raises:
            ClosedError. ForkedError. ConcurrentAccessError: called on another event loop than the consumer's own.
        """
        if self.forked:
            raise ForkedError("this consumer was made before fork(); make a new one in the child")
        if self._core.closed:
            raise ClosedError("this consumer is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise ConcurrentAccessError("this consumer belongs to another event loop")
        return self._core

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...

    async def close(self, call: Waits[None], deadline: int) -> None:
        """Carry the call that closes the consumer. It ends what other tasks do inside.

        Once the consumer's own loop has ended, another one may close it.

        Raises:
            ConcurrentAccessError: the consumer's own loop runs, on another thread.
        """
        running = asyncio.get_running_loop()
        if running is not self._loop and not self._core.closed:
            if self._loop.is_running():
                call.close()
                raise ConcurrentAccessError(
                    "this consumer belongs to another event loop, which still runs: close it there"
                )
            self._move_to(running)
        await self.run(call)

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the tasks of this loop from now on; those of the one that has ended wait no more."""
        self._loop = loop
        self._waiting.clear()
        self._shared_state.signal.on_set = _waker(loop, self._waiting, self._shared_state.signal)
        self._shared_state.signal.prepare()

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
                # The call looks again now that the event is clear: what came since its last look sets it no more.
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

    def polling(self) -> _Polling:
        """Entered with ``async with`` by each poll, one at a time; the loop's turning counts as progress meanwhile."""
        return _Polling(self)

    async def breathe(self) -> None:
        """Let the loop turn if polls from the buffer have kept it for long. Before records are taken, never after."""
        now = self._clock.now_ms()
        if now - self._turned_at >= _BREATH_MS:
            self._turned_at = now
            await asyncio.sleep(0)

    async def _wait(self, event: asyncio.Event, deadline: int) -> None:
        try:
            async with asyncio.timeout(wait_seconds(deadline, self._clock.now_ms())):
                await event.wait()
        except TimeoutError:
            pass

    async def _run_user_code(self, step: Run) -> BaseException | None:
        """Run it and return what it raised; the caller hands that to the call, which decides what it means."""
        progress = self._shared_state.progress
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


def _waker(
    loop: asyncio.AbstractEventLoop, waiting: set[asyncio.Event], signal: Signal
) -> Callable[[], None]:
    """What the network thread calls to wake the tasks that wait.

    It refers to nothing else: the network thread keeps it, and would keep a consumer that nobody closed.
    """

    def wake_all() -> None:
        for event in waiting:
            event.set()

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(wake_all)
        except RuntimeError:
            # The loop was closed before the consumer: nobody waits on it any more.
            signal.cancel()

    return wake


class _Polling:
    """See `AsyncShell.polling`. A poll whose task has ended (by Ctrl-C, which may come anywhere) no longer counts."""

    def __init__(self, shell: AsyncShell) -> None:
        self._shell = shell
        self._task = asyncio.current_task()
        self._outer: _Polling | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _is_over(self) -> bool:
        return self._task is not None and self._task.done()

    async def __aenter__(self) -> None:
        with self._shell:
            await self._shell.breathe()
        outer = self._outer = self._shell._polling
        if outer is not None and outer._task is not self._task and not outer._is_over:
            raise ConcurrentAccessError(
                "another task is inside poll(); only one task may poll at a time, but other tasks may make other calls"
            )
        self._shell._polling = self
        # Steps of another task are refused from here on: see `reading.steps`.
        self._shell._shared_state.attention.up = True
        if self._task is not None:
            self._shell._core.stalls.task = weakref.ref(self._task)
        self._tick()

    async def __aexit__(
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
        shell._shared_state.progress.turned(shell._clock.now_ms())
        every = shell._core.config.processing_timeout_ms / 1000 / _TICKS_PER_INTERVAL
        self._timer = shell._loop.call_later(every, self._tick)
