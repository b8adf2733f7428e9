"""SCRAM-SHA-256 and SCRAM-SHA-512, the broker's side (RFC 5802). `kadence.connection.sasl.scram` is the client's.

The password itself is not needed: the stored data (`ScramUser`) can check a proof but not make one. Names and
passwords are taken as they are, without SASLprep, as Kafka's tools store them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kadence.security.scram import HASHES, MIN_ITERATIONS
from kadence_broker.server.sasl.exchange import Login, LoginError

__all__ = ["ScramServer", "ScramUser", "scram_user"]

_CHANNEL: Final = base64.b64encode(b"n,,")


@dataclass(frozen=True, slots=True)
class ScramUser:
    """The stored data of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = MIN_ITERATIONS


def scram_user(mechanism: str, password: str) -> ScramUser:
    """Derive what is kept; takes milliseconds."""
    name, salt = HASHES[mechanism], secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, MIN_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramUser(salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))


class ScramServer:
    """One exchange. ``find`` returns the stored data of a user; None: there is no such user."""

    __slots__ = ("_find", "_hash", "_nonce", "_spoken", "_stored", "_user", "login")

    def __init__(self, mechanism: str, find: Callable[[str], ScramUser | None]) -> None:
        self._hash = HASHES[mechanism]
        self._find = find
        self._user = ""
        self._nonce = b""
        self._spoken = b""
        self._stored: ScramUser | None = None
        self.login: Login | None = None

    def step(self, data: bytes) -> bytes:
        return self._first(data) if self._stored is None else self._final(data, self._stored)

    def _first(self, message: bytes) -> bytes:
        flag, _, rest = message.partition(b",")
        authorization, _, bare = rest.partition(b",")
        fields = dict(part.partition(b"=")[::2] for part in bare.split(b","))
        if flag not in (b"n", b"y") or not fields.get(b"n") or not fields.get(b"r") or b"m" in fields:
            raise LoginError("the client's first message is not one of SCRAM's")
        try:
            self._user = _name(fields[b"n"])
            wanted = _name(authorization.removeprefix(b"a="))
        except UnicodeDecodeError:
            raise LoginError("the user's name is not UTF-8") from None
        stored = self._find(self._user)
        if stored is None:
            raise LoginError("there is no such user")
        if wanted not in ("", self._user):
            sentence = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise LoginError(sentence, client_message=sentence)
        self._nonce = fields[b"r"] + secrets.token_urlsafe(18).encode()
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(stored.salt), stored.iterations)
        self._spoken = bare + b"," + answer
        self._stored = stored
        return answer

    def _final(self, message: bytes, stored: ScramUser) -> bytes:
        without_proof, _, encoded = message.rpartition(b",p=")
        fields = dict(part.partition(b"=")[::2] for part in without_proof.split(b","))
        if fields.get(b"r") != self._nonce or fields.get(b"c") not in (_CHANNEL, base64.b64encode(b"y,,")):
            raise LoginError("the nonce or the channel binding of the client's final message is wrong")
        try:
            proof = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise LoginError("the proof is not base64") from None
        spoken = self._spoken + b"," + without_proof
        signature = hmac.digest(stored.stored_key, spoken, self._hash)
        if len(proof) != len(signature):
            raise LoginError("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored.stored_key):
            raise LoginError("the proof is wrong")
        self.login = Login(self._user)
        return b"v=" + base64.b64encode(hmac.digest(stored.server_key, spoken, self._hash))


def _name(escaped: bytes) -> str:
    return escaped.decode().replace("=2C", ",").replace("=3D", "=")
