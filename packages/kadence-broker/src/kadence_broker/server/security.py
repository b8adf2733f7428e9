"""The security of listeners: TLS and logins. Values only; secrets appear in no repr and no log."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kadence.errors import ConfigError
from kadence.forked import ThisProcess
from kadence.security import Secret
from kadence.security.files import warn_if_open
from kadence.security.scram import HASHES
from kadence_broker.server.sasl import (
    Mechanism,
    OAuthBearerServer,
    PlainServer,
    ScramServer,
    ScramUser,
    TokenValidator,
    scram_user,
    unsecured_token,
)

__all__ = ["Security", "TlsFiles"]

_BY_PASSWORD: Final = ("PLAIN", *HASHES)
_BY_TOKEN: Final = "OAUTHBEARER"  # noqa: S105 - a name
_KNOWN: Final = (*_BY_PASSWORD, _BY_TOKEN)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the broker's certificate.

    Attributes:
        certificate: the certificate and its chain. key: its private key; None: it is in the same file.
        key_password: the password of the private key.
        client_ca: the authorities whose client certificates are trusted (mutual TLS). None: clients need no
            certificate.
        client_auth: whether a client must show a certificate: "required", "requested" or "none". None: "required" where
            ``client_ca`` is given. A client's principal is then the subject of its certificate, as in Kafka.
    """

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str] | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca: str | os.PathLike[str] | None = None
    client_auth: Literal["required", "requested", "none"] | None = None

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer, as these files say.

        Raises:
            ConfigError: a file cannot be read or is not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if not self.key_password:
                warn_if_open(os.fspath(self.key or self.certificate), "a private key")
            # An empty password, or OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        except OSError as error:
            raise ConfigError(
                f"tls: the certificate {os.fspath(self.certificate)!r} and its key cannot be used: {_why(error)}"
            ) from None
        auth = self.client_auth or ("none" if self.client_ca is None else "required")
        if auth == "none":
            return context
        if self.client_ca is None:
            raise ConfigError(f"tls: client_auth={auth!r} needs client_ca, the authorities to trust")
        try:
            context.load_verify_locations(self.client_ca)
        except OSError as error:
            raise ConfigError(
                f"tls: client_ca {os.fspath(self.client_ca)!r} cannot be used: {_why(error)}"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED if auth == "required" else ssl.CERT_OPTIONAL
        return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is no PEM of that kind, or the password is wrong"
    return error.strerror or str(error)


class Security:
    """The security protocol of a broker's listeners.

    Args:
        tls: the broker's certificate, or a server's `ssl.SSLContext`; None: no TLS.
        users: password by user, for PLAIN and SCRAM.
        mechanisms: SASL mechanisms offered; None: PLAIN and both of SCRAM if there are users, OAUTHBEARER if there is a
            ``token_validator``.
        token_validator: judges OAUTHBEARER's tokens; None: unsecured JWTs are taken, as Kafka does by default.

    Raises:
        ConfigError: a mechanism is unknown or cannot work with what is given.
    """

    def __init__(
        self,
        tls: TlsFiles | ssl.SSLContext | None = None,
        users: Mapping[str, str] | None = None,
        mechanisms: Sequence[str] | None = None,
        token_validator: TokenValidator | None = None,
    ) -> None:
        self.tls = tls.context() if isinstance(tls, TlsFiles) else tls
        self._users = {user: Secret(password) for user, password in (users or {}).items()}
        if mechanisms is None:
            mechanisms = (*(_BY_PASSWORD if users else ()), *((_BY_TOKEN,) if token_validator else ()))
        for each in mechanisms:
            if each not in _KNOWN:
                raise ConfigError(f"no SASL mechanism {each!r} here; there are {', '.join(_KNOWN)}")
            if each in _BY_PASSWORD and not users:
                raise ConfigError(f"mechanism {each} needs users=, passwords by user")
        if users and not set(mechanisms) & set(_BY_PASSWORD):
            raise ConfigError(
                f"users are given, but no mechanism that asks for a password: {', '.join(_BY_PASSWORD)}"
            )
        self.mechanisms = tuple(mechanisms)
        # On the broker's thread: a child that it forks does not serve clients, and ends with it.
        here, validate = ThisProcess(), token_validator or unsecured_token
        self._validate: TokenValidator = lambda token: here.call(validate, token)
        self._scram: dict[tuple[str, str], ScramUser] = {}

    def __repr__(self) -> str:
        return f"<{self.protocol} {', '.join(self.mechanisms)}, {len(self._users)} users>"

    @property
    def protocol(self) -> str:
        """As `security.protocol` names it."""
        if self.mechanisms:
            return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"
        return "PLAINTEXT" if self.tls is None else "SSL"

    def mechanism(self, name: str) -> Mechanism:
        """Begin one exchange."""
        if name == "PLAIN":
            return PlainServer({user: password.reveal() for user, password in self._users.items()})
        if name == _BY_TOKEN:
            return OAuthBearerServer(self._validate)
        return ScramServer(name, lambda user: self._scram_user(name, user))

    def _scram_user(self, mechanism: str, user: str) -> ScramUser | None:
        """Derived when a user first logs in, since it takes milliseconds."""
        password = self._users.get(user)
        if password is None:
            return None
        kept = self._scram.get((mechanism, user))
        if kept is None:
            kept = self._scram[mechanism, user] = scram_user(mechanism, password.reveal())
        return kept
