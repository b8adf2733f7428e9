"""Creates sockets, the system's or those of a simulated network (`kadence_testing.simulation`), and their byte streams.

A stream is plain or TLS, compiled or, on Windows, not: all have one interface, and only their creation differs.
`read_now` and `write_now` move as many bytes as possible at once and return None for "not now"; reading returns 0 at
the end of the stream. The stream's `intake` reads incoming bytes ahead, for the poller and `Inbox`. A compiled plain
stream accepts long frames whole, and the poller writes them while it waits (`outbox.h`).

A poller waits for all sockets of a network thread, and reads from those that are readable, in one call. The compiled
one does so without the interpreter and takes it back only when Python has work: a frame is complete, a connection
ended, a socket can be written, another thread wakes this one (`_native/drain.pyx`, intake.h).
"""

from __future__ import annotations

import select
import selectors
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.loaded import attribute_if_loaded
from kadence.net import drain
from kadence.net.intake import Intake, PlainIntake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kadence.clock import Clock
    from kadence.connection.request import Arrivals
    from kadence.net.secured import TlsStream

__all__ = [
    "REPEATED",
    "SYSTEM",
    "ClearedWakeup",
    "PlainPoller",
    "PlainStream",
    "Poller",
    "Sockets",
    "Stream",
    "Wakeup",
    "new_poller",
    "stream_of",
]

_DRAIN: Final = 64


class Wakeup(Protocol):
    """How another thread ends the network thread's wait: `wake` from any thread, the rest on the network thread.

    The poller clears the wake-up when it has seen it. `_native.drain.Wake` is the compiled one.
    """

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        ...

    def wake(self) -> None:
        """End the present wait, or the next one. Any thread, and signal handlers. A flood costs one byte."""
        ...

    def close(self) -> None:
        """Close both ends."""
        ...


class ClearedWakeup(Wakeup, Protocol):
    """A wake-up that a poller in Python clears itself."""

    def clear(self) -> None:
        """Clear it: the wait has seen it."""
        ...


class PlainWakeup:
    """A socket pair and a flag.

    The flag makes a flood of wake-ups cost one byte, so the pair cannot fill up. A wake-up before the wait is not lost:
    the byte stays until the selector looks.
    """

    __slots__ = ("_reader", "_woken", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._woken = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        if self._woken:
            return
        self._woken = True
        try:
            self._writer.send(b"\0")
        except OSError:
            # Closed meanwhile: there is no wait left to end. The pair cannot be full: see the flag.
            return

    def clear(self) -> None:
        """Remove the byte. First the byte, then the flag: the other order can lose a wake-up that comes between."""
        try:
            self._reader.recv(_DRAIN)
        except BlockingIOError:
            pass
        self._woken = False

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


REPEATED: Final = 4
"""An event beside selectors' two: a fetch was repeated because its response had no data (`Repeat`)."""


DIRECT: Final = 8
"""An event beside these: threads of the application have written requests by themselves (`kadence.net.direct`)."""


class Poller(Protocol):
    """One network thread's sockets."""

    @property
    def arrivals(self) -> Arrivals | None:
        """Takes records that are passed on; None: none are."""
        ...

    def watch(self, fd: int, events: int, owner: Any, intake: Intake | None = None) -> None:
        """Report these events (`selectors`) with ``owner`` from now on.

        With an ``intake`` incoming bytes are read into it, and READ means that `Inbox` has work.
        """
        ...

    def unwatch(self, fd: int) -> None:
        """Forget it. Before it is closed."""
        ...

    def pass_on(self) -> Arrivals | None:
        """Pass on records from now on, where a fetch permits it. None: this poller cannot."""
        ...

    def wait(self, wait_ms: int | None) -> list[tuple[Any, int]]:
        """Wait at most this long (ms; None: for ever) for events: (owner, events) of each.

        The owner of a wake-up is None. A signal may end the wait with nothing.
        """
        ...

    def close(self) -> None:
        """Forget everything; the owners close their descriptors."""
        ...


def new_poller() -> tuple[Poller, Wakeup]:
    """The best available poller, and the object that ends its waits."""
    if drain.COMPILED:
        wake = drain.drain.Wake()
        return drain.drain.Poller(wake), wake
    plain = PlainWakeup()
    return PlainPoller(selectors.DefaultSelector(), plain), plain


class PlainPoller:
    """By a selector of the standard library's interface."""

    arrivals: Arrivals | None = None

    def __init__(self, selector: selectors.BaseSelector, wakeup: ClearedWakeup) -> None:
        self._wakeup = wakeup
        self._selector = selector
        self._selector.register(wakeup.fileno(), selectors.EVENT_READ, (None, None))
        # The intakes of sockets that have one.
        self._intakes: dict[int, tuple[Any, Any]] = {}

    def watch(self, fd: int, events: int, owner: Any, intake: Any = None) -> None:
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, (owner, intake))
        else:
            self._selector.register(fd, events, (owner, intake))
        self._intakes.pop(fd, None)
        if intake is not None:
            self._intakes[fd] = owner, intake

    def unwatch(self, fd: int) -> None:
        self._intakes.pop(fd, None)
        self._selector.unregister(fd)

    def pass_on(self) -> None:
        """It can read only with the interpreter."""

    def wait(self, wait_ms: int | None) -> list[tuple[Any, int]]:
        is_pending = any(intake.more or intake.is_due for _, intake in self._intakes.values())
        events: dict[int, int] = {}
        ready: list[tuple[Any, int]] = []
        for key, seen in self._selector.select(
            0 if is_pending else None if wait_ms is None else wait_ms / 1000
        ):
            owner, intake = key.data
            if owner is None:
                self._wakeup.clear()
            if intake is None:
                ready.append((owner, seen))
            else:
                events[key.fd] = seen
        for fd, (owner, intake) in self._intakes.items():
            seen = events.get(fd, 0)
            if seen & selectors.EVENT_READ or intake.more:
                intake.advance()
            seen &= selectors.EVENT_WRITE
            if intake.is_due:
                seen |= selectors.EVENT_READ
            if seen:
                ready.append((owner, seen))
        return ready

    def close(self) -> None:
        self._intakes.clear()
        self._selector.close()


