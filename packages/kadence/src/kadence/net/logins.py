"""The login of one client: by password, by Kerberos, or by tokens that are fetched on a thread and reused.

Most clients have none, so this and each kind are imported only when needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

# The network thread, which must not wait for files, finds loaded what a connection needs to log in.
from kadence.connection import authentication  # noqa: F401
from kadence.logs import logger

if TYPE_CHECKING:
    from kadence.connection.sasl.exchange import Login
    from kadence.net.config import ConnectionConfig
    from kadence.net.kerberos import KerberosLogin
    from kadence.net.tokens import TokenLogin
    from kadence.security import Credentials

__all__ = ["Logins"]

_log = logger("kadence.net")

_SENT_AS_IT_IS: Final = {
    "PLAIN": (
        "password",
        "use security.protocol=SASL_SSL, or a SCRAM mechanism, which does not send it",
    ),
    "OAUTHBEARER": ("token", "use security.protocol=SASL_SSL"),
}
"""Mechanisms that send the secret itself: its name, and the remedy."""


class Logins:
    """Authenticates a client's connections.

    Args:
        credentials: those to log in with.
        notify: called on the helper thread when a token, or its failure, is ready; ends the network thread's wait.
    """

    login: Login

    def __init__(
        self, config: ConnectionConfig, credentials: Credentials, notify: Callable[[], None]
    ) -> None:
        # The one that has a helper thread.
        self._fetched: TokenLogin | KerberosLogin | None = None
        self._is_open = config.ssl_context is None
        if credentials.kerberos is not None:
            from kadence.net.kerberos import KerberosLogin, contexts

            kerberos = credentials.kerberos
            self.login = self._fetched = KerberosLogin(contexts(kerberos), kerberos.who, notify)
        elif credentials.tokens is None:
            from kadence.connection.sasl.passwords import PasswordLogin

            self.login = PasswordLogin(credentials.mechanism, credentials.username, credentials.password)
        else:
            from kadence.net.tokens import token_login

            self.login = self._fetched = token_login(config, credentials, notify)

    def about_to_talk(self, host: str) -> None:
        """Warn, once, when a password or a token is about to cross a network unencrypted."""
        if not self._is_open:
            return
        from kadence.security.oauth import is_loopback

        if is_loopback(host):
            return
        told = _SENT_AS_IT_IS.get(self.login.mechanism)
        if told is not None:
            self._is_open = False
            what, instead = told
            _log.warning("the %s of %s is sent to %s unencrypted: %s", what, self.login.who, host, instead)

    def deliver(self, now: int) -> bool:
        """Take the helper thread's results. True when connections should `resume`; `served` comes after that."""
        return self._fetched is not None and self._fetched.deliver(now)

    def served(self) -> None:
        """All waiting connections have been served."""
        if self._fetched is not None:
            self._fetched.served()

    def close(self) -> None:
        if self._fetched is not None:
            self._fetched.close()
