"""PLAIN: name and password as they are (RFC 4616). Only TLS hides them from the network."""

from __future__ import annotations

__all__ = ["Plain"]


class Plain:
    """One message, no challenge."""

    __slots__ = ("_password", "_user")

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return b"\0".join((b"", self._user.encode(), self._password.encode()))

    def answer(self, challenge: bytes) -> None:
        """The broker has no challenge; one that comes all the same changes nothing."""
