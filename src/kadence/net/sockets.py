"""Makes sockets, the system's or those of a simulated network (`kadence.testing.simulation`), and their byte streams.

A stream is plain or TLS, compiled or not: one interface, told apart only where it is made. `read_now` and `write_now`
move what can be moved at once and return None for "not now"; reading returns 0 at the end of the stream. What comes in
is read ahead by the stream's `intake`, for the poller and `Inbox`. A compiled plain stream takes long frames whole, and
the poller writes them while it waits (`outbox.h`).
"""

from __future__ import annotations

import select
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.net import drain, openssl
from kadence.net.intake import Intake, PlainIntake
from kadence.net.poller import Poller, new_poller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kadence.clock import Clock
    from kadence.net.wakeup import Wakeup

__all__ = ["SYSTEM", "PlainStream", "Sockets", "Stream", "stream_of"]


class Sockets(Protocol):
    """What a `NetworkClient` needs of a network."""

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
        """What waits for the sockets, and what ends its waits."""
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
"""What every client uses outside a simulation."""


class Stream(Protocol):
    """What `Inbox` and `Channel` read and write."""

    intake: Intake
    """What came in."""
    session: Any
    """The compiled half's view of the connection; None where Python's is the only one."""

    def read_now(self, into: memoryview) -> int | None:
        """Read what is there, past the intake. Raises OSError (ssl.SSLError included)."""
        ...

    def write_now(self, pieces: Sequence[memoryview]) -> int | None:
        """Write what fits of at least one piece, or take all to be written by the poller's next waits."""
        ...

    @property
    def has_unwritten(self) -> bool:
        """Whether something was taken that is not written yet."""
        ...


def stream_of(sock: socket.socket) -> Stream:
    """The best stream for a connected, non-blocking socket (TLS: after the handshake)."""
    if isinstance(sock, ssl.SSLSocket):
        pointer = openssl.pointer(sock) if drain.TLS else 0
        return _CompiledStream(sock, pointer, _TlsStream(sock)) if pointer else _TlsStream(sock)
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


class _TlsStream:
    """TLS by the ssl module."""

    __slots__ = ("_sock", "intake", "session")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.session = None
        self.intake: Intake = PlainIntake(self.read_now)

    def read_now(self, into: memoryview) -> int | None:
        try:
            return self._sock.recv_into(into)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    has_unwritten = False

    def write_now(self, pieces: Sequence[memoryview]) -> int | None:
        try:
            return self._sock.send(pieces[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None


class _CompiledStream:
    """Either, by `_drain_c`; what it cannot name is asked of the Python stream of the same socket."""

    __slots__ = ("_python", "intake", "session")

    def __init__(self, sock: socket.socket, ssl_pointer: int, python: PlainStream | _TlsStream) -> None:
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
            # Not now, or not before what the native thread has sent is counted: `Channel` comes again and does so
            # first.
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