class Sockets(Protocol):
    """The part of a network that a `NetworkClient` needs."""

    def open(self, family: int) -> socket.socket:
        """A new TCP socket, not yet connected."""
        ...

    def has_decided(self, sock: socket.socket) -> bool:
        """Whether the attempt to connect has ended, well or not. SO_ERROR is 0 before that and after a success."""
        ...

    def stream(self, sock: socket.socket) -> Stream:
        """The byte stream of a connected socket."""
        ...

    def poller(self) -> tuple[Poller, Wakeup]:
        """The poller of the sockets, and the object that ends its waits."""
        ...


class _SystemSockets:
    """TCP of this machine."""

    def open(self, family: int) -> socket.socket:
        return socket.socket(family, socket.SOCK_STREAM)

    def has_decided(self, sock: socket.socket) -> bool:
        if not hasattr(select, "poll"):  # Windows, where a refused connection is an exception of select
            _, writable, failed = select.select([], [sock], [sock], 0)
            return bool(writable or failed)
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        return bool(poller.poll(0))

    def stream(self, sock: socket.socket) -> Stream:
        return stream_of(sock)

    def poller(self) -> tuple[Poller, Wakeup]:
        return new_poller()


SYSTEM: Final[Sockets] = _SystemSockets()
"""The network of every client outside a simulation."""


class Stream(Protocol):
    """The byte stream of `Inbox` and `Channel`."""

    intake: Intake
    """The incoming bytes."""
    session: Any
    """The connection's object in `_native.drain`; None if there is only Python's."""

    def read_now(self, into: memoryview) -> int | None:
        """Read available bytes, without the intake. Raises OSError (ssl.SSLError included)."""
        ...

    def write_now(self, pieces: Sequence[memoryview]) -> int | None:
        """Write as much as fits, at least one piece, or accept all for the poller's next waits."""
        ...

    @property
    def has_unwritten(self) -> bool:
        """Whether accepted bytes are not written yet."""
        ...


def stream_of(sock: socket.socket) -> Stream:
    """The best stream for a connected, non-blocking socket (TLS: after the handshake)."""
    # A socket of TLS was made by `ssl`; clients without TLS do not load it.
    secured = attribute_if_loaded("ssl", "SSLSocket")
    if secured is not None and isinstance(sock, secured):
        from kadence.net import openssl
        from kadence.net.secured import TlsStream

        pointer = openssl.pointer(sock) if openssl.BOUND else 0
        return _CompiledStream(sock, pointer, TlsStream(sock)) if pointer else TlsStream(sock)
    return _CompiledStream(sock, 0, PlainStream(sock)) if drain.COMPILED else PlainStream(sock)


class PlainStream:
    """TCP by the socket module."""

    __slots__ = ("_sock", "intake", "session")

    def __init__(self, sock: socket.socket, clock: Clock | None = None) -> None:
        self._sock = sock
        self.session = None
        self.intake: Intake = PlainIntake(self.read_now, clock)

    def read_now(self, into: memoryview) -> int | None:
        try:
            return self._sock.recv_into(into)
        except BlockingIOError:
            return None

    has_unwritten = False

    def write_now(self, pieces: Sequence[memoryview]) -> int | None:
        try:
            return self._sock.send(pieces[0])
        except BlockingIOError:
            return None


class _CompiledStream:
    """Either, by `_native.drain`; for errors that it cannot name, the Python stream of the same socket is asked."""

    __slots__ = ("_python", "intake", "session")

    def __init__(self, sock: socket.socket, ssl_pointer: int, python: PlainStream | TlsStream) -> None:
        self.session = drain.drain.Session(sock.fileno(), ssl_pointer)
        self._python = python
        self.intake: Intake = drain.drain.Intake(self.session, self._read_by_python)

    def read_now(self, into: memoryview) -> int | None:
        count: int = self.session.read_now(into)
        if count >= 0:
            return count
        return self._read_by_python(into) if count == drain.drain.ASK else None

    def write_now(self, pieces: Sequence[memoryview]) -> int | None:
        taken: int = self.session.take(pieces) if len(pieces) > 1 else 0
        if taken:
            return taken
        result: int = self.session.write_now(pieces[0])
        if result >= 0:
            return result
        if result != drain.drain.ASK:
            # Not now, or not before the native thread's heartbeats are counted: `Channel` counts them and calls again.
            return None
        count = self._python.write_now(pieces)
        self.session.asked(True, count != len(pieces[0]))
        return count

    @property
    def has_unwritten(self) -> bool:
        return bool(self.session.has_unwritten())

    def _read_by_python(self, into: memoryview) -> int | None:
        count = self._python.read_now(into)
        self.session.asked()
        return count
