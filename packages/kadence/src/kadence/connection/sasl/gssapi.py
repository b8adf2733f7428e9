"""GSSAPI: Kerberos tickets, by whatever carries GSS-API (RFC 4752).

    client  ticket for the broker          (made by a `Context`, which has asked the key distribution centre)
    broker  proof that it could read it    (mutual authentication; perhaps in more than one step)
    client  nothing
    broker  protected: which layers it offers
    client  protected: none of them, please

TLS protects what follows, not Kerberos: Kafka knows no layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kadence.connection.sasl.exchange import BadChallengeError

__all__ = ["Context", "Gssapi"]

_NO_LAYER: Final = 1
_OFFER_BYTES: Final = 4


class Context(Protocol):
    """The initiator's side of a GSS-API security context; `gssapi.SecurityContext` is one."""

    @property
    def complete(self) -> bool:
        """Both sides know each other."""
        ...

    def step(self, token: bytes | None = None) -> bytes | None:
        """The next token for the peer, None when there is none."""
        ...

    def protect(self, message: bytes) -> bytes:
        """A message whose integrity the peer can check."""
        ...

    def open(self, token: bytes) -> bytes:
        """The message of the peer's protected token."""
        ...


class Gssapi:
    """One exchange.

    Args:
        context: begun: it has made ``first``, so that nothing here waits for a network.
        explain: the text for an error of the context; None if it is not an error of GSS-API.
    """

    __slots__ = ("_context", "_explain", "_first", "_is_agreed")

    def __init__(self, context: Context, first: bytes, explain: Callable[[Exception], str | None]) -> None:
        self._context = context
        self._first = first
        self._explain = explain
        self._is_agreed = False

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if self._is_agreed:
            return None
        try:
            if not self._context.complete:
                # The broker speaks next even if there is nothing to say.
                return self._context.step(challenge) or b""
            return self._agree(self._context.open(challenge))
        except BadChallengeError:
            raise
        except Exception as error:
            text = self._explain(error)
            if text is None:
                raise
            raise BadChallengeError(f"Kerberos: {text}") from error

    def _agree(self, offer: bytes) -> bytes:
        if len(offer) != _OFFER_BYTES:
            raise BadChallengeError(
                f"its offer of security layers has {len(offer)} bytes, not {_OFFER_BYTES}"
            )
        if not offer[0] & _NO_LAYER:
            raise BadChallengeError(
                "it insists on a security layer of Kerberos; Kafka has none, TLS protects connections"
            )
        self._is_agreed = True
        return self._context.protect(bytes((_NO_LAYER, 0, 0, 0)))
