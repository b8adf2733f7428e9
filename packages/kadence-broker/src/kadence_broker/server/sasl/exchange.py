"""The common parts of the mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Login", "LoginError", "Mechanism"]


class LoginError(Exception):
    """The client is refused.

    Attributes:
        client_message: sent to the client. None: only that its credentials are invalid, because the reason would reveal
        too much to a stranger (whether a user exists).
    """

    def __init__(self, reason: str, *, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message


@dataclass(frozen=True, slots=True)
class Login:
    """The authenticated user. ``expires_at`` is when its credential ends (ms since 1970); None: never."""

    user: str
    expires_at: int | None = None


class Mechanism(Protocol):
    """One exchange."""

    login: Login | None

    def step(self, data: bytes) -> bytes:
        """Return the answer to a message of the client.

        Raises:
            LoginError: the client is refused.
        """
        ...
