"""Listening sockets: bound with errors that say what to do, and quiet while the process is out of descriptors."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import selectors
import socket
from collections.abc import Callable
from typing import Final

from kadence.clock import add_ms
from kadence.errors import ConfigError, ConnectError
from kadence.logs import logger
from kadence_broker.server.loop import Loop

__all__ = ["Listener", "address_text", "begin_to_listen", "bind", "listen_all", "reachable"]

_log = logger("kadence.broker")

_BACKLOG: Final = 256
_ACCEPTS: Final = 64
"""The number of connections that are accepted in one turn of the loop: a crowd need not wait a turn for each, and the
connected clients wait for this many at most."""
_BREATH_MS: Final = 200
"""The wait of a listener when the process can open nothing more."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """One node's listening socket on the loop.

    Args:
        on_accept: takes each connected socket (non-blocking) and its peer's address as text.
    """

    __slots__ = (
        "_has_complained",
        "_is_closed",
        "_is_frozen",
        "_is_full",
        "_is_resting",
        "_is_watched",
        "_loop",
        "_on_accept",
        "_sock",
    )

    def __init__(
        self, loop: Loop, sock: socket.socket, on_accept: Callable[[socket.socket, str], None]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._on_accept = on_accept
        self._is_watched = self._is_closed = self._is_frozen = self._is_full = self._is_resting = False
        self._has_complained = False
        self._watch()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._sock.getsockname()[1])

    def freeze(self, *, frozen: bool) -> None:
        """Accept nothing, while clients that connect wait in the system's queue; or go on (a fault)."""
        self._is_frozen = frozen
        self._watch()

    def fill(self, *, full: bool) -> None:
        """Accept nothing while the node has as many connections as it may have."""
        if full != self._is_full:
            self._is_full = full
            self._watch()

    def close(self) -> None:
        """Stop listening; who connects is refused by the system."""
        self._is_closed = True
        self._watch()
        self._sock.close()

    def _rest(self, *, resting: bool) -> None:
        self._is_resting = resting
        self._watch()

    def _watch(self) -> None:
        wanted = not (self._is_closed or self._is_frozen or self._is_full or self._is_resting)
        if wanted and not self._is_watched:
            self._loop.selector.register(self._sock, selectors.EVENT_READ, self._accept)
        elif self._is_watched and not wanted:
            self._loop.selector.unregister(self._sock)
        self._is_watched = wanted

    def _accept(self, _events: int) -> None:
        for _ in range(_ACCEPTS):
            # The callback of an accepted connection may stop the listener.
            if not self._is_watched or not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Accept a connection; return whether another may wait."""
        try:
            sock, address = self._sock.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            is_exhausted = error.errno in _EXHAUSTED
            if is_exhausted:
                # The client stays in the queue, so the socket would be ready again at once and for ever.
                self._rest(resting=True)
                self._loop.at(add_ms(self._loop.turn_at, _BREATH_MS), lambda: self._rest(resting=False))
            if not self._has_complained:
                _log.warning("could not accept a connection, and may not accept the next ones: %s", error)
                self._has_complained = True
            return not is_exhausted
        self._has_complained = False
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # the client may be gone again
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._on_accept(sock, address_text(address[0], address[1]))
        return True


def address_text(host: str, port: int) -> str:
    """``host:port``, as `bootstrap.servers` takes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """The host that clients on this machine can use, where ``host`` means every interface."""
    if not host:
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def listen_all(host: str, port: int, nodes: int) -> list[socket.socket]:
    """A listening socket for each node: ports from ``port`` on, or any free ones for 0.

    Raises:
        ConfigError: a port that is none. ConnectError: an address that cannot be listened on.
    """
    with contextlib.ExitStack() as opened:
        listeners = [
            opened.enter_context(listen(host, port + number if port else 0)) for number in range(nodes)
        ]
        opened.pop_all()
    return listeners


def listen(host: str, port: int) -> socket.socket:
    """One listening socket, non-blocking; raises as `listen_all`."""
    bound = bind(host, port)
    begin_to_listen(bound)
    return bound


def begin_to_listen(bound: socket.socket) -> None:
    """Accept connections from now on. If this raises `ConnectError`, the socket is closed."""
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        host, port = bound.getsockname()[:2]
        bound.close()
        raise ConnectError(_refusal(host, port, error)) from error


def bind(host: str, port: int) -> socket.socket:
    """A socket that has its port and refuses connections, non-blocking; raises as `listen_all`."""
    if not 0 <= port <= 65_535:
        # The system would take it modulo 65536 without a word.
        raise ConfigError(f"a port is 0 to 65535 (0: any free one), not {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectError(_refusal(host, port, error)) from error
    try:
        if os.name == "posix":
            # Without it a restart within a minute finds the port held by connections that are over. On Windows it would
            # let another process take the port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConnectError(_refusal(host, port, error)) from error
    return bound


def _refusal(host: str, port: int, error: OSError | UnicodeError) -> str:
    """The system's error for an address, with advice."""
    if isinstance(error, socket.gaierror | UnicodeError):
        name, colon, number = host.rpartition(":")
        if colon and ":" not in name and number.isdecimal():
            return (
                f"cannot listen on {host!r}: give the port apart from the host: host {name!r}, port {number}"
            )
        return f"cannot listen on {host!r}: no address is known for this name"
    where = f"cannot listen on {address_text(host, port)}: "
    if error.errno == errno.EADDRINUSE:
        return where + "the port is in use by another process; choose another port, or 0 for any free one"
    if error.errno == errno.EADDRNOTAVAIL:
        return where + (
            "this machine does not have the address; 127.0.0.1 is for clients on this machine, 0.0.0.0 listens on "
            "all addresses that it has"
        )
    if error.errno == errno.EACCES:
        return where + "this user may not open the port; choose one above 1023, or 0 for any free one"
    return where + (error.strerror or str(error))
