"""Transports bytes over a connected socket: as they are, or through TLS. Never blocks.

TLS runs on memory buffers (`ssl.MemoryBIO`). Each read decrypts all bytes that have come, so none of them is
in a buffer where the selector cannot see it.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from itertools import islice
from typing import Final, Protocol

from kadence_broker.server.frames import READ_BYTES, Frames

__all__ = ["PlainTransport", "TlsTransport", "Transport", "TransportError"]

_SCATTER: Final = 256
"""Buffers per `sendmsg`; the system's own limit is 1024."""
_ENCRYPT_BYTES: Final = 256 * 1024
"""The most bytes that are encrypted ahead of the socket."""


class TransportError(Exception):
    """The TLS handshake failed, or what came is not TLS; the connection must end."""


class Transport(Protocol):
    """Bytes of one connection."""

    principal: str | None
    """The client's name in its certificate, in Kafka's form; None: it gave none."""

    @property
    def has_output(self) -> bool:
        """Bytes wait for the socket, beside those of `write`."""
        ...

    def read(self, frames: Frames, appetite: int) -> bool:
        """Read once from the socket, into ``frames``, which have this appetite; False: the client has closed its side.

        Raises:
            BlockingIOError: nothing is there.
            OSError, FrameError, TransportError: the connection must end.
        """
        ...

    def write(self, out: deque[memoryview]) -> int:
        """Send what the socket takes, off the front of ``out``; how many bytes of ``out`` are gone.

        Raises:
            OSError: the connection must end.
        """
        ...


def _consume(out: deque[memoryview], count: int) -> None:
    while count:
        first = out[0]
        if count < len(first):
            out[0] = first[count:]
            return
        count -= len(first)
        out.popleft()


class PlainTransport:
    """Bytes as they are: long frames straight into their memory, answers straight from the log's."""

    __slots__ = ("_sock", "principal")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.principal: str | None = None

    @property
    def has_output(self) -> bool:
        return False

    def read(self, frames: Frames, appetite: int) -> bool:
        room = frames.room()
        if room is not None:
            count = self._sock.recv_into(room)
            room.release()  # an array with views cannot grow
            frames.filled(count)
            return count > 0
        data = self._sock.recv(min(appetite, READ_BYTES))
        frames.feed(data)
        return len(data) > 0

    def write(self, out: deque[memoryview]) -> int:
        total = 0
        try:
            while out:
                # Most answers are one buffer, for which this costs less. Windows has nothing else.
                is_one = len(out) == 1 or not hasattr(self._sock, "sendmsg")
                sent = self._sock.send(out[0]) if is_one else self._sock.sendmsg(islice(out, _SCATTER))
                _consume(out, sent)
                total += sent
        except BlockingIOError:
            pass
        return total


class TlsTransport:
    """TLS on memory buffers."""

    __slots__ = ("_encrypted", "_incoming", "_is_shaken", "_outgoing", "_sock", "_tls", "principal")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._encrypted: deque[memoryview] = deque()
        self._is_shaken = False
        self.principal: str | None = None

    @property
    def has_output(self) -> bool:
        return bool(self._encrypted) or self._outgoing.pending > 0

    def read(self, frames: Frames, appetite: int) -> bool:
        # Not as little as the frames have appetite for: a record of TLS can only be decrypted whole.
        data = self._sock.recv(READ_BYTES)
        if not data:
            return False
        self._incoming.write(data)
        try:
            return self._decrypt(frames)
        except ssl.SSLError as error:
            # Send the alert, which names the error.
            self._push()
            raise TransportError(f"TLS with the client failed: {error.reason or error}") from error
        finally:
            del data

    def _decrypt(self, frames: Frames) -> bool:
        try:
            if not self._is_shaken:
                self._tls.do_handshake()
                self._is_shaken = True
                self.principal = _principal(self._tls.getpeercert())
            while True:
                data = self._tls.read(READ_BYTES)
                if not data:
                    return False
                frames.feed(data)
        except ssl.SSLWantReadError:
            self._push()
            return True
        except ssl.SSLZeroReturnError:
            return False

    def write(self, out: deque[memoryview]) -> int:
        taken = 0
        self._push()
        while out and self._is_shaken and not self._encrypted:
            room = _ENCRYPT_BYTES
            while out and room > 0:
                count = self._tls.write(out[0][:room])
                _consume(out, count)
                room -= count
                taken += count
            self._push()
        return taken

    def _push(self) -> None:
        """Give the socket what is encrypted, as far as it takes it."""
        if self._outgoing.pending:
            self._encrypted.append(memoryview(self._outgoing.read()))
        try:
            while self._encrypted:
                sent = self._sock.send(self._encrypted[0])
                _consume(self._encrypted, sent)
        except BlockingIOError:
            pass


_SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The names of attributes in RFC 2253; others have OpenSSL's names."""


def _principal(certificate: object) -> str | None:
    """Kafka's default principal of a certificate: its subject after RFC 2253, the last part first."""
    if not isinstance(certificate, dict) or not certificate.get("subject"):
        return None
    parts = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(certificate["subject"])
    ]
    return "User:" + ",".join(parts)


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(escaped) > 1 else escaped
