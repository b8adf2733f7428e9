"""From a host name to a stream that can carry frames: look-up, TCP, TLS, one address after the other.

Every resolved address is tried before the host is given up, each with an equal share of the remaining time, so that an
address family that does not work cannot use up all of it. The error lists each attempt: address, step, cause.

Name look-ups, which block, have a thread of their own (`Resolver`). It exists only once a name that is no numeric
address has to be looked up. It is a daemon and is never waited for: getaddrinfo cannot be interrupted, and a resolver
that hangs must not hang `close`.
"""

from __future__ import annotations

import errno
import os
import queue
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, cast

from kadence.errors import AuthenticationError, ConnectError
from kadence.loaded import attribute_if_loaded
from kadence.logs import OwnThread

if TYPE_CHECKING:
    import ssl

    from kadence.net.config import ConnectionConfig
    from kadence.net.sockets import Sockets

__all__ = ["Address", "Dial", "Found", "Resolver", "Step", "interleave", "numeric", "tell"]


class Address(NamedTuple):
    """One resolved address: the arguments for a socket, and a text for messages."""

    family: int
    sockaddr: Any

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if self.family == socket.AF_INET6 else f"{host}:{port}"


class Found(NamedTuple):
    """The end of a look-up: addresses, or the error."""

    host: str
    port: int
    addresses: tuple[Address, ...]
    error: OSError | None


Lookup = Callable[..., Iterable[Any]]


def numeric(host: str, port: int) -> tuple[Address, ...]:
    """The addresses of a numeric address; empty for a name."""
    try:
        # As bytes: for a str Python loads its tables of international names, which no numeric address needs.
        name = host.encode("ascii")
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return ()
    return interleave(found)


class Resolver:
    """Look-ups by (host, port). Network thread, but for the worker inside.

    Args:
        notify: called on the worker when a result lies ready; ends the network thread's wait.
        lookup: `socket.getaddrinfo`, or a test's.
    """

    def __init__(self, notify: Callable[[], None], lookup: Lookup = socket.getaddrinfo) -> None:
        self._notify = notify
        self._lookup = lookup
        self._found: deque[Found] = deque()
        self._asked: queue.SimpleQueue[tuple[str, int] | None] = queue.SimpleQueue()
        self._pending: set[tuple[str, int]] = set()
        self._thread: threading.Thread | None = None

    def ask(self, host: str, port: int) -> Found | None:
        """The answer at once for a numeric address; else it comes from `results` later."""
        if addresses := numeric(host, port):
            return Found(host, port, addresses, None)
        if (host, port) not in self._pending:
            self._pending.add((host, port))
            if self._thread is None:
                self._thread = OwnThread(target=self._work, name="kadence-dns")
                self._thread.start()
            self._asked.put((host, port))
        return None

    def results(self) -> list[Found]:
        """Look-ups that ended since the last call."""
        if not self._found:
            return []
        found = [self._found.popleft() for _ in range(len(self._found))]
        self._pending.difference_update((item.host, item.port) for item in found)
        return found

    def close(self) -> None:
        """Let the worker end after its current work."""
        self._asked.put(None)

    def _work(self) -> None:
        while (name := self._asked.get()) is not None:
            host, port = name
            try:
                found = Found(host, port, interleave(self._lookup(host, port, type=socket.SOCK_STREAM)), None)
            except OSError as error:
                found = Found(host, port, (), error)
            except ValueError as error:
                # Python raises this for labels that are empty or too long, or contain a NUL.
                found = Found(host, port, (), OSError(f"not a host name: {error}"))
            self._found.append(found)
            self._notify()


def interleave(infos: Iterable[Any]) -> tuple[Address, ...]:
    """Distinct addresses, IPv6 and IPv4 in turn, beginning with the system's first choice.

    When one family does not work, the second attempt should use the other (RFC 8305, section 4).
    """
    families: dict[int, list[Address]] = {}
    for family, _, _, _, sockaddr in infos:
        address = Address(family, sockaddr)
        same = families.setdefault(family, [])
        if address not in same:
            same.append(address)
    ordered: list[Address] = []
    while any(families.values()):
        ordered += [same.pop(0) for same in families.values() if same]
    return tuple(ordered)


_IN_PROGRESS: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK)


class Step(Enum):
    """The state of an attempt; the value is its name in messages."""

    LOOKUP = "name look-up"
    TCP = "TCP connect"
    TLS = "TLS handshake"
    VERSIONS = "ApiVersions"
    SASL = "SASL authentication"


