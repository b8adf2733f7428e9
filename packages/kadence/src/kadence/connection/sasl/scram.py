"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password (RFC 5802, RFC 7677).

    client-first   n,,n=user,r=nonce
    server-first   r=nonce+theirs,s=salt,i=iterations
    client-final   c=biws,r=nonce+theirs,p=proof
    server-final   v=signature            (or e=error)

Without channel binding, which Kafka has not. Names and passwords are taken as they are: Kafka's broker and tools do
not put them through SASLprep, so a client that did would be refused wherever that makes a difference.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterator
from typing import Final

from kadence.connection.sasl.exchange import BadChallengeError
from kadence.security.scram import HASHES, MIN_ITERATIONS

__all__ = ["MAX_ITERATIONS", "Scram"]

MAX_ITERATIONS: Final = 200_000
"""A peer with more is not a broker, but wants the network thread busy; Kafka's own limit is 16384."""

_HEADER: Final = b"n,,"


class Scram:
    """One exchange. ``nonce`` is for tests; otherwise it is random.

    The salted password takes milliseconds to compute, without the interpreter's lock.
    """

    __slots__ = ("_first_bare", "_hash", "_nonce", "_password", "_signature")

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = (secrets.token_urlsafe(24) if nonce is None else nonce).encode()
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._first_bare = b"n=" + name + b",r=" + self._nonce
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return _HEADER + self._first_bare

    def answer(self, challenge: bytes) -> bytes | None:
        if self._signature is None:
            return self._server_first(challenge)
        self._server_final(challenge, self._signature)
        return None

    def _server_first(self, message: bytes) -> bytes:
        fields = dict(_fields(message))
        if b"e" in fields:
            raise BadChallengeError(f"the broker says {fields[b'e'].decode(errors='replace')!r}")
        if b"m" in fields:
            raise BadChallengeError("the broker asks for an unknown extension of SCRAM")
        try:
            nonce, salt, count = fields[b"r"], _base64(fields[b"s"]), fields[b"i"]
        except KeyError as missing:
            raise BadChallengeError(f"its first message lacks {missing.args[0].decode()}=") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise BadChallengeError("its nonce does not begin with this client's")
        if not (count.isdigit() and len(count) < 10) or not salt:
            raise BadChallengeError("its salt or its number of iterations is invalid")
        iterations = int(count)
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise BadChallengeError(
                f"it wants {iterations} iterations; between {MIN_ITERATIONS} and {MAX_ITERATIONS} are accepted"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        final_bare = b"c=" + base64.b64encode(_HEADER) + b",r=" + nonce
        spoken = b",".join((self._first_bare, message, final_bare))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), spoken)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), spoken)
        return final_bare + b",p=" + base64.b64encode(proof)

    def _server_final(self, message: bytes, expected: bytes) -> None:
        fields = dict(_fields(message))
        if b"e" in fields:
            raise BadChallengeError(f"the broker says {fields[b'e'].decode(errors='replace')!r}")
        if not hmac.compare_digest(_base64(fields.get(b"v", b"")), expected):
            raise BadChallengeError(
                "its signature is wrong: it does not know the password, so it is not trusted"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> Iterator[tuple[bytes, bytes]]:
    for part in message.split(b","):
        name, equals, value = part.partition(b"=")
        if len(name) != 1 or not equals:
            raise BadChallengeError("its message is not one of SCRAM's")
        yield name, value


def _base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise BadChallengeError("its message holds broken base64") from None
