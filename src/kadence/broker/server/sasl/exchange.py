"""What the mechanisms have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Login", "LoginError", "Mechanism"]


class LoginError(Exception):
    """The client is refused.

    Attributes:
        told: what the client hears. None: only that its credentials are invalid, for the reason would tell a stranger
            too much (whether a user exists).
    """

    def __init__(self, reason: str, *, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


@dataclass(frozen=True, slots=True)
class Login:
    """Who the client is. ``expires_at`` is when its credential ends (ms since 1970); None: never."""

    user: str
    expires_at: int | None = None


class Mechanism(Protocol):
    """One exchange."""

    login: Login | None

    def step(self, data: bytes) -> bytes:
        """What the client is told.

        Raises:
            LoginError: the client is refused.
        """
        ...
