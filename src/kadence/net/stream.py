"""A connected byte stream, plain or TLS, compiled or not: one interface, told apart only where it is made.

`read_now` and `write_now` move what can be moved at once. `fill` reads a long frame; the compiled one stays
outside the interpreter until the frame is whole (`_drain_c` says why), the Python one is a plain read of all
that is left. All return None for "not now" and 0 for the end of the stream.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.net import openssl

if TYPE_CHECKING:
    import socket

__all__ = ["COMPILED", "Stream", "stream_of"]

_drain: Any = None
if os.environ.get("KADENCE_EXTENSION", "auto") != "off":
    try:
        from kadence.net import _drain_c as _drain
    except ImportError:
        if os.environ.get("KADENCE_EXTENSION") == "require":
            raise

COMPILED: Final = _drain is not None
"""Whether frames are drained without the interpreter. KADENCE_EXTENSION=off says no, =require insists."""

_FUNCTIONS = openssl.functions() if COMPILED else None
if _FUNCTIONS is not None:
    _drain.bind_openssl(*_FUNCTIONS)

# How long a frame's next bytes are waited for outside the interpreter, and a whole stretch: long enough that a
# frame on a fast network costs one stretch, short enough for the other connections of the thread.
_PATIENCE_MS: Final = 4
_STRETCH_MS: Final = 40


class Stream(Protocol):
    """What `Inbox` and `Channel` read and write."""

    def read_now(self, into: memoryview) -> int | None:
        """Read what is there. Raises OSError (ssl.SSLError included)."""
        ...

    def fill(self, into: memoryview, wake_fd: int) -> int | None:
        """Read as much of ``into`` as is worth waiting for; never waits once ``wake_fd`` is readable."""
        ...

    def write_now(self, data: memoryview) -> int | None:
        """Write what fits."""
        ...


def stream_of(sock: socket.socket) -> Stream:
    """The best stream for a connected, non-blocking socket (TLS: after the handshake)."""
    if isinstance(sock, ssl.SSLSocket):
        pointer = openssl.pointer(sock) if _FUNCTIONS is not None else 0
        return _CompiledStream(sock, pointer, _TlsStream(sock)) if pointer else _TlsStream(sock)
    return _CompiledStream(sock, 0, _PlainStream(sock)) if COMPILED else _PlainStream(sock)


class _PlainStream:
    """TCP by the socket module."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read_now(self, into: memoryview) -> int | None:
        try:
            return self._sock.recv_into(into)
        except BlockingIOError:
            return None

    def fill(self, into: memoryview, wake_fd: int) -> int | None:
        return self.read_now(into)

    def write_now(self, data: memoryview) -> int | None:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return None


class _TlsStream:
    """TLS by the ssl module: one record per call, so `fill` goes on while there are any."""

    __slots__ = ("_sock",)

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def read_now(self, into: memoryview) -> int | None:
        try:
            return self._sock.recv_into(into)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def fill(self, into: memoryview, wake_fd: int) -> int | None:
        done = 0
        while done < len(into):
            count = self.read_now(into[done:])
            if not count:
                return done or count
            done += count
        return done

    def write_now(self, data: memoryview) -> int | None:
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None


class _CompiledStream:
    """Either, by `_drain_c`; what it cannot name is asked of the Python stream of the same socket."""

    __slots__ = ("_fd", "_python", "_ssl")

    def __init__(self, sock: socket.socket, ssl_pointer: int, python: _PlainStream | _TlsStream) -> None:
        self._fd = sock.fileno()
        self._ssl = ssl_pointer
        self._python = python

    def read_now(self, into: memoryview) -> int | None:
        count: int = _drain.read_now(self._fd, self._ssl, into)
        if count >= 0:
            return count
        return None if count == _drain.NOT_NOW else self._python.read_now(into)

    def fill(self, into: memoryview, wake_fd: int) -> int | None:
        count: int = _drain.fill(self._fd, self._ssl, wake_fd, into, _PATIENCE_MS, _STRETCH_MS)
        if count >= 0:
            return count
        return None if count == _drain.NOT_NOW else self._python.read_now(into)

    def write_now(self, data: memoryview) -> int | None:
        count: int = _drain.write_now(self._fd, self._ssl, data)
        if count >= 0:
            return count
        return None if count == _drain.NOT_NOW else self._python.write_now(data)
