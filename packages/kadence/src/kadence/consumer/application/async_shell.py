"""The asyncio shell: how a consumer's calls wait on an event loop. Application side.

It runs the same generators as the thread shell (`calls`) and uses the same network thread. Nothing here blocks the
loop, and nothing runs in a thread pool. Several tasks may be inside at once (a poll that waits, a commit beside it),
because every step between two awaits runs alone; only a second poll is refused.

Progress (B4) means here that the *loop* turns: while a poll waits, a timer on the loop reports it. A blocked loop
reports nothing, and that time counts as processing.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kadence.client import async_shell
from kadence.client.engine import forked_error
from kadence.client.waits import Run, Waits
from kadence.clock import Clock, wait_seconds
from kadence.consumer.application.client_core import ClientCore
from kadence.consumer.client_state import ClientState, Signal
from kadence.deserializers import converts_on_loop
from kadence.errors import ClosedError, ConcurrentAccessError, KafkaError
from kadence.loading import load

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import LetterProducers
    from kadence.work.meters import Totals
    from kadence.work.settings import Settings

__all__ = ["AsyncShell"]

_TICKS_PER_INTERVAL = 20
"""How often a turning loop reports progress in each processing timeout."""


class _LoopSignal:
    """The shared state's signal for tasks of an event loop: each change wakes all that wait.

    If the signal has a descriptor, which is raised without the interpreter, the loop watches that. It refers to nothing
    else: the loop or the network thread keeps it alive, and would otherwise keep an unclosed consumer alive.
    """

    is_held: ClassVar[bool] = False

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._waiting: set[async_shell.Change] = set()
        # The descriptor that the loop watches; below 0: none.
        self._shown = -1
        self.move_to(asyncio.get_running_loop())

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the tasks of this loop from now on; an earlier loop has ended, and its tasks with it."""
        self._unwatch()
        self.loop = loop
        self._waiting.clear()
        if (shown := self._signal.show()) >= 0:
            try:
                loop.add_reader(shown, self._seen)
            except NotImplementedError:
                self._signal.hide()
            else:
                self._shown = shown
        self._signal.on_set = self._set if self._shown < 0 else None
        self._signal.enter()

    def end(self) -> None:
        """The consumer is closed. The few changes still possible wake tasks through the loop alone."""
        self._unwatch()
        self._wake_all()

    def end_soon(self) -> None:
        """As `end`, on any thread: the consumer is no longer referenced."""
        if self._shown >= 0:
            # The loop may have been closed before.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.end)

    def _unwatch(self) -> None:
        if self._shown < 0:
            return
        shown, self._shown = self._shown, -1
        self._signal.on_set = self._set
        self._signal.hide()
        with contextlib.suppress(RuntimeError):
            self.loop.remove_reader(shown)

    def _seen(self) -> None:
        self._signal.seen()
        self._wake_all()

    def watch(self, changed: async_shell.Change) -> None:
        self._waiting.add(changed)

    def forget(self, changed: async_shell.Change) -> None:
        self._waiting.discard(changed)

    def release(self) -> None:
        """A call holds no lock."""

    def acquire(self) -> None:
        """As `release`."""

    def _set(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._wake_all)
        except RuntimeError:
            # The loop was closed before the consumer: no task waits on it any more.
            self._signal.waiting = False

    def _wake_all(self) -> None:
        for changed in self._waiting:
            changed.set()


