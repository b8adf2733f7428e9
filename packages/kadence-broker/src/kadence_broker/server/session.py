"""The login state of a connection: the client's name, and the requests that it may send. No socket, no clock.

    HANDSHAKE ── SaslHandshake ──▶ AUTHENTICATE ── SaslAuthenticate … ──▶ OPEN ── SaslHandshake ──▶ AUTHENTICATE …
    (ApiVersions, once)             (nothing else)                         (everything, until the session ends)

After Kafka's SaslServerAuthenticator. A session ends `connections.max.reauth.ms` after the login, or with the token;
the client gets that time, and logs in again on the same connection before it (KIP-368). A listener without SASL is
OPEN at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kadence.clock import FOREVER, add_ms, wall_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.error_codes import ILLEGAL_SASL_STATE, NONE, SASL_AUTHENTICATION_FAILED
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kadence_broker.server.sasl import LoginError, Mechanism
from kadence_broker.server.security import Security

__all__ = ["Refusal", "Session"]

_SOONEST_REAUTH_MS: Final = 1_000
"""A new login within a second of the last is refused, as in Kafka."""


class _State(Enum):
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    OPEN = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that may not be served now; its connection ends. ``code`` 0: without an answer."""

    reason: str
    code: int = NONE


class Session:
    """The login of one connection.

    Attributes:
        principal: "User:name" once a login was accepted; None before, and on a listener without SASL.
        takes_tokens: frames are the mechanism's own bytes, not Kafka requests (SaslHandshake v0).
    """

    __slots__ = (
        "_ends_at",
        "_exchange",
        "_logged_in_at",
        "_max_reauth_ms",
        "_mechanism",
        "_security",
        "_state",
        "_wanted",
        "_was_offered",
        "principal",
        "takes_tokens",
    )

    def __init__(self, security: Security, max_reauth_ms: int) -> None:
        self._security = security
        self._max_reauth_ms = max_reauth_ms
        self._state = _State.HANDSHAKE if security.mechanisms else _State.OPEN
        self._was_offered = False
        self._mechanism = ""
        self._wanted = ""
        self._exchange: Mechanism | None = None
        self._logged_in_at = 0
        self._ends_at = FOREVER
        self.principal: str | None = None
        self.takes_tokens = False

    def __repr__(self) -> str:
        return f"<session of {self.principal or 'nobody yet'}, {self._state.name}>"

    @property
    def is_open(self) -> bool:
        """Any request may be served (until the session ends)."""
        return self._state is _State.OPEN

    def check(self, api_key: int, now: int) -> Refusal | None:
        """The refusal of a request of this API, if it may not be served now; called before its body is read."""
        if self._state is _State.OPEN:
            if now < self._ends_at or api_key == SaslHandshakeRequest.API_KEY:
                return None
            return Refusal("its session has ended without a new login (connections.max.reauth.ms)")
        if self._state is _State.HANDSHAKE:
            if api_key == SaslHandshakeRequest.API_KEY:
                return None
            if api_key == ApiVersionsRequest.API_KEY and not self._was_offered:
                return None
            return Refusal(f"a request of API {api_key} came before the SASL handshake")
        if self._state is _State.AUTHENTICATE and api_key == SaslAuthenticateRequest.API_KEY:
            return None
        return Refusal(f"a request of API {api_key} came during the SASL exchange", ILLEGAL_SASL_STATE)

    def offered(self) -> None:
        """ApiVersions was answered; a second time it is not before a login."""
        self._was_offered = True

    def handshake(self, mechanism: str, version: int, now: int) -> tuple[SaslHandshakeResponse, bool]:
        """The answer, and whether the connection must end with it."""
        offered = list(self._security.mechanisms)
        if self.is_open and (not offered or now - self._logged_in_at < _SOONEST_REAUTH_MS):
            # An open session is not harmed by what does not fit.
            return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[]), False
        if mechanism not in offered:
            self._state = _State.REFUSED
            return SaslHandshakeResponse(
                error_code=codes.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
            ), True
        self._exchange = self._security.mechanism(mechanism)
        self._wanted = mechanism
        self._state = _State.AUTHENTICATE
        self.takes_tokens = version == 0
        return SaslHandshakeResponse(error_code=NONE, mechanisms=offered), False

    def authenticate(self, data: bytes, now: int) -> tuple[SaslAuthenticateResponse, bool]:
        """The answer, and whether the connection must end with it."""
        if self._state is not _State.AUTHENTICATE:
            sentence = "SaslAuthenticate came after the login was over, without a SaslHandshake before it"
            return SaslAuthenticateResponse(error_code=ILLEGAL_SASL_STATE, error_message=sentence), False
        try:
            answer = self.token(data, now)
        except LoginError as error:
            sentence = error.client_message or (
                f"Authentication failed during {'re-' if self.principal else ''}authentication due to invalid "
                f"credentials with SASL mechanism {self._wanted}"
            )
            return SaslAuthenticateResponse(
                error_code=SASL_AUTHENTICATION_FAILED, error_message=sentence
            ), True
        lifetime = self._ends_at - now if self.is_open and self._ends_at < FOREVER else 0
        return SaslAuthenticateResponse(
            error_code=NONE, auth_bytes=answer, session_lifetime_ms=max(lifetime, 0)
        ), False

    def token(self, data: bytes, now: int) -> bytes:
        """One step of the exchange.

        Raises:
            LoginError: the login is refused.
        """
        assert self._exchange is not None
        try:
            if self._mechanism not in ("", self._wanted):
                sentence = (
                    f"SASL mechanism '{self._wanted}' requested by client is not supported for re-authentication "
                    f"of mechanism '{self._mechanism}'"
                )
                raise LoginError(sentence, client_message=sentence)
            answer = self._exchange.step(data)
            if self._exchange.login is not None:
                self._accept(self._exchange, now)
        except LoginError:
            self._state = _State.REFUSED
            raise
        return answer

    def _accept(self, exchange: Mechanism, now: int) -> None:
        assert exchange.login is not None
        principal = f"User:{exchange.login.user}"
        if self.principal not in (None, principal):
            sentence = f"Cannot change principals during re-authentication from {self.principal}: {principal}"
            raise LoginError(sentence, client_message=sentence)
        self.principal = principal
        self._mechanism = self._wanted
        self._logged_in_at = now
        self._exchange = None
        self.takes_tokens = False
        self._state = _State.OPEN
        lifetimes = []
        if self._max_reauth_ms > 0:
            lifetimes.append(self._max_reauth_ms)
        if exchange.login.expires_at is not None:
            lifetimes.append(max(exchange.login.expires_at - wall_ms(), 0))
        self._ends_at = add_ms(now, min(lifetimes)) if lifetimes else FOREVER
