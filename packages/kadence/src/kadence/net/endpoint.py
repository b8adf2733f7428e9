"""Tokens from an OAuth endpoint by client credentials (RFC 6749, section 4.4; KIP-768). Blocks: helper thread only."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

from kadence.errors import AuthenticationError, ConnectError
from kadence.printable import printable
from kadence.security import ClientCredentials, Token

__all__ = ["fetch_token"]

_LONGEST: Final = 1 << 20
_SHOWN: Final = 300


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The secret is sent only to the configured address."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


def fetch_token(source: ClientCredentials, context: ssl.SSLContext | None, timeout: float) -> Token:
    """Ask the endpoint once; ``timeout`` (s) is for each step on the way.

    Raises:
        AuthenticationError: it refused, or answered without a token. ConnectError: it cannot be reached now.
    """
    client_id, secret = source.client_id, source.secret.reveal()
    if source.is_encoded:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    request = urllib.request.Request(  # noqa: S310 - the configuration has checked the scheme
        source.url,
        data=urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        method="POST",
    )
    opener = urllib.request.build_opener(
        _NoRedirects(), urllib.request.HTTPSHandler(context=context or ssl.create_default_context())
    )
    where = f"the token endpoint {source.url}"
    try:
        with opener.open(request, timeout=timeout) as response:
            body = response.read(_LONGEST)
    except urllib.error.HTTPError as error:
        with error:
            told = _told(error)
        kind = ConnectError if error.code >= 500 or error.code == 429 else AuthenticationError
        raise kind(f"{where} refused client {source.client_id!r}: HTTP {error.code} {told}") from None
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConnectError(f"{where} cannot be reached: {reason}") from None
    return _token(body, source, where)


def _token(body: bytes, source: ClientCredentials, where: str) -> Token:
    try:
        answer = json.loads(body)
        value = answer["access_token"]
        seconds = answer.get("expires_in")
        expires_at = None if seconds is None else time.time() + float(seconds)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        # The body may hold half a token: it is not shown.
        raise AuthenticationError(f"{where} answered without access_token") from None
    return Token(
        str(value), expires_at if expires_at is not None else _claimed_end(str(value)), source.extensions
    )


def _claimed_end(token: str) -> float | None:
    """A JWT's expiry time, for endpoints that do not report it."""
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None


def _told(error: urllib.error.HTTPError) -> str:
    """The endpoint's own text: the error of RFC 6749, section 5.2, or only HTTP's reason."""
    try:
        answer = json.loads(error.read(_LONGEST))
        words = ": ".join(str(answer[key]) for key in ("error", "error_description") if key in answer)
    except (ValueError, TypeError, OSError, HTTPException, RecursionError):
        words = ""
    return printable((words or str(error.reason))[:_SHOWN])
