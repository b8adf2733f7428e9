"""All listeners and connections of one broker: their nodes, limits and ends.

Connections that do nothing for `connections.max.idle.ms` are closed: no whole request came, no byte of an answer was
taken, and the broker owes nothing. So a half-sent frame, a TLS handshake or a login that does not go on end too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kadence.clock import add_ms
from kadence.logs import logger
from kadence.wire.reader import Buffer
from kadence_broker.server.connection import Connection
from kadence_broker.server.listener import Listener
from kadence_broker.server.loop import Loop
from kadence_broker.server.memory import RequestMemory
from kadence_broker.server.quotas import ConnectionQuotas
from kadence_broker.server.security import Security
from kadence_broker.server.session import Session
from kadence_broker.server.transport import PlainTransport, TlsTransport

__all__ = ["Limits", "Server"]

_log = logger("kadence.broker")

_LOOKS: Final = 10
"""The number of checks for idle connections within the idle time: each lives at most a tenth longer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most resources of one client, and of all together.

    Attributes:
        max_frame_bytes, max_login_frame_bytes: of one request, after and before a login. max_idle_ms: 0 or below: for
            ever. max_reauth_ms: of a login; 0: for ever. max_request_bytes: of the requests of all connections; 0 or
            below: any number. max_connections, max_connections_per_ip: of one node, from all addresses and from one.
    """

    max_frame_bytes: int = 104_857_600
    max_login_frame_bytes: int = 524_288
    max_idle_ms: int = 600_000
    max_reauth_ms: int = 0
    max_request_bytes: int = -1
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1


class Server:
    """The sockets of one broker. The broker's thread owns it; `add` and `close` also run while that thread does not.

    Args:
        on_frame: takes one request of a connection.
    """

    def __init__(
        self,
        loop: Loop,
        security: Security,
        limits: Limits,
        on_frame: Callable[[Connection, Buffer], None],
    ) -> None:
        self._loop = loop
        self.security = security
        self._limits = limits
        self._on_frame = on_frame
        self._listeners: dict[int, Listener] = {}
        self._frozen: set[int] = set()
        self._memory = RequestMemory(limits.max_request_bytes, loop.soon)
        self._quotas = ConnectionQuotas(limits.max_connections, limits.max_connections_per_ip)
        self.connections: set[Connection] = set()
        if limits.max_idle_ms > 0:
            self._look_again()

    def __repr__(self) -> str:
        return f"<server of {len(self._listeners)} listeners, {len(self.connections)} connections>"

    def add(self, node_id: int, sock: socket.socket) -> None:
        """Serve a node on a listening socket."""
        self._listeners[node_id] = Listener(
            self._loop, sock, lambda accepted, peer: self._accept(node_id, accepted, peer)
        )
        if node_id in self._frozen:
            self._listeners[node_id].freeze(frozen=True)
        self._judge(node_id)

    def stop(self, node_id: int) -> None:
        """Close a node's listener and connections."""
        listener = self._listeners.pop(node_id, None)
        if listener is not None:
            listener.close()
        self.disconnect(node_id)

    def disconnect(self, node_id: int | None = None) -> None:
        """Close the connections to one node, or all; the listeners stay."""
        for connection in list(self.connections):
            if node_id in (None, connection.node_id):
                connection.close()

    def freeze(self, node_ids: Iterable[int], *, frozen: bool) -> None:
        """Let these nodes neither read, write nor accept, with their sockets open; or go on."""
        changed = set(node_ids)
        self._frozen = self._frozen | changed if frozen else self._frozen - changed
        for node_id in changed & self._listeners.keys():
            self._listeners[node_id].freeze(frozen=frozen)
        for connection in list(self.connections):
            if connection.node_id in changed:
                connection.freeze(frozen=frozen)

    def close(self) -> None:
        """Close every connection and listener."""
        for connection in list(self.connections):
            connection.close()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def _accept(self, node_id: int, sock: socket.socket, peer: str) -> None:
        if not self._quotas.add(node_id, peer.rpartition(":")[0]):
            _log.info(
                "connection of %s refused: its address has %d (max.connections.per.ip)",
                peer,
                self._limits.max_connections_per_ip,
            )
            sock.close()
            return
        tls = self.security.tls
        session = Session(self.security, self._limits.max_reauth_ms)
        connection = Connection(
            self._loop,
            sock,
            PlainTransport(sock) if tls is None else TlsTransport(sock, tls),
            session,
            peer,
            node_id,
            self._limits.max_frame_bytes if session.is_open else self._limits.max_login_frame_bytes,
            self._memory,
            self._on_frame,
            self._forget,
        )
        self.connections.add(connection)
        self._judge(node_id)

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._quotas.remove(connection.node_id, connection.host)
        self._judge(connection.node_id)

    def _judge(self, node_id: int) -> None:
        """Let a node accept connections if it may have another."""
        listener = self._listeners.get(node_id)
        if listener is not None:
            listener.fill(full=not self._quotas.has_slot(node_id))

    def _look_again(self) -> None:
        """Close what was idle for too long, and look again later."""
        now, idle_ms = self._loop.clock.now_ms(), self._limits.max_idle_ms
        for connection in list(self.connections):
            if now - connection.active_at >= idle_ms and not connection.is_waiting_for_us:
                connection.close()
        self._loop.at(add_ms(now, max(idle_ms // _LOOKS, 1)), self._look_again)
