"""One authentication on one connection: SaslHandshake, then SaslAuthenticate until the mechanism ends (KIP-152).

Sans-IO: it makes messages and takes their answers. `BrokerConnection` puts them on the wire, the first time between
ApiVersions and READY and again before the broker's session ends (KIP-368).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kadence.connection.request import Ranges, common
from kadence.connection.sasl.exchange import BadChallengeError, Exchange, Login
from kadence.errors import AuthenticationError, BrokerError, ConnectError, KafkaError, for_code
from kadence.printable import printable
from kadence.protocol import error_codes
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["Authentication", "SaslMessage", "exchanging"]

SaslMessage = SaslHandshakeRequest | SaslAuthenticateRequest

_HANDSHAKE_VERSION: Final = 1
"""In version 0 what follows are bare bytes without any request; no broker since 1.0 needs that."""

_SESSION_SHARE: Final = 0.85
_SHORTEST_SESSION_MS: Final = 1_001
"""A broker refuses to authenticate a connection twice within a second."""


_MOST_CHALLENGE_BYTES: Final = 16_384
"""No mechanism has longer ones: of a peer that has not shown who it is, nothing longer is parsed."""
_MOST_CHALLENGES: Final = 16
"""Kerberos has the most steps, three or four of them."""


@contextmanager
def exchanging(login: Login, address: str) -> Iterator[None]:
    """Turns any exception of a mechanism in here into a refused login.

    Raises:
        AuthenticationError: a `BadChallengeError` with its text, anything unforeseen by its type alone: its text may
            have a part of the password. A `KafkaError` is passed on.
    """
    try:
        yield
    except KafkaError:
        raise
    except BadChallengeError as error:
        raise AuthenticationError(_failed(login, address, str(error))) from error
    except UnicodeError as error:
        # It holds what could not be encoded, which may be the password.
        raise AuthenticationError(_failed(login, address, type(error).__name__)) from None
    except Exception as error:
        raise AuthenticationError(_failed(login, address, type(error).__name__)) from error


def _failed(login: Login, address: str, reason: str) -> str:
    return f"SASL {login.mechanism} of {login.who} with {address} failed: {reason}"


class Authentication:
    """See the top of the file.

    Args:
        address: the broker's, for messages. ranges: its API versions.

    Attributes:
        lifetime_ms: how long the broker's session lasts, 0 for ever. Known once it is complete.
    """

    __slots__ = ("_address", "_challenges", "_exchange", "_login", "_ranges", "lifetime_ms")

    def __init__(self, login: Login, exchange: Exchange, address: str, ranges: Ranges) -> None:
        self._login = login
        self._exchange = exchange
        self._address = address
        self._ranges = ranges
        self._challenges = 0
        self.lifetime_ms = 0

    @property
    def renew_after_ms(self) -> int:
        """The time from this login to the next, if the broker's session ends."""
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
        """The version in which to send a message; None if there is none in common."""
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
            with exchanging(self._login, self._address):
                return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
        if response.error_code != error_codes.NONE:
            raise self._refused(response)
        with exchanging(self._login, self._address):
            words = self._answer(response.auth_bytes)
        if words is None:
            self.lifetime_ms = max(0, response.session_lifetime_ms)
            return None
        return SaslAuthenticateRequest(auth_bytes=words)

    def _answer(self, challenge: bytes) -> bytes | None:
        self._challenges += 1
        if self._challenges > _MOST_CHALLENGES:
            raise BadChallengeError(f"the broker does not end it after {_MOST_CHALLENGES} messages")
        if len(challenge) > _MOST_CHALLENGE_BYTES:
            raise BadChallengeError(
                f"the broker sent a message of {len(challenge)} bytes; at most {_MOST_CHALLENGE_BYTES} are read"
            )
        return self._exchange.answer(challenge)

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
