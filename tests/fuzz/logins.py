"""Logins: what a broker says to a client, what a client says to the broker, and what an endpoint of tokens says.

The input is a byte that chooses the mechanism, and messages behind their lengths.
"""

from __future__ import annotations

import base64
import functools
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.connection.test_gssapi import Peer
from tests.connection.test_sasl import NONCE, SERVER_FINAL, SERVER_FIRST
from tests.fuzz.mutation import DEEP
from tests.fuzz.target import Target

from kadence.connection.authentication import Authentication
from kadence.connection.sasl.gssapi import Gssapi
from kadence.connection.sasl.oauthbearer import OAuthBearer
from kadence.connection.sasl.plain import Plain
from kadence.connection.sasl.scram import Scram
from kadence.errors import KafkaError
from kadence.net.endpoint import _token
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kadence.security import ClientCredentials, Secret
from kadence_broker.server.sasl import LoginError
from kadence_broker.server.security import Security
from kadence_broker.server.session import Session

__all__ = ["CHALLENGES", "TOKENS", "WORDS"]

_LENGTH: Final = struct.Struct(">H")
_MOST: Final = 20
"""Messages of one login."""


def _pack(way: int, *messages: bytes) -> bytes:
    return bytes([way]) + b"".join(_LENGTH.pack(len(each)) + each for each in messages)


def _unpack(data: bytes) -> tuple[int, Iterator[bytes]]:
    def messages() -> Iterator[bytes]:
        at = 1
        for _ in range(_MOST):
            if at + _LENGTH.size > len(data):
                return
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + size
            yield data[at - size : at]

    return (data[0] if data else 0), messages()


# What a broker says


class _Login:
    mechanism = "PLAIN"
    who = "user 'user'"

    def begin(self, now: int, host: str = "") -> None:
        return None


_EXCHANGES: Final[tuple[Callable[[], Any], ...]] = (
    lambda: Plain("user", "pencil"),
    lambda: Scram("SCRAM-SHA-256", "user", "pencil", NONCE),
    lambda: OAuthBearer("token", {"a": "b"}),
    lambda: Gssapi(Peer(b"more", None), b"ticket", lambda error: None),
)
_OFFERED: Final = {SaslHandshakeRequest.API_KEY: (0, 1), SaslAuthenticateRequest.API_KEY: (0, 2)}


def _challenge_seeds() -> list[bytes]:
    return [
        _pack(0, b""),
        _pack(0, b"x" * 50),
        _pack(1, SERVER_FIRST, SERVER_FINAL),
        _pack(1, SERVER_FIRST, b"e=other-error"),
        _pack(2, b""),
        _pack(2, b'{"status":"invalid_token","scope":"s","openid-configuration":"https://a/b"}', b""),
        _pack(2, DEEP[:16_000]),
        _pack(3, b"a", b"b", b"[\x01\x00\xff\xff]", b""),
    ]


def _hear(data: bytes) -> object:
    way, messages = _unpack(data)
    exchange = _EXCHANGES[way % len(_EXCHANGES)]()
    talk = Authentication(_Login(), exchange, "broker 1 (kafka:9092)", _OFFERED)
    talk.start()
    try:
        talk.answered(SaslHandshakeResponse(mechanisms=["PLAIN"]))
        for message in messages:
            if talk.answered(SaslAuthenticateResponse(auth_bytes=message)) is None:
                break
    except KafkaError as error:
        return error
    return talk


# What a client says


@functools.cache
def _security() -> Security:
    return Security(users={"user": "pencil"}, mechanisms=_MECHANISMS)


_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def _jwt(**claims: Any) -> bytes:
    parts = ({"alg": "none"}, {"sub": "user", "exp": 4_000_000_000, "iat": 1, **claims})
    return (
        b".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts) + b"."
    )


def _word_seeds() -> list[bytes]:
    final = b"c=biws,r=" + NONCE.encode() + b"x,p=" + base64.b64encode(bytes(32))
    return [
        _pack(0, b"\0user\0pencil"),
        _pack(0, b"user\0user\0pencil"),
        _pack(1, b"n,,n=user,r=" + NONCE.encode(), final),
        _pack(2, b"n,a=user,n=us=2Cer,r=x", final),
        _pack(3, b"n,,\x01auth=Bearer " + _jwt() + b"\x01a=b\x01\x01"),
        _pack(3, b"n,,\x01auth=Bearer e30." + base64.urlsafe_b64encode(DEEP).rstrip(b"=") + b".\x01\x01"),
        _pack(3, b"n,a=user,\x01auth=Bearer " + _jwt(exp=1e300) + b"\x01\x01"),
        _pack(3, b"n,,\x01auth=Bearer x.y.\x01\x01", b"\x01"),
    ]


def _say(data: bytes) -> object:
    way, messages = _unpack(data)
    session = Session(_security(), 3_600_000)
    mechanism = _MECHANISMS[way % len(_MECHANISMS)]
    session.handshake(mechanism, way >> 7, 1_000)
    for message in messages:
        if session.takes_tokens:
            try:
                session.token(message, 2_000)
            except LoginError as error:
                return error
            continue
        answer, ends = session.authenticate(message, 2_000)
        if ends:
            assert answer.error_code
            assert not session.is_open
            return None
    return session.is_open or None


# What an endpoint says


def _read_token(data: bytes) -> object:
    source = ClientCredentials("https://tokens/", "me", Secret("secret"), None, {}, False)
    try:
        token = _token(data, source, "the token endpoint https://tokens/")
        OAuthBearer(token.value, {})
    except (KafkaError, ValueError) as error:
        # What a provider of tokens raises is a refused login.
        return error
    return token


CHALLENGES: Final = Target("challenges", _challenge_seeds, _hear, share=15_000)
WORDS: Final = Target("words", _word_seeds, _say, share=100_000)
TOKENS: Final = Target(
    "tokens",
    lambda: [
        b'{"access_token": "abc", "expires_in": 3600, "token_type": "bearer"}',
        b'{"access_token": "' + _jwt() + b'"}',
        DEEP,
        b'{"access_token": 5, "expires_in": "x"}',
    ],
    _read_token,
    share=90_000,
    allocation=(1_000, 60_000),
)
