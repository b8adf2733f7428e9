"""Makes sockets: the system's, or those of a simulated network (`kadence.testing.simulation`)."""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, Final, Protocol

from kadence.net.poller import Poller, new_poller
from kadence.net.stream import Stream, stream_of

if TYPE_CHECKING:
    from kadence.net.wakeup import Wakeup

__all__ = ["SYSTEM", "Sockets"]


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
