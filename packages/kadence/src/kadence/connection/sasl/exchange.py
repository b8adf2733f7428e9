"""The interfaces of a mechanism, and of the owner of the credentials."""

from __future__ import annotations

from typing import Protocol

__all__ = ["BadChallengeError", "Exchange", "Login"]


class BadChallengeError(ValueError):
    """The broker's part of the exchange is wrong; the text says how, and holds no secret."""


class Exchange(Protocol):
    """The client's part of one authentication."""

    def first(self) -> bytes:
        """The client's first message; every mechanism of Kafka lets the client begin."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The answer to the broker's message, None when the client is satisfied.

        Raises:
            BadChallengeError: the broker's words are no part of this mechanism, or it does not know the password.
        """
        ...


class Login(Protocol):
    """An identity, and its way to log in."""

    @property
    def mechanism(self) -> str:
        """SASL's name of the mechanism."""
        ...

    @property
    def who(self) -> str:
        """The identity, for messages: ``user 'alice'``."""
        ...

    def begin(self, now: int, host: str = "") -> Exchange | None:
        """A new exchange with the broker on ``host``; None while its credentials are still being fetched.

        Raises:
            AuthenticationError, ConnectError: they cannot be had.
        """
        ...
