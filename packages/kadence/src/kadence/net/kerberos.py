"""Logins by Kerberos tickets: the system's GSS-API library, through the package ``gssapi`` (extra ``gssapi``).

The library asks the key distribution centre, and perhaps DNS, and blocks meanwhile; so contexts are created on a
separate thread. A context is good for one connection to one host. Connections that need one wait for it.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kadence.connection.sasl.exchange import Exchange
from kadence.connection.sasl.gssapi import Gssapi
from kadence.errors import AuthenticationError, ConnectError, KafkaError, MissingDependencyError
from kadence.logs import OwnThread
from kadence.security.files import warn_if_open

if TYPE_CHECKING:
    from kadence.security import Kerberos

__all__ = ["KerberosLogin", "contexts"]

_FRESH_MS: Final = 60_000
"""A broker takes a ticket's authenticator for five minutes, by clocks that may differ by as much as four of them."""

_AT_ONCE: Final = 4
"""How many contexts with one host are created at once, one for each purpose: connections that give up on an
unresponsive centre, and try again, must not pile up work for it.
"""

_UNREACHABLE: Final = frozenset({2529639066, 2529639068})
"""KRB5_REALM_CANT_RESOLVE and KRB5_KDC_UNREACH as the library's minor codes: trying again may help."""


class KerberosLogin:
    """GSSAPI for all connections of one client. Network thread, but for the worker inside.

    Args:
        begin: creates the exchange with a host; may block, and raise a `KafkaError`. notify: called by the worker when
            a result is ready; ends the network thread's wait.
    """

    mechanism: Final = "GSSAPI"

    def __init__(self, begin: Callable[[str], Exchange], who: str, notify: Callable[[], None]) -> None:
        self._begin = begin
        self._notify = notify
        self.who = who
        self._ready: dict[str, deque[tuple[int, Exchange | KafkaError]]] = {}
        # Requested from the worker and not ready yet, by host.
        self._under_way: Counter[str] = Counter()
        # Between `deliver` and `served` all waiting connections ask again. By host, how many of them got nothing.
        self._is_serving = False
        self._empty_handed: Counter[str] = Counter()
        self._asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._come: deque[tuple[str, Exchange | KafkaError]] = deque()
        self._thread: threading.Thread | None = None

    def begin(self, now: int, host: str = "") -> Exchange | None:
        ready = self._ready.get(host)
        while ready:
            made_at, found = ready.popleft()
            if now - made_at > _FRESH_MS:
                continue
            if isinstance(found, KafkaError):
                raise found
            return found
        if self._is_serving:
            self._empty_handed[host] += 1
        elif self._under_way[host] < _AT_ONCE:
            self._ask(host)
        return None

    def deliver(self, now: int) -> bool:
        """Take the worker's results. True when connections should ask again; `served` comes after that."""
        if not self._come:
            return False
        while self._come:
            host, made = self._come.popleft()
            self._under_way[host] -= 1
            self._ready.setdefault(host, deque()).append((now, made))
        self._is_serving = True
        return True

    def served(self) -> None:
        """All waiting connections have asked: create contexts for those that got none and have none under way."""
        self._is_serving = False
        for host, count in self._empty_handed.items():
            for _ in range(count - self._under_way[host]):
                self._ask(host)
        self._empty_handed.clear()

    def close(self) -> None:
        """Let the worker end after its current work."""
        self._asked.put(None)

    def __repr__(self) -> str:
        return f"<login by {self.mechanism} of {self.who}>"

    def _ask(self, host: str) -> None:
        self._under_way[host] += 1
        if self._thread is None:
            self._thread = OwnThread(target=self._work, name="kadence-kerberos")
            self._thread.start()
        self._asked.put(host)

    def _work(self) -> None:
        while (host := self._asked.get()) is not None:
            try:
                made: Exchange | KafkaError = self._begin(host)
            except KafkaError as error:
                made = error
            except Exception as error:  # noqa: BLE001 - whatever it is, the connection that waits is told
                made = AuthenticationError(f"no ticket for {self.who}: {type(error).__name__}: {error}")
                made.__cause__ = error
            self._come.append((host, made))
            self._notify()


def contexts(kerberos: Kerberos) -> Callable[[str], Exchange]:
    """Creates exchanges with a host, with tickets of a keytab or of the user's own cache.

    Raises:
        MissingDependencyError: the package ``gssapi`` is not installed.
    """
    try:
        import gssapi
        from gssapi.raw.misc import GSSError
    except ImportError as error:
        raise MissingDependencyError(
            "sasl.mechanism=GSSAPI needs the package gssapi: pip install 'kadence[gssapi]', which needs the system's "
            "Kerberos (on Debian and Ubuntu: apt-get install gcc libkrb5-dev krb5-user)"
        ) from error

    store: dict[bytes | str, bytes | str] = {}
    if kerberos.keytab is not None:
        warn_if_open(kerberos.keytab.removeprefix("FILE:"), "a key")
        # Tickets of a keytab are this client's alone, in memory; the library renews them.
        store = {"client_keytab": kerberos.keytab, "ccache": f"MEMORY:kadence-{uuid.uuid4().hex}"}
    elif kerberos.ticket_cache is not None:
        store = {"ccache": kerberos.ticket_cache}

    def begin(host: str) -> Exchange:
        service = f"{kerberos.service}@{host}"
        try:
            name = None
            if kerberos.principal is not None:
                name = gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal)
            own = gssapi.Credentials(name=name, usage="initiate", store=store or None)
            context = _Context(
                gssapi.SecurityContext(
                    name=gssapi.Name(service, gssapi.NameType.hostbased_service),
                    creds=own,
                    usage="initiate",
                    mech=gssapi.MechType.kerberos,
                    flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
                )
            )
            return Gssapi(context, context.step() or b"", explain)
        except GSSError as error:
            kind = ConnectError if error.min_code in _UNREACHABLE else AuthenticationError
            raise kind(f"no Kerberos ticket of {kerberos.who} for {service}: {explain(error)}") from error

    def explain(error: Exception) -> str | None:
        return _words(error) if isinstance(error, GSSError) else None

    return begin


def _words(error: Any) -> str:
    """The library's texts, the specific one before the general one."""
    minor = error.get_all_statuses(error.min_code, False)
    return "; ".join(minor or error.get_all_statuses(error.maj_code, True))


class _Context:
    """`gssapi.SecurityContext` under SASL's names."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None = None) -> bytes | None:
        made: bytes | None = self._context.step(token)
        return made

    def protect(self, message: bytes) -> bytes:
        return bytes(self._context.wrap(message, False).message)

    def open(self, token: bytes) -> bytes:
        return bytes(self._context.unwrap(token).message)
