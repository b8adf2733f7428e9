"""The thread shell: who may enter a consumer, and how its calls wait. Application side.

`core.Core` says what a call does; this says how a thread carries it: one owner at a time (C7), none at all
after fork (C8), waits on the shared state's signal, user code run with the poll timer told of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar, cast

from kadence.client.waits import Run, Waits
from kadence.clock import Clock, add_ms, wait_seconds
from kadence.consumer.application.core import Core
from kadence.consumer.application.farewell import FAREWELL_MS
from kadence.consumer.decoded_records import Attention
from kadence.consumer.shared_state import SharedState
from kadence.errors import ClosedError, ConcurrentAccessError, ForkedError, KafkaError
from kadence.logs import logger

__all__ = ["Shell", "forks"]

log = logger("kadence.consumer")

T = TypeVar("T")

_forks = 0
_attentions: weakref.WeakSet[Attention] = weakref.WeakSet()
"""Those of all consumers: in a child none may go on without looking who it is."""


def _forked() -> None:
    global _forks  # noqa: PLW0603 - a process has one count of its forks
    _forks += 1
    for attention in list(_attentions):
        attention.up = True


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)


def forks() -> int:
    """How often this process and those it comes from were forked: another number means another process."""
    return _forks


def watch_forks(shared_state: SharedState) -> None:
    """Raise the shared state's attention in each child process."""
    _attentions.add(shared_state.attention)


class Shell:
    """Entered with ``with`` by each call: gives the core to this thread, or says at once why not."""

    BEFORE_TAKING: ClassVar[tuple[type[BaseException], ...]] = (KafkaError,)
    """What ends a poll before it has taken any record: a poll raises its own errors before it takes."""

    AWAITS: ClassVar[bool] = False
    """Whether callbacks may be coroutine functions."""

    __slots__ = ("__exit__", "_clock", "_core", "_fork", "_lock", "_shared_state", "release")

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
        ) -> None: ...

    def __init__(self, core: Core, shared_state: SharedState, clock: Clock) -> None:
        self._core = core
        self._shared_state = shared_state
        self._clock = clock
        self._lock = threading.RLock()
        # The methods of the lock itself: Ctrl-C could interrupt a Python function before it has released the lock.
        self.__exit__ = self._lock.__exit__  # type: ignore[method-assign]
        self.release = self._lock.release
        self._fork = _forks
        watch_forks(shared_state)

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the consumer."""
        return self._fork != _forks

    def __enter__(self) -> Core:
        """Claim the consumer.

        Raises:
            ConcurrentAccessError: another thread is inside. ClosedError. ForkedError.
        """
        try:
            acquired = self._lock.acquire(blocking=False)
            if acquired:
                # Steps, which do not enter, are refused from here on: see `reading.steps`.
                self._shared_state.attention.up = True
                if self._core.steps.is_inside_elsewhere():
                    self._lock.release()
                    acquired = False
        except BaseException:
            self._let_go()
            raise
        if not acquired:
            self._refuse()
        if self._core.closed or self._fork != _forks:
            self._lock.release()
            self._refuse()
        return self._core

    def polling(self) -> Self:
        """Entered by each poll. Under threads it is as any other call."""
        return self

    def close(self, call: Waits[None], deadline: int) -> None:
        """Carry the call that closes the consumer, as soon as no other thread is inside."""
        if self.claim(deadline):
            try:
                self.run(call)
            finally:
                self.release()

    def claim(self, deadline: int) -> bool:
        """Enter whatever the state, to close; a thread that is inside is made to leave by a wakeup.

        User code that runs inside (a callback, a deserialiser) cannot be made to leave. At the deadline the consumer
        is closed behind its back: the group is left without a commit and without callbacks, and that thread gets
        `ClosedError` as soon as it comes back.

        Returns:
            Whether the consumer is this thread's now; False when it was closed as said.
        """
        try:
            acquired = self._lock.acquire(blocking=False)
            while not acquired:
                if self._clock.now_ms() >= deadline:
                    log.warning(
                        "close() was called while a callback runs in another thread's call: nothing is committed"
                    )
                    self._core.abandon(add_ms(self._clock.now_ms(), FAREWELL_MS))
                    return False
                self._core.wakeup()
                acquired = self._lock.acquire(timeout=0.05)
            self._shared_state.attention.up = True
        except BaseException:
            self._let_go()
            raise
        return True

    def _let_go(self) -> None:
        """Release the lock, if it was acquired when Ctrl-C (or another signal's handler) raised."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def run(self, call: Waits[T]) -> T:
        """Carry a call on this thread until it returns.

        The signal is prepared before the call looks at the shared state again, so nothing that comes between its
        look and our wait is missed. A call in a signal handler may run in the midst of another call's wait: what it
        took from the shared state may be what that one waits for, so that one is made to look again.
        """
        signal, clock = self._shared_state.signal, self._clock
        interrupts = signal.waiting
        try:
            step = next(call)
            while True:
                while isinstance(step, Run):
                    step = self._run_user_code(call, step)
                signal.prepare()
                step = call.send(None)
                if isinstance(step, Run):
                    continue
                signal.wait(wait_seconds(step, clock.now_ms()))
                step = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            signal.cancel()
            if interrupts:
                signal.look_again()
            # Not left to the collector: after Ctrl-C the traceback keeps the call alive, and its `finally` must run.
            call.close()

    def _run_user_code(self, call: Waits[T], step: Run) -> int | Run:
        progress, clock = self._shared_state.progress, self._clock
        progress.enter_callback(clock.now_ms())
        try:
            step.work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the call decides what it means
            progress.leave_callback(clock.now_ms())
            return call.throw(error)
        progress.leave_callback(clock.now_ms())
        return call.send(None)

    def _refuse(self) -> None:
        if self._fork != _forks:
            raise ForkedError("this consumer was made before fork(); make a new one in the child")
        if self._core.closed:
            raise ClosedError("this consumer is closed")
        raise ConcurrentAccessError(
            "another thread is using this consumer; until it is done, only stop, wakeup, pause, resume, close and "
            "calls that read its state (metrics, not_fetched, …) are allowed"
        )
