"""OAUTHBEARER: the client sends a token (RFC 7628). By default an unsecured JWT, no protection: for tests only.

That is also what Kafka's broker takes when no validator is configured (`OAuthBearerUnsecuredValidatorCallbackHandler`).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kadence.clock import FOREVER, wall_ms
from kadence.logs import logger
from kadence_broker.server.sasl.exchange import Login, LoginError

__all__ = ["OAuthBearerServer", "TokenValidator", "ValidToken", "unsecured_token"]

_log = logger("kadence.broker")

_FIRST: Final = re.compile(rb"n,(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01")
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True)
class ValidToken:
    """The user and the expiry of a valid token. ``expires_at`` is in ms since 1970; None: it never expires."""

    user: str
    expires_at: int | None = None


TokenValidator = Callable[[str], ValidToken]
"""Gets a token and returns what it says.

If the token is not valid, it raises ValueError. Any other exception refuses the login too; the broker logs its type and
where it was raised, but not its text, which may hold the token. The function runs on the broker's thread: it must not
block.
"""


def unsecured_token(token: str) -> ValidToken:
    """Read a JWT with ``alg`` none: claims ``sub`` (the user) and ``exp``, and ``iat`` if it has one.

    Raises:
        ValueError: it is no such token, or its time is over.
    """
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise ValueError("an unsecured token has a header, claims and no signature")
    header, claims = _json(parts[0]), _json(parts[1])
    if header.get("alg") != "none":
        raise ValueError("the token's algorithm is not none")
    user, expires, issued = claims.get("sub"), _seconds(claims.get("exp")), _seconds(claims.get("iat", 0))
    if not isinstance(user, str) or not user:
        raise ValueError("the token has no claim sub")
    if expires is None or issued is None:
        raise ValueError("the token's claim exp or iat is no time")
    now = wall_ms()
    if expires * 1_000 <= now:
        raise ValueError("the token has expired")
    if issued * 1_000 > now:
        raise ValueError("the token was issued in the future")
    return ValidToken(user, int(expires * 1_000))


class OAuthBearerServer:
    """One exchange."""

    __slots__ = ("_refusal", "_validate", "login")

    def __init__(self, validate: TokenValidator) -> None:
        self._validate = validate
        self._refusal: str | None = None
        self.login: Login | None = None

    def step(self, data: bytes) -> bytes:
        if self._refusal is not None:
            # The client has confirmed that it read the reason (one byte 01); now it is refused.
            raise LoginError(self._refusal, client_message=self._refusal)
        found = _FIRST.fullmatch(data)
        if found is None:
            sentence = "Invalid OAUTHBEARER client first message"
            raise LoginError(sentence, client_message=sentence)
        pairs = dict(pair.partition("=")[::2] for pair in found[2].decode().split("\x01") if pair)
        authorization, token = pairs.get("auth", ""), ""
        if authorization.lower().startswith(_BEARER):
            token = authorization[len(_BEARER) :].strip()
        valid = self._judge(token)
        if valid is None:
            self._refusal = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return self._refusal.encode()
        wanted = (found[1] or b"").decode(errors="replace")
        if wanted not in ("", valid.user):
            sentence = "Authentication failed: Client requested an authorization id that is different from the token's"
            raise LoginError(sentence, client_message=sentence)
        self.login = Login(valid.user, valid.expires_at)
        return b""

    def _judge(self, token: str) -> ValidToken | None:
        try:
            return self._validate(token)
        except ValueError:
            return None
        except Exception as error:  # noqa: BLE001 - libraries for JWT raise what they like
            where = traceback.extract_tb(error.__traceback__)[-1]
            _log.warning(
                "a login is refused: token_validator raised %s (%s, line %s)",
                type(error).__qualname__,
                where.filename,
                where.lineno,
            )
            return None


def _json(part: str) -> dict[str, Any]:
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise ValueError("a part of the token is not JSON in base64") from None
    if not isinstance(value, dict):
        raise ValueError("a part of the token is not a JSON object")  # noqa: TRY004 - one kind of error for all tokens
    return value


def _seconds(value: object) -> float | None:
    """A time of which the milliseconds fit Kafka's int64."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < FOREVER / 1_000 else None
