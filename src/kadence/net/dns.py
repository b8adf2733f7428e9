"""Name look-ups, which block, on a thread of their own.

The thread exists only once a name that is no numeric address has to be looked up. It is a daemon and is never
waited for: getaddrinfo cannot be interrupted, and a resolver that hangs must not hang `close`.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["Address", "Found", "Resolver", "interleave"]


class Address(NamedTuple):
    """One resolved address: what a socket needs, and how to show it."""

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
        try:
            # As bytes: for a str Python loads its tables of international names, which no numeric address needs.
            name = host.encode("ascii")
            numeric = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            pass
        else:
            return Found(host, port, interleave(numeric), None)
        if (host, port) not in self._pending:
            self._pending.add((host, port))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kadence-dns", daemon=True)
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
        """Let the worker end once it is done with what it is doing."""
        self._asked.put(None)

    def _work(self) -> None:
        while (name := self._asked.get()) is not None:
            host, port = name
            try:
                found = Found(host, port, interleave(self._lookup(host, port, type=socket.SOCK_STREAM)), None)
            except OSError as error:
                found = Found(host, port, (), error)
            except UnicodeError as error:
                # What Python raises for labels that are empty or too long.
                found = Found(host, port, (), OSError(f"not a host name: {error}"))
            self._found.append(found)
            self._notify()


def interleave(infos: Iterable[Any]) -> tuple[Address, ...]:
    """Distinct addresses, IPv6 and IPv4 in turn, beginning with the system's first choice.

    When one family leads nowhere, the second attempt should not be of that family again (RFC 8305, section 4).
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
