"""OAUTHBEARER: a token that another party has issued (RFC 7628), with Kafka's extensions (KIP-255, KIP-342)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from kadence.connection.sasl.exchange import BadChallengeError

__all__ = ["OAuthBearer", "check_token"]

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


def check_token(token: str, extensions: Mapping[str, str]) -> None:
    """Refuse what would break out of the message.

    Raises:
        ValueError: says what is wrong, without the token.
    """
    if not _TOKEN.fullmatch(token):
        raise ValueError("the token holds characters that no bearer token has (RFC 6750, section 2.1)")
    for name, value in extensions.items():
        if not _NAME.fullmatch(name) or name == "auth" or not _VALUE.fullmatch(value):
            raise ValueError(
                f"extension {name!r}: names are letters other than 'auth', values printable ASCII"
            )


class OAuthBearer:
    """One message; a broker that does not take the token says why, and waits for one byte before it refuses."""

    __slots__ = ("_extensions", "_is_refused", "_token")

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        check_token(token, extensions)
        self._token = token
        self._extensions = dict(extensions)
        self._is_refused = False

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        return ("n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs.items()) + "\x01").encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._is_refused:
            raise BadChallengeError("it has refused the token, and goes on where only the end may follow")
        if not challenge:
            return None
        try:
            refusal = json.loads(challenge)
        except (ValueError, RecursionError):
            refusal = None
        if not isinstance(refusal, dict) or "status" not in refusal:
            raise BadChallengeError("its answer to the token is not one of OAUTHBEARER's")
        self._is_refused = True
        return b"\x01"
