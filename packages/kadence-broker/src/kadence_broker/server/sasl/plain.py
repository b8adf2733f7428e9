"""PLAIN: name and password in one message (RFC 4616). The sentences of a refusal are those that Kafka's broker says."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kadence_broker.server.sasl.exchange import Login, LoginError

__all__ = ["PlainServer"]


class PlainServer:
    """One exchange against passwords by user."""

    __slots__ = ("_users", "login")

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.login: Login | None = None

    def step(self, data: bytes) -> bytes:
        parts = data.split(b"\0")
        if len(parts) != 3:
            raise _refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            authorization, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise _refused("Authentication failed: the message is not UTF-8") from None
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        expected = self._users.get(user)
        # Compared for an unknown user too, so that the time taken does not reveal which users exist.
        is_right = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_right:
            raise _refused("Authentication failed: Invalid username or password")
        if authorization not in ("", user):
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.login = Login(user)
        return b""


def _refused(sentence: str) -> LoginError:
    return LoginError(sentence, client_message=sentence)
