"""One authentication on one connection: SaslHandshake, then SaslAuthenticate until the mechanism ends (KIP-152).

Sans-IO: it makes messages and takes their answers. `BrokerConnection` puts them on the wire, the first time between
ApiVersions and READY and again before the broker's session ends (KIP-368).
"""

from __future__ import annotations

from typing import Final

from kadence.connection.request import Ranges, common
from kadence.connection.sasl.exchange import BadChallengeError, Exchange, Login
from kadence.errors import AuthenticationError, BrokerError, ConnectError, KafkaError, for_code
from kadence.printable import printable
from kadence.protocol import error_codes
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["Authentication", "SaslMessage"]

SaslMessage = SaslHandshakeRequest | SaslAuthenticateRequest

_HANDSHAKE_VERSION: Final = 1
"""In version 0 what follows are bare bytes without any request; no broker since 1.0 needs that."""

_SESSION_SHARE: Final = 0.85
_SHORTEST_SESSION_MS: Final = 1_001
"""A broker refuses to authenticate a connection twice within a second."""


class Authentication:
    """See the top of the file.

    Args:
        address: how messages name the broker. ranges: what it offers.

    Attributes:
        lifetime_ms: how long the broker's session lasts, 0 for ever. Known once it is complete.
    """

    __slots__ = ("_address", "_exchange", "_login", "_ranges", "_satisfied", "lifetime_ms")

    def __init__(self, login: Login, exchange: Exchange, address: str, ranges: Ranges) -> None:
        self._login = login
        self._exchange = exchange
        self._address = address
        self._ranges = ranges
        self._satisfied = False
        self.lifetime_ms = 0

    @property
    def renew_after_ms(self) -> int:
        """How long after this one the next is due, where the broker's session ends."""
        return max(_SHORTEST_SESSION_MS, int(self.lifetime_ms * _SESSION_SHARE))

    def start(self) -> SaslHandshakeRequest:
        """The first message.

        Raises:
            ConnectError: the broker lacks the APIs.
        """
        handshake = self._ranges.get(SaslHandshakeRequest.API_KEY)
        if (
            handshake is None
            or common((_HANDSHAKE_VERSION, _HANDSHAKE_VERSION), handshake) is None
            or self.version(SaslAuthenticateRequest()) is None
        ):
            raise ConnectError(
                f"{self._address} does not support SASL logins; set security.protocol=PLAINTEXT or SSL"
            )
        return SaslHandshakeRequest(mechanism=self._login.mechanism)

    def version(self, message: SaslMessage) -> int | None:
        """The version in which to send a message; None when there is none in common."""
        if isinstance(message, SaslHandshakeRequest):
            return _HANDSHAKE_VERSION
        ours = (SaslAuthenticateRequest.MIN_VERSION, SaslAuthenticateRequest.MAX_VERSION)
        theirs = self._ranges.get(SaslAuthenticateRequest.API_KEY)
        return None if theirs is None else common(ours, theirs)

    def answered(
        self, response: SaslHandshakeResponse | SaslAuthenticateResponse
    ) -> SaslAuthenticateRequest | None:
        """The next message, None when the broker has accepted us and we the broker.

        Raises:
            AuthenticationError: either side refused the other. ConnectError: the broker could not decide now.
        """
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code != error_codes.NONE:
                raise self._no_mechanism(response)
            return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
        if response.error_code != error_codes.NONE:
            raise self._refused(response)
        try:
            words = self._exchange.answer(response.auth_bytes)
        except BadChallengeError as error:
            raise AuthenticationError(
                f"SASL {self._login.mechanism} of {self._login.who} with {self._address} failed: {error}"
            ) from error
        if words is None:
            self.lifetime_ms = max(0, response.session_lifetime_ms)
            return None
        return SaslAuthenticateRequest(auth_bytes=words)

    def _no_mechanism(self, response: SaslHandshakeResponse) -> KafkaError:
        cause = for_code(response.error_code)
        mechanism = self._login.mechanism
        if response.error_code == error_codes.UNSUPPORTED_SASL_MECHANISM:
            offered = printable(", ".join(response.mechanisms)) or "none"
            text = f"{self._address} does not offer SASL {mechanism}; it offers: {offered}"
        elif response.error_code == error_codes.ILLEGAL_SASL_STATE:
            text = (
                f"{self._address} does not expect a SASL {mechanism} login: this listener accepts anybody; set "
                "security.protocol to PLAINTEXT or SSL, or use another port"
            )
        else:
            text = f"{self._address} refused SASL {mechanism}: {cause}"
        return _failure(text, cause)

    def _refused(self, response: SaslAuthenticateResponse) -> KafkaError:
        cause = for_code(response.error_code, response.error_message or None)
        return _failure(
            f"{self._address} refused SASL {self._login.mechanism} of {self._login.who}: {cause.message}",
            cause,
        )


def _failure(text: str, cause: BrokerError) -> KafkaError:
    kind = ConnectError if cause.retriable else AuthenticationError
    error = kind(text)
    error.__cause__ = cause
    return error
