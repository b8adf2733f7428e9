"""Ending in order when a signal comes: `stop_on_signals`, for all clients, for threads and asyncio.

Python runs a signal's handler on the main thread, between two steps of whatever it does there. So the handler only sets
flags: it starts no thread, waits for no lock, logs nothing. A thread that was started before does the rest. That is
also why this uses no ``loop.add_signal_handler``: a loop that user code blocks would not run that.

While the main thread is in a C function that does not return (a database driver waits for its query), Python runs no
handler. So on Linux the thread also reads the number that Python writes to its wakeup fd as soon as a signal comes.
The thread or the handler notes the signal, whichever is first; both stop the clients, which may be done twice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Collection
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, Self

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


_SAYS_WHO: Final = hasattr(socket, "SO_PASSCRED")
"""Whether the system (Linux) says which process wrote a byte to a socket."""

_CREDENTIALS: Final = struct.Struct("3i")
"""What Linux says of the writer of a byte: its process, user and group (unix(7), struct ucred)."""

_LOOK: Final = 0
"""No signal's number: the thread looks what has changed."""


class _First(NamedTuple):
    """The first signal, and when it came (ms)."""

    number: signal.Signals
    at: int


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

    On Linux this also holds while the main thread is in a C function that does not return, so that Python runs no
    signal handler; but not if something else, such as ``loop.add_signal_handler`` or uvloop, uses Python's wakeup fd
    (``signal.set_wakeup_fd``).

    Another signal, a second or more after the first, has its usual effect when Python runs signal handlers: SIGTERM
    ends the process at once, SIGINT raises KeyboardInterrupt. The end of ``with`` restores the signal handlers that
    were set before. A signal that the process ignores stays ignored.

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
    """The context manager that `stop_on_signals` returns."""

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
        self._chosen = tuple(clients)
        self._grace_ms = grace_ms
        self._signals = tuple(signals)
        self._clock = SystemClock()
        self._process = 0
        # At most one, by setdefault: two threads may note it at once.
        self._first: dict[None, _First] = {}
        self._handled_at: int | None = None
        self._has_wakeup_fd = False
        self._former: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
        self._left = threading.Lock()
        self._acting = threading.Lock()

    @property
    def received(self) -> signal.Signals | None:
        """The first signal that came; None until then.

        ``received.name`` is its name; formatted by itself it is a number, as Python does it. To tell the parent process
        which signal ended the program, exit with ``128 + received``.
        """
        first = self._first.get(None)
        return None if first is None else first.number

    def stop(self, client: Stoppable) -> None:
        """Call `Consumer.stop`, or `Producer.stop`, with what is left of the grace period."""
        client.stop(grace=self._ms_until(self._grace_ms) / 1000)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "stop_on_signals() belongs in the main thread, the only one that may set signal handlers; "
                "elsewhere call consumer.stop() from a handler of your own"
            )
        if self._process:
            raise RuntimeError("stop_on_signals() is entered once; call it again for another `with`")
        self._process = os.getpid()
        self._left.acquire()
        self._reads, self._writes = socket.socketpair()
        self._writes.setblocking(False)
        OwnThread(target=self._watch, name="kadence-stop").start()
        try:
            for number in self._signals:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._former[number] = signal.getsignal(number)
                    signal.signal(number, self._handle)
            self._set_wakeup_fd()
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
        if os.getpid() == self._process:
            # The thread has stopped the clients by then, or stops none: others may be made from now on.
            with self._acting:
                self._wake()
                self._left.release()
        if self.stop in ENDING:
            ENDING.remove(self.stop)
        self._writes.close()

    def _put_back(self) -> None:
        """The handlers that were set before, where nobody has set another since."""
        for number, former in self._former.items():
            if signal.getsignal(number) == self._handle:
                # None: it was not set from Python, which cannot set it again.
                signal.signal(number, signal.SIG_DFL if former is None else former)
        if self._has_wakeup_fd:
            self._has_wakeup_fd = False
            if (fd := signal.set_wakeup_fd(-1)) not in (-1, self._writes.fileno()):
                signal.set_wakeup_fd(fd)

    def _set_wakeup_fd(self) -> None:
        """Have Python write the number of each signal to us, if nobody else has it do so (an event loop may).

        A forked child has the fd, too. So only where the system says which process wrote a byte.
        """
        if not _SAYS_WHO:
            return
        self._reads.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        former = signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
        if former == -1:
            self._has_wakeup_fd = True
        else:
            signal.set_wakeup_fd(former)

    # ------------------------------------------------------------ on the main thread, in the signal handler

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.now_ms()
        if os.getpid() == self._process:
            if self._handled_at is None:
                self._handled_at = now
                self._note(number)
                self._stop_all()
                self._wake()
                return
            if now - self._handled_at < _SAME_MS:
                return
        # The second one; or it is for a forked child, which has no part in the parent's clients.
        self._put_back()
        signal.raise_signal(number)

    # ------------------------------------------------------------ on both threads

    def _note(self, number: int) -> None:
        self._first.setdefault(None, _First(signal.Signals(number), self._clock.now_ms()))

    def _stop_all(self) -> None:
        if not self._chosen and self.stop not in ENDING:
            ENDING.append(self.stop)
        for client in self._mine():
            self.stop(client)

    def _mine(self) -> tuple[Stoppable, ...]:
        return self._chosen or all_of(lambda: OPEN)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._writes.send(bytes([_LOOK]))

    def _ms_until(self, ms: int) -> int:
        """The time that is left until so long after the signal."""
        return max(self._first[None].at + ms - self._clock.now_ms(), 0)

    # ------------------------------------------------------------ on its own thread

    def _watch(self) -> None:
        with self._reads:
            self._wait_for_signal()
            if self._first:
                self._see_it_through()
            # Until then, Python writes to the other end.
            self._left.acquire()

    def _see_it_through(self) -> None:
        """From the signal to the end of the grace period."""
        name, grace_ms = self._first[None].number.name, self._grace_ms
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
                    (self._clock.now_ms() - self._first[None].at) / 1000,
                    name,
                    self._ms_until(grace_ms) / 1000,
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

    def _wait_for_signal(self) -> None:
        """Until one is noted, or the ``with`` has ended."""
        while not self._first:
            number = self._next()
            with self._acting:
                if not self._left.locked():
                    return
                if number != _LOOK and signal.getsignal(number) == self._handle:
                    self._note(number)
                    self._stop_all()

    def _next(self) -> int:
        """The next number: of a signal that came to this process, or _LOOK."""
        if not _SAYS_WHO:
            return (self._reads.recv(1) or bytes([_LOOK]))[0]
        number, said, _, _ = self._reads.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        for _, kind, content in said:
            if kind == socket.SCM_CREDENTIALS and _CREDENTIALS.unpack(content)[0] == self._process and number:
                return number[0]
        return _LOOK

    def _is_left_within(self, ms: int) -> bool:
        """Wait until so long after the signal. Returns whether the ``with`` has ended before."""
        if not self._left.acquire(timeout=min(self._ms_until(ms) / 1000, threading.TIMEOUT_MAX)):
            return False
        self._left.release()
        return True
