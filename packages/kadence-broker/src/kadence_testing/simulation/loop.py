"""An asyncio event loop in virtual time: one for each program of a simulation.

The programs are ordinary coroutines, with asyncio's own tasks, queues, locks and timeouts; `asyncio.sleep` takes no
real time. Threads and sockets of asyncio are refused: nothing outside the simulation may influence it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextvars import Context
from typing import Any, Final, NoReturn, TypeVar

from kadence.logs import logger
from kadence_testing.simulation.scheduler import Event, Process, SimulationError

__all__ = ["ProcessLoop", "threads_refused"]

_log = logger("kadence.testing.simulation")

T = TypeVar("T")

_LAYERS: Final = 1_000
"""How often a coroutine may wait again while it is being closed."""


class _Handle(asyncio.TimerHandle):
    """A scheduled call; cancelling it removes its event."""

    __slots__ = ("event",)

    event: Event

    def cancel(self) -> None:
        if not self.cancelled():
            self.event.cancel()
        super().cancel()


class ProcessLoop(asyncio.AbstractEventLoop):
    """Runs the tasks of one process.

    Attributes:
        troubles: errors of callbacks and forgotten tasks, as contexts of asyncio's exception handlers.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._scheduler = process.scheduler
        self._tasks: dict[asyncio.Task[Any], Any] = {}
        process.on_end.append(self._unwind)
        self.troubles: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return f"<loop of {self._process.name}>"

    def time(self) -> float:
        return self._scheduler.now_ms() / 1000

    # The methods that asyncio's futures and tasks call. Typeshed types the arguments of callbacks one by one.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self._call(self._scheduler.now_ms(), callback, args, context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call(self._scheduler.now_ms() + _ms(delay), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call(_ms(when), callback, args, context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> Any:
        made: asyncio.Task[Any] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        self._tasks[made] = None
        made.add_done_callback(lambda task: self._tasks.pop(task, None))
        return made

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._process.is_alive

    def is_closed(self) -> bool:
        return not self._process.is_alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback or a forgotten task has raised: log it, as asyncio's own loops do."""
        self.troubles.append(context)
        _log.error("%s: %s", self._process.name, context.get("message"), exc_info=context.get("exception"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> NoReturn:
        raise SimulationError(
            "a program of a simulation cannot use threads (asyncio.to_thread, run_in_executor): their time is not the "
            "simulation's"
        )

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> NoReturn:  # type: ignore[override]
        raise SimulationError("a program of a simulation gets no signals: Program.stop sets program.stopping")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio's handles; `_Handle` has cancelled its event already."""

    # Running

    def start(self, main: Coroutine[Any, Any, T], context: Context) -> asyncio.Task[T]:
        """Begin a program; it runs with the process."""
        made: asyncio.Task[T] = context.run(self.create_task, main, name=self._process.name, context=context)
        return made

    def _call(
        self, when: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> _Handle:
        handle = _Handle(when / 1000, callback, args, self, context)
        handle.event = self._process.at(when, lambda: self._run(handle))
        return handle

    def _run(self, handle: asyncio.Handle) -> None:
        outer, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._close_generator)
        try:
            handle._run()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(outer)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An asynchronous generator was dropped before its end: its ``finally`` may await."""
        if self._process.is_alive:
            self.create_task(generator.aclose())

    def _unwind(self) -> None:
        """The process is killed: close its coroutines now, or the garbage collector would warn of them later.

        Their ``finally`` and ``async with`` blocks have no effect outside: no event of a dead process runs.
        """
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        tasks, self._tasks = list(self._tasks), {}
        try:
            for task in tasks:
                # A task that never ends is no error here, and asyncio's warning would keep the whole simulation alive.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done() and task.get_coro() is not None:
                    _leave(task.get_coro())
        finally:
            asyncio._set_running_loop(outer)


@contextlib.contextmanager
def threads_refused() -> Iterator[None]:
    """A context in which a program that starts a thread, as `kadence.Admin` does, gets a `SimulationError`."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if isinstance(asyncio._get_running_loop(), ProcessLoop):
            raise SimulationError(
                f"a program of a simulation cannot start a thread ({thread.name}): its time is not the simulation's. "
                "Use AsyncConsumer and AsyncProducer; Admin has threads"
            )
        start(thread)

    threading.Thread.start = refuse  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


class _Killed(BaseException):
    """Thrown into the coroutines of a process that is killed."""


def _leave(coroutine: Any) -> None:
    for _ in range(_LAYERS):
        try:
            coroutine.throw(_Killed())
        except BaseException:  # noqa: BLE001 - whatever a dead program says
            return


def _ms(seconds: float) -> int:
    """Rounded up, but for what a float adds."""
    return -int(-(seconds * 1000 - 1e-6) // 1)
