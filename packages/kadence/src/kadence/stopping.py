"""Ending in order when a signal comes: `stop_on_signals`, for all clients, for threads and asyncio.

Python runs a signal's handler on the main thread, between two steps of whatever it does there. So the handler only sets
flags: it starts no thread, takes no lock, logs nothing. A thread that was started before does the rest. That is also
why this uses no ``loop.add_signal_handler``: a loop that user code blocks would not run that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection
from types import FrameType, TracebackType
from typing import Any, Final, Self

from kadence.client.engine import ENDING, OPEN, Stoppable
from kadence.client.grace import RESERVE_MS
from kadence.clock import Seconds, SystemClock, to_ms
from kadence.logs import Lines, OwnThread, logger
from kadence.weak import all_of

__all__ = ["StopOnSignals", "stop_on_signals"]

log = logger("kadence.stopping")

_TOLD_AT: Final = 0.8
"""The share of the grace period after which user code that still works is told of."""

_SAME_MS: Final = 1_000
"""Signals within so long of the first are the same wish to end: a parent process may pass on what the terminal sent
to both.
"""


def stop_on_signals(
    *clients: Stoppable,
    grace: Seconds = 25.0,
    signals: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> StopOnSignals:
    """A context manager: the first signal calls `Consumer.stop`, which ends the loop over the consumer.

    It also calls `Producer.stop`, which sets `Producer.stopping` and bounds `Producer.close`, and `Admin.stop`. No call
    waits for brokers beyond the grace period, even if no broker can be reached.

    The loop ends after the record that it is processing. Then ``with`` closes the consumer, which commits (with
    auto-commit) and leaves the group. Put it around the consumer, so that it is in force until that is closed::

        with stop_on_signals(grace=25), Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    In a coroutine, too, use a plain ``with``, around ``async with AsyncConsumer(...)``.

    When 80 % of the grace period have passed and your code is still processing, a warning (logger
    ``kadence.stopping``) says which line of your code blocks the poll loop, and with which records; with
    `Consumer.process` only the line that calls it. Near the end of
    the grace period a consumer that is still not closed leaves the group without waiting for your code. Other
    members get its partitions and read again what was not committed. From then on `Consumer.commit` raises
    `ClosedError`, as does every call that waits. A producer that is still not closed sends what it was
    given, and `Producer.send` raises `ClosedError` from then on.

    Another signal, a second or more after the first, has its usual effect: SIGTERM ends the process at once, SIGINT
    raises KeyboardInterrupt. The end of ``with`` restores the signal handlers that were set before. A signal that
    the process ignores stays ignored.

    Args:
        clients: the consumers, producers and admin clients to stop. Without any: every one of this process,
            including those that are made later.
        grace: seconds from the signal until every one must be closed. Choose a few seconds less than the
            supervisor allows; Kubernetes allows 30 by default (terminationGracePeriodSeconds).
        signals: the signals to react to.

    Raises:
        RuntimeError: ``with`` was entered on another thread than the main thread; Python sets signal handlers on
            the main thread only. Call `Consumer.stop` from a handler of your own then.
        ValueError: ``grace`` is negative. TypeError: an argument is no client.
    """
    return StopOnSignals(clients, grace, signals)


class StopOnSignals:
    """The context manager that `stop_on_signals` returns.

    Attributes:
        received: the first signal that came; None until then. ``received.name`` is its name; formatted by itself it is
            a number, as Python does it. To tell the parent process which signal ended the program, exit with
            ``128 + received``.
    """

    def __init__(
        self, clients: Collection[Stoppable], grace: Seconds, signals: Collection[signal.Signals]
    ) -> None:
        grace_ms = to_ms(grace)
        if grace_ms is None:
            raise ValueError("grace is a number of seconds, not None")
        for each in clients:
            if not isinstance(each, Stoppable):
                raise TypeError(
                    "stop_on_signals() is given consumers, producers and admin clients, or none for all of them, not "
                    f"{each!r}"
                )
        self.received: signal.Signals | None = None
        self._chosen = tuple(clients)
        self._grace_ms = grace_ms
        self._signals = tuple(signals)
        self._clock = SystemClock()
        self._at = 0
        self._process = 0
        self._former: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
        # Bare locks: to release one is a single step, which is allowed in a signal handler.
        self._came = threading.Lock()
        self._left = threading.Lock()

    def stop(self, client: Stoppable) -> None:
        """Call `Consumer.stop`, or `Producer.stop`, with what is left of the grace period."""
        left = max(self._at + self._grace_ms - self._clock.now_ms(), 0)
        client.stop(grace=left / 1000)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "stop_on_signals() belongs in the main thread, the only one that may set signal handlers; "
                "elsewhere call consumer.stop() from a handler of your own"
            )
        if self._process:
            raise RuntimeError("stop_on_signals() is entered once; call it again for another `with`")
        self._process = os.getpid()
        self._came.acquire()
        self._left.acquire()
        OwnThread(target=self._watch, name="kadence-stop").start()
        try:
            for number in self._signals:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._former[number] = signal.getsignal(number)
                    signal.signal(number, self._handle)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._put_back()
        if self.stop in ENDING:
            ENDING.remove(self.stop)
        for lock in (self._left, self._came):
            with contextlib.suppress(RuntimeError):
                lock.release()

    def _put_back(self) -> None:
        """The handlers that stood before, where nobody has set another since."""
        for number, former in self._former.items():
            if signal.getsignal(number) == self._handle:
                # None: it was not set from Python, which cannot set it again.
                signal.signal(number, signal.SIG_DFL if former is None else former)

    # ------------------------------------------------------------ in the signal handler

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.now_ms()
        if self.received is not None and now - self._at < _SAME_MS:
            return
        if self.received is not None or os.getpid() != self._process:
            # The second one; or it is for a forked child, which has no part in the parent's clients.
            self._put_back()
            signal.raise_signal(number)
            return
        self._at = now
        self.received = signal.Signals(number)
        if not self._chosen:
            ENDING.append(self.stop)
        for client in self._mine():
            self.stop(client)
        with contextlib.suppress(RuntimeError):
            self._came.release()

    def _mine(self) -> tuple[Stoppable, ...]:
        return self._chosen or all_of(lambda: OPEN)

    # ------------------------------------------------------------ on its own thread

    def _watch(self) -> None:
        self._came.acquire()
        if self.received is None:
            return
        name, grace_ms = self.received.name, self._grace_ms
        log.info(
            "%s: consumers stop after the current record, and all clients close within %g s",
            name,
            grace_ms / 1000,
        )
        if self._is_left_within(int(grace_ms * _TOLD_AT)):
            return
        for client in self._mine():
            if self._is_left_within(0):
                return
            if (unfinished := client._unfinished()) is not None:
                log.warning(
                    "%r is not closed %.1f s after %s; in another %.1f s the grace period ends. %s",
                    client,
                    (self._clock.now_ms() - self._at) / 1000,
                    name,
                    max(self._at + grace_ms - self._clock.now_ms(), 0) / 1000,
                    Lines(unfinished),
                )
        if self._is_left_within(max(grace_ms - RESERVE_MS, int(grace_ms * _TOLD_AT))):
            return
        for client in self._mine():
            if self._is_left_within(0):
                return
            if client._unfinished() is not None:
                log.warning(
                    "%r %s, without waiting for the application any longer", client, client._end_means
                )
                client._end_unfinished()

    def _is_left_within(self, ms: int) -> bool:
        """Wait until so long after the signal. Returns whether the ``with`` has ended before."""
        left = self._at + ms - self._clock.now_ms()
        if not self._left.acquire(timeout=min(max(left, 0) / 1000, threading.TIMEOUT_MAX)):
            return False
        self._left.release()
        return True