class AsyncShell(async_shell.AsyncShell):
    """Entered with ``with`` by each call. Carries calls on one event loop: the one on which it was made."""

    BEFORE_TAKING: ClassVar[tuple[type[BaseException], ...]] = (
        KafkaError,
        asyncio.CancelledError,
        GeneratorExit,
    )
    """What ends a poll before it has taken any record. A cancelled or collected task notices that at an await, and
    there is none between taking records and returning them.
    """

    def __init__(self, core: ClientCore, client_state: ClientState, clock: Clock) -> None:
        self._signal = _LoopSignal(client_state.signal)
        super().__init__("consumer", self._signal, clock)
        self._core = core
        self._client_state = client_state
        self._polling: _Polling | None = None
        self._working: _Working | None = None
        client_state.progress.by_turns = True
        if core.has_deserializers:
            converts_on_loop(self)
        weakref.finalize(self, self._signal.end_soon).atexit = False

    def is_converting(self) -> bool:
        """Whether the caller is a deserialiser of this consumer. One on a thread of `process` may wait."""
        return self._core.is_taking() and asyncio._get_running_loop() is self._signal.loop

    def __enter__(self) -> ClientCore:
        """Check that this call may begin.

        Raises:
            ClosedError. ForkedError. ConcurrentAccessError: called on another event loop than the consumer's own.
        """
        if self._core.exchange.closed and not self.forked:
            raise ClosedError("this consumer is closed")
        self.check_loop()
        return self._core

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...

    async def process(
        self, consumer: Any, settings: Settings, producers: LetterProducers, aside: Aside
    ) -> Totals:
        """Carry `AsyncConsumer.process`."""
        # Imported here because most consumers do not need it.
        load("kadence.work.driver")
        from kadence.work.driver import process_on_loop

        # A share consumer's `process` takes records without `polling`.
        self.refuse_beside_poll(self._polling)
        inside = self._core.inside(self._entered, producers, aside)
        # A second call is refused, and must not end what the first one has begun.
        working = _Working(asyncio.current_task(), asyncio.Event())
        if self._working is None:
            self._working = working
        try:
            return await process_on_loop(consumer, inside, settings)
        finally:
            self._core.end_work(inside)
            working.has_ended.set()
            if self._working is working:
                self._working = None

    async def _entered(self, call: Waits[Any]) -> Any:
        with self:
            return await self.run(call)

    async def close(self, call: Waits[None], deadline: int) -> None:
        """Run the call that closes the consumer. Calls of other tasks end; `process` ends in order.

        Once the consumer's own loop has ended, another one may close it.

        Raises:
            ConcurrentAccessError: the consumer's own loop runs, on another thread.
        """
        running = asyncio.get_running_loop()
        if running is not self._signal.loop:
            if self._signal.loop.is_running() and not self._core.exchange.closed:
                call.close()
                raise ConcurrentAccessError(
                    "this consumer belongs to another event loop, which is still running: close it there"
                )
            self._signal.move_to(running)
        elif (
            self._working is not None
            and self._working.task is not asyncio.current_task()
            # `process` waits for its callback, and that for this call.
            and not self._core.is_in_callback()
        ):
            # It commits its finished records, which it could not once this is closed.
            self._core.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds(deadline, self._clock.now_ms())):
                    await self._working.has_ended.wait()
        await self.run(call)
        self._signal.end()

    @staticmethod
    def refuse_beside_poll(polling: _Polling | None) -> None:
        """Raise `ConcurrentAccessError` if another task is inside a poll."""
        if polling is not None and polling.is_of_another_task():
            raise ConcurrentAccessError(
                "another task is inside poll(); only one task may poll at a time, but other tasks may make other calls"
            )

    def polling(self) -> _Polling:
        """Entered with ``async with`` by each poll, one at a time; the loop's turning counts as progress meanwhile."""
        return _Polling(self)

    async def _do(self, step: Run) -> None:
        progress = self._client_state.progress
        progress.enter_callback(self._clock.now_ms())
        try:
            await super()._do(step)
        finally:
            progress.leave_callback(self._clock.now_ms())
        if self.forked:
            # The call would wait for a network side that does not exist.
            raise forked_error("consumer")


class _Working(NamedTuple):
    """A call of `process`: the task that made it, and whether it has ended."""

    task: asyncio.Task[Any] | None
    has_ended: asyncio.Event


class _Polling:
    """See `AsyncShell.polling`. A poll whose task was ended by Ctrl-C, which may come anywhere, no longer counts."""

    def __init__(self, shell: AsyncShell) -> None:
        self._shell = shell
        self._task: asyncio.Task[Any] | None = None
        self._outer: _Polling | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _is_over(self) -> bool:
        return self._task is not None and self._task.done()

    def is_of_another_task(self) -> bool:
        """Whether another task than the present one makes it, and is under way."""
        return self._task is not asyncio.current_task() and not self._is_over

    async def __aenter__(self) -> None:
        with self._shell:
            await self._shell.breathe()
        self._task = asyncio.current_task()
        working = self._shell._working
        if working is not None and working.task is not self._task:
            raise ConcurrentAccessError(
                "process() of this consumer is running in another task, and only it may poll until it has returned"
            )
        outer = self._outer = self._shell._polling
        self._shell.refuse_beside_poll(outer)
        self._shell._polling = self
        # Steps of another task are refused from here on: see `fetch._steps`.
        self._shell._client_state.attention.up = True
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
        shell._client_state.progress.turned(shell._clock.now_ms())
        every = shell._core.processing_timeout_ms / 1000 / _TICKS_PER_INTERVAL
        self._timer = shell._signal.loop.call_later(every, self._tick)
