"""The thread shell: who may enter a consumer, and how its calls wait. Application side.

A core says what a call does; this says how a thread runs it: one owner at a time (C7), no owner after fork (C8), waits
on the shared state's signal, and the poll timer is informed of user code.
"""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kadence.client import waits
from kadence.client.engine import forked_error
from kadence.client.waits import Run, Waits
from kadence.clock import Clock, add_ms
from kadence.consumer.application.client_core import ClientCore
from kadence.consumer.client_state import FAREWELL_MS, ClientState
from kadence.errors import ClosedError, ConcurrentAccessError, KafkaError
from kadence.forked import FORKS
from kadence.loading import load
from kadence.logs import logger

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import LetterProducers
    from kadence.work.meters import Totals
    from kadence.work.settings import Settings

__all__ = ["Shell"]

log = logger("kadence.consumer")


class Shell(waits.Shell):
    """Entered with ``with`` by each call: gives the core to this thread, or raises at once."""

    BEFORE_TAKING: ClassVar[tuple[type[BaseException], ...]] = (KafkaError,)
    """What ends a poll before it has taken any record: a poll raises its own errors before it takes."""

    __slots__ = (
        "__exit__",
        "_attention",
        "_client_state",
        "_core",
        "_fork",
        "_is_processing",
        "_lock",
        "release",
    )

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
        ) -> None: ...

    def __init__(self, core: ClientCore, client_state: ClientState, clock: Clock) -> None:
        super().__init__(client_state.signal, clock)
        self._core = core
        self._client_state = client_state
        self._attention = client_state.attention
        self._lock = threading.RLock()
        # The methods of the lock itself: Ctrl-C could interrupt a Python function before it has released the lock.
        self.__exit__ = self._lock.__exit__  # type: ignore[method-assign]
        self.release = self._lock.release
        self._fork = FORKS.count
        self._is_processing = False

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the consumer."""
        return self._fork != FORKS.count

    def __enter__(self) -> ClientCore:
        """Claim the consumer.

        Raises:
            ConcurrentAccessError: another thread is inside. ClosedError. ForkedError.
        """
        core = self._core
        try:
            acquired = self._lock.acquire(blocking=False)
            if acquired:
                # Steps, which do not enter, are refused from here on: see `fetch._steps`.
                self._attention.up = True
                elsewhere = core.is_inside_elsewhere
                if elsewhere is not None and elsewhere():
                    self._lock.release()
                    acquired = False
        except BaseException:
            self._let_go()
            raise
        if not acquired:
            self._refuse()
        if core.exchange.closed or self._fork != FORKS.count:
            self._lock.release()
            self._refuse()
        return core

    def polling(self) -> Self:
        """Entered by each poll. Under threads it is like any other call."""
        return self

    def process(self, consumer: Any, settings: Settings, producers: LetterProducers, aside: Aside) -> Totals:
        """Carry `Consumer.process`."""
        # Imported here because most consumers do not need it.
        load("kadence.work.driver")
        from kadence.work.driver import process_on_threads

        # It is inside from beginning to end: otherwise a handler's thread could take records between two of its polls.
        with self:
            inside = self._core.inside(self._entered, producers, aside)
            self._is_processing = True
            try:
                return process_on_threads(consumer, inside, settings)
            finally:
                self._is_processing = False
                self._core.end_work(inside)

    def _entered(self, call: Waits[Any]) -> Any:
        with self:
            return self.run(call)

    def close(self, call: Waits[None], deadline: int) -> None:
        """Run the call that closes the consumer, as soon as no other thread is inside."""
        if self.claim(deadline):
            try:
                self.run(call)
            finally:
                self.release()

    def claim(self, deadline: int) -> bool:
        """Enter in any state, to close; a thread that is inside is made to leave with `ClosedError`.

        `process` is made to stop, so that it commits finished records.
        User code that runs inside (a callback, a deserialiser) cannot be made to leave. At the deadline the consumer
        is closed behind its back: the group is left without a commit and without callbacks, and that thread gets
        `ClosedError` as soon as it returns.

        Returns:
            Whether this thread now owns the consumer; False when it was closed behind that thread's back.
        """
        try:
            acquired = self._lock.acquire(blocking=False)
            while not acquired:
                if self._clock.now_ms() >= deadline:
                    log.warning(
                        "close() was called while a callback runs in another thread's call: %s",
                        self._core.CUT_SHORT,
                    )
                    self._core.abandon(add_ms(self._clock.now_ms(), FAREWELL_MS))
                    return False
                if self._is_processing:
                    self._core.stop()
                else:
                    self._core.exchange.is_awaited = True
                    self._core.wakeup()
                acquired = self._lock.acquire(timeout=0.05)
            self._attention.up = True
        except BaseException:
            self._let_go()
            raise
        finally:
            self._core.exchange.is_awaited = False
        return True

    def _let_go(self) -> None:
        """Release the lock, if it was acquired when Ctrl-C (or another signal's handler) raised."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def _do(self, step: Run) -> None:
        progress = self._client_state.progress
        progress.enter_callback(self._clock.now_ms())
        try:
            step.work()
        finally:
            progress.leave_callback(self._clock.now_ms())
        if self.forked:
            # The call would wait for a network side that does not exist.
            raise forked_error("consumer")

    def _refuse(self) -> None:
        if self.forked:
            raise forked_error("consumer")
        if self._core.exchange.closed:
            raise ClosedError("this consumer is closed")
        who, end = "another thread is using this consumer", "it is done"
        if self._is_processing:
            who, end = "process() of this consumer is running on another thread", "it has returned"
        raise ConcurrentAccessError(f"{who}; until {end}, only {self._core.FREE_CALLS} are allowed")