class Dial:
    """The attempts to reach one host. Non-blocking: the owner waits for `interest` on `sock` and calls `advance`.

    Args:
        name: the broker's name in messages. until: when all attempts together must have ended (ms).
        sockets: makes the socket of each attempt.
    """

    __slots__ = (
        "_addresses",
        "_config",
        "_host",
        "_name",
        "_sockets",
        "_trail",
        "_until",
        "address",
        "attempt_until",
        "sock",
        "step",
    )

    def __init__(self, config: ConnectionConfig, host: str, name: str, until: int, sockets: Sockets) -> None:
        self._config = config
        self._sockets = sockets
        self._host = host
        self._name = name
        self._until = until
        self._addresses: list[Address] = []
        self._trail: list[str] = []
        self.step = Step.LOOKUP
        self.sock: socket.socket | None = None
        self.address: Address | None = None
        self.attempt_until = until

    @property
    def interest(self) -> int:
        """The events to wait for on `sock`."""
        return selectors.EVENT_WRITE if self.step is Step.TCP else selectors.EVENT_READ

    def found(self, found: Found, now: int) -> None:
        """The look-up ended; start with the first address.

        Raises:
            ConnectError: the name has no address, or no address takes a connection.
        """
        if found.error is not None or not found.addresses:
            reason = found.error.strerror or str(found.error) if found.error is not None else "no address"
            self._trail.append(f"{Step.LOOKUP.value}: {reason}")
            raise self._gave_up()
        self._addresses = list(found.addresses)
        self._next_address(now)

    def advance(self, now: int) -> bool:
        """Continue after `sock` became ready. True when the stream is open, including TLS.

        Raises:
            ConnectError: no address is left. AuthenticationError: a certificate was not accepted.
        """
        sock = self.sock
        if sock is None:
            return False
        try:
            if self.step is Step.TCP:
                if not self._sockets.has_decided(sock):
                    return False
                if (number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) != 0:
                    raise OSError(number, os.strerror(number))
                self._connected(sock)
            if self.step is Step.TLS:
                from kadence.net.secured import has_ended

                if not has_ended(cast("ssl.SSLSocket", self.sock)):
                    return False
                self.step = Step.VERSIONS
        except (OSError, ValueError) as error:
            # ValueError: a host whose name cannot be one in TLS.
            self._check_certificate(error)
            self.check_refusal(error)
            self.failed(tell(error), now)
            return False
        return True

    def fileno(self) -> int:
        """The descriptor of the current attempt."""
        assert self.sock is not None
        return self.sock.fileno()

    def failed(self, cause: str, now: int) -> None:
        """The current attempt failed; continue with the next address.

        Raises:
            ConnectError: there is none left.
        """
        self._note(cause)
        self._next_address(now)

    def check_refusal(self, error: Exception) -> None:
        """Raise if it means that the broker did not accept us; with TLS 1.3 that comes after our handshake has ended.

        Raises:
            AuthenticationError: it does.
        """
        if not _is_of_tls(error):
            return
        from kadence.net.secured import is_refusal

        if is_refusal(error):
            self.close()
            raise AuthenticationError(
                f"{self._name} at {self.address} refused this client's certificate: {tell(error)}. "
                "Set the right one in ssl.certificate.location and ssl.key.location"
            ) from error

    def _check_certificate(self, error: Exception) -> None:
        """Raise `AuthenticationError` if it means that we did not accept the broker's certificate."""
        if not _is_of_tls(error):
            return
        import ssl

        from kadence.net.secured import advice

        if isinstance(error, ssl.SSLCertVerificationError):
            self.close()
            raise AuthenticationError(
                f"{self._name}: the certificate shown at {self.address} was not accepted: {advice(error)}"
            ) from error

    def close(self) -> None:
        """Close what is open."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def _note(self, cause: str) -> None:
        """The broker's name usually contains the address already, and a failed TCP connection needs no explanation."""
        step = "" if self.step is Step.TCP else self.step.value
        address = str(self.address) if self.address is not None else ""
        where = "" if address in self._name else f"to {address}" if step else address
        told = " ".join(filter(None, (step, where)))
        self._trail.append(f"{told}: {cause}" if told else cause)

    def _next_address(self, now: int) -> None:
        """Start a TCP connection to the next address that accepts one."""
        while True:
            self.close()
            if not self._addresses or now >= self._until:
                raise self._gave_up()
            self.attempt_until = now + max(1, (self._until - now) // len(self._addresses))
            self.address = self._addresses.pop(0)
            self.step = Step.TCP
            try:
                self.sock = self._start(self.address)
            except OSError as error:
                self._note(tell(error))
                continue
            return

    def _start(self, address: Address) -> socket.socket:
        sock = self._sockets.open(address.family)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in (
                (socket.SO_SNDBUF, self._config.send_buffer_bytes),
                (socket.SO_RCVBUF, self._config.receive_buffer_bytes),
            ):
                # Setting a size, however large, switches the system's own tuning off.
                if size >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            number = sock.connect_ex(address.sockaddr)
            if number not in (0, *_IN_PROGRESS):
                raise OSError(number, os.strerror(number))
        except OSError:
            sock.close()
            raise
        return sock

    def _connected(self, sock: socket.socket) -> None:
        context = self._config.ssl_context
        if context is None:
            self.step = Step.VERSIONS
            return
        from kadence.net import openssl

        self.step = Step.TLS
        secured = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=self._host)
        self.sock = secured
        openssl.read_ahead(openssl.pointer(secured))

    def _gave_up(self) -> ConnectError:
        self.close()
        tried = "; ".join(self._trail) or "no address could be tried in time"
        return ConnectError(f"cannot connect to {self._name}: {tried}")


def _is_of_tls(error: Exception) -> TypeGuard[ssl.SSLError]:
    # Without TLS nobody has loaded `ssl`, and it raises nothing.
    of_tls = attribute_if_loaded("ssl", "SSLError")
    return of_tls is not None and isinstance(error, of_tls)


def tell(error: Exception) -> str:
    """A short cause, with its usual meaning."""
    if _is_of_tls(error):
        from kadence.net.secured import words

        return words(error)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
