"""Reads and checks the ``sasl.*`` and ``ssl.*`` keys: trusted authorities and credentials. Opens no connection.

It reads a configuration as `settings.Settings`, so it does not know `kadence.config`, which checks its keys here.
Here are the credentials of a client, as values, and `Secret`, a string that no repr, error or log shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kadence.lazy_dataclasses import dataclass, field

__all__ = ["MECHANISMS", "ClientCredentials", "Credentials", "Kerberos", "Secret", "Token"]


MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""Ways to log in, by the names of SASL."""

_HIDDEN: Final = "[hidden]"


class Secret:
    """A string that shows itself only to who calls `reveal`.

    ``str()``, f-strings, ``%s``, repr and logs have ``[hidden]``, and json refuses it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret = "") -> None:
        self._value: str = value._value if isinstance(value, Secret) else value

    def reveal(self) -> str:
        """The value."""
        return self._value

    def __repr__(self) -> str:
        return f"'{_HIDDEN}'"

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class Token:
    """An OAuth bearer token, as a token provider returns it.

    Attributes:
        value: the token, which is sent to the broker.
        expires_at: when it expires, in seconds since 1970; infinity: never. None: unknown; then every connection
            requests a new token.
        extensions: SASL extensions (KIP-342).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The parameters for getting tokens by OAuth's client credentials (RFC 6749, section 4.4).

    Attributes:
        is_encoded: id and secret are URL-encoded before they are joined, as the RFC has it (KIP-1025).
    """

    url: str
    client_id: str
    secret: Secret
    scope: str | None
    extensions: Mapping[str, str]
    is_encoded: bool


@dataclass(frozen=True, slots=True)
class Kerberos:
    """The Kerberos tickets to use, and the service to use them for.

    Attributes:
        service: the first part of the brokers' principals, mostly ``kafka``.
        principal: the client's; None: that of the keytab or of the ticket cache.
        keytab: a file with the client's key; None: the tickets are in a cache, which kinit has filled.
        ticket_cache: which cache; None: the system's default.
    """

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None

    @property
    def who(self) -> str:
        """For messages."""
        if self.principal is not None:
            return f"principal {self.principal!r}"
        return f"keytab {self.keytab!r}" if self.keytab is not None else "the ticket cache"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client: a user and password, a source of tokens, or Kerberos."""

    mechanism: str
    username: str = ""
    password: Secret = field(default_factory=Secret)
    tokens: Callable[[], Token] | ClientCredentials | None = field(default=None, repr=False)
    kerberos: Kerberos | None = None
