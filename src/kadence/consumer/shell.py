"""The thread shell: who may enter a consumer, and how its calls wait. Application side.

`core.Core` says what a call does; this says how a thread carries it: one owner at a time (C7), none at all
after fork (C8), waits on the border's signal, user code run with the poll timer told of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from kadence.clock import Clock, SystemClock, add_ms, wait_seconds
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.messages import Close
from kadence.consumer.core import Core, Engine, Run, Waits
from kadence.errors import ClosedError, ConcurrentAccessError, ForkedError

__all__ = ["Shell", "abandoned"]

log = logging.getLogger("kadence.consumer")

T = TypeVar("T")

_FAREWELL_MS = 2_000
"""What a consumer that nobody closed may still take of somebody's time."""

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - the one thing that a child must know is that it is one
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def forks() -> int:
    """How often this process and those it comes from were forked: another number means another process."""
    return _forks


class Shell:
    """Entered with ``with`` by each call: gives the core to this thread, or says at once why not."""

    __slots__ = ("__exit__", "_border", "_clock", "_core", "_fork", "_lock", "release")

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
        ) -> None: ...

    def __init__(self, core: Core, border: Border, clock: Clock) -> None:
        self._core = core
        self._border = border
        self._clock = clock
        self._lock = threading.RLock()
        # The lock's own: functions of ours could be interrupted by Ctrl-C before they have let go.
        self.__exit__ = self._lock.__exit__  # type: ignore[method-assign]
        self.release = self._lock.release
        self._fork = _forks

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
        except BaseException:
            self._let_go()
            raise
        if not acquired:
            self._refuse()
        if self._core.closed or self._fork != _forks:
            self._lock.release()
            self._refuse()
        return self._core

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
                        "closed while user code runs inside another thread's call: nothing is committed"
                    )
                    self._core.abandon(add_ms(self._clock.now_ms(), _FAREWELL_MS))
                    return False
                self._core.wakeup()
                acquired = self._lock.acquire(timeout=0.05)
        except BaseException:
            self._let_go()
            raise
        return True

    def _let_go(self) -> None:
        """Ctrl-C, or what another signal's handler raises, came as the lock was asked for, maybe once it was had."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def run(self, call: Waits[T]) -> T:
        """Carry a call on this thread until it returns.

        The signal is prepared before the call looks at the border again, so nothing that comes between its
        look and our wait is missed.
        """
        signal, clock = self._border.signal, self._clock
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
            # After Ctrl-C the traceback would keep the call, and what its own `finally` must undo, alive.
            call.close()

    def _run_user_code(self, call: Waits[T], step: Run) -> int | Run:
        progress, clock = self._border.progress, self._clock
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
            raise ForkedError("this consumer was made before fork(); make a new one in the child (C8)")
        if self._core.closed:
            raise ClosedError("this consumer is closed")
        raise ConcurrentAccessError(
            "another thread is inside this consumer; only wakeup, pause, resume, close and what tells of its state "
            "(metrics, not_fetched, …) may be called then (C7)"
        )


def abandoned(kind: str, border: Border, engine: Engine) -> None:
    """A consumer was collected, or the interpreter ends, without close(): leave the group all the same (B7)."""
    if border.ended or not engine.is_alive():
        # Closed in the end, or in a child after fork(), where there is nobody to ask.
        return
    if not sys.is_finalizing():
        warnings.warn(f"{kind} was not closed; use `with` or close()", ResourceWarning, stacklevel=2)
    deadline = add_ms(SystemClock().now_ms(), _FAREWELL_MS)
    border.send(Close(0, deadline, leave=None))
    engine.join((_FAREWELL_MS + 500) / 1000)
