"""Logins by name and password."""

from __future__ import annotations

from kadence.connection.sasl.exchange import Exchange
from kadence.connection.sasl.plain import Plain
from kadence.connection.sasl.scram import Scram
from kadence.security import Secret

__all__ = ["PasswordLogin"]


class PasswordLogin:
    """PLAIN and SCRAM: everything is known from the start."""

    __slots__ = ("_password", "_user", "mechanism")

    def __init__(self, mechanism: str, user: str, password: Secret) -> None:
        self.mechanism = mechanism
        self._user = user
        self._password = password

    @property
    def who(self) -> str:
        return f"user {self._user!r}"

    def begin(self, now: int, host: str = "") -> Exchange:
        if self.mechanism == "PLAIN":
            return Plain(self._user, self._password.reveal())
        return Scram(self.mechanism, self._user, self._password.reveal())

    def __repr__(self) -> str:
        return f"<login by {self.mechanism} of {self.who}>"
