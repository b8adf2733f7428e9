"""A login by tokens of a provider or an endpoint (OAUTHBEARER: KIP-255, KIP-768). Network thread.

A provider or a token endpoint may take its time, so it is never asked on the network thread. Connections that need
a token wait for it; one fetch serves all of them, and the token serves until 80 % of its life is over. If a new one
cannot be obtained, the old one is used as long as it is valid.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kadence.connection.sasl.exchange import Exchange
from kadence.connection.sasl.oauthbearer import OAuthBearer, check_token
from kadence.errors import AuthenticationError, KafkaError
from kadence.forked import ThisProcess
from kadence.logs import OwnThread, logger
from kadence.security import ClientCredentials, Credentials, Token

if TYPE_CHECKING:
    from kadence.net.config import ConnectionConfig

__all__ = ["TokenLogin", "token_login"]

_log = logger("kadence.net")

_LIFE_SHARE: Final = 0.8

_LONGEST_LIFE_S: Final = 365 * 24 * 3600.0
"""A token with a longer life, or an endless one, is renewed after four fifths of a year."""


class TokenLogin:
    """OAUTHBEARER with a source of tokens that may block. Network thread, but for the worker inside."""

    mechanism: Final = "OAUTHBEARER"

    def __init__(self, source: Callable[[], Token], who: str, notify: Callable[[], None]) -> None:
        self._source = source
        self._notify = notify
        self.who = who
        self._token: Token | None = None
        self._refresh_at = 0
        self._expires_at = 0
        self._error: KafkaError | None = None
        self._is_asked = False
        # Between `deliver` and `served` each login gets the result, even if it expires at once.
        self._is_serving = False
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._come: deque[Token | KafkaError] = deque()
        self._thread: threading.Thread | None = None

    def begin(self, now: int, host: str = "") -> Exchange | None:
        token = self._token
        if token is not None and (now < self._refresh_at or self._is_serving):
            return OAuthBearer(token.value, token.extensions)
        if self._error is not None:
            raise type(self._error)(*self._error.args) from self._error.__cause__
        if not self._is_asked:
            self._is_asked = True
            if self._thread is None:
                self._thread = OwnThread(target=self._work, name="kadence-tokens")
                self._thread.start()
            self._asked.put(True)
        return None

    def deliver(self, now: int) -> bool:
        if not self._come:
            return False
        come = self._come.popleft()
        self._is_asked = False
        if isinstance(come, Token):
            self._token, self._is_serving = come, True
            # Its expiry is given by the wall clock; from here on the monotonic clock counts.
            left_ms = _left_ms(come.expires_at, time.time())
            self._refresh_at, self._expires_at = now + int(left_ms * _LIFE_SHARE), now + left_ms
        elif self._token is not None and now < self._expires_at:
            _log.warning("no new token; the old one stays in use: %s", come)
            self._is_serving = True
        else:
            self._token, self._error = None, come
        return True

    def served(self) -> None:
        self._is_serving = False
        self._error = None

    def close(self) -> None:
        """Let the worker end after its current work."""
        self._asked.put(False)

    def __repr__(self) -> str:
        return f"<login by {self.mechanism} of {self.who}>"

    def _work(self) -> None:
        here = ThisProcess()
        while self._asked.get():
            self._come.append(self._ask(here))
            self._notify()

    def _ask(self, here: ThisProcess) -> Token | KafkaError:
        try:
            # A provider is user code.
            token: object = here.call(self._source)
            if not isinstance(token, Token):
                kind = type(token).__name__
                return AuthenticationError(
                    f"sasl.oauthbearer.token.provider: {self.who} returned {kind}, not kadence.Token"
                )
            check_token(token.value, token.extensions)
            _check_end(token.expires_at)
        except KafkaError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the provider is the user's; this is how its errors are told
            failure = AuthenticationError(f"no token for {self.who}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            return failure
        return token


def _check_end(expires_at: object) -> None:
    """Refuse an expiry that is not a time.

    Raises:
        AuthenticationError: with the given value and the expected form.
    """
    given = type(expires_at).__name__
    if isinstance(expires_at, float) and math.isnan(expires_at):
        given = "NaN"
    elif expires_at is None or (isinstance(expires_at, (int, float)) and not isinstance(expires_at, bool)):
        return
    raise AuthenticationError(
        f"the token's expires_at is {given}; seconds since 1970 are expected (for a datetime: its timestamp()), "
        "or None if its end is unknown"
    )


def _left_ms(expires_at: float | None, time_s: float) -> int:
    """How long a token remains valid, at this wall-clock time. Very long times, and infinity, are cut."""
    if expires_at is None or expires_at <= time_s:
        return 0
    return int((min(expires_at, time_s + _LONGEST_LIFE_S) - time_s) * 1000)


def token_login(config: ConnectionConfig, credentials: Credentials, notify: Callable[[], None]) -> TokenLogin:
    """The login of these credentials. ``notify`` is called when a token, or its failure, is ready."""
    return TokenLogin(_source(credentials, config), _who(credentials), notify)


def _who(credentials: Credentials) -> str:
    if credentials.username:
        return f"client {credentials.username!r}"
    module, name = (getattr(credentials.tokens, part, None) for part in ("__module__", "__qualname__"))
    return f"the token provider {module}:{name}" if module and name else "the token provider"


def _source(credentials: Credentials, config: ConnectionConfig) -> Callable[[], Token]:
    source = credentials.tokens
    if not isinstance(source, ClientCredentials):
        assert source is not None
        return source
    from kadence.net.endpoint import fetch_token

    return lambda: fetch_token(source, config.token_context, config.connect_timeout_ms / 1000)
