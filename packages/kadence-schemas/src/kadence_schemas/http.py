"""Requests to a schema registry, over HTTP.

A schema counts as missing only by one of the registry's own error codes: any other 404 comes from a wrong address or
from a proxy, and would make good records bad. Python's urllib is sufficient: a client makes a handful of requests in
its life, and confluent-kafka's client would bring librdkafka and a second HTTP client along.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from kadence.clock import Clock, SystemClock
from kadence.errors import ConfigError, SchemaRefusedError, SchemaRegistryError
from kadence.logs import logger
from kadence.printable import printable
from kadence.security.files import warn_if_open
from kadence.security.oauth import is_loopback
from kadence_schemas.settings import RegistryOptions

__all__ = ["MOST_BYTES", "Http", "NoPathError"]

_log = logger("kadence.registry")

MOST_BYTES: Final = 16 << 20
"""The longest answer that is read. A registry keeps a schema as one record of a topic: 1 MiB by default."""

MOST_SAID: Final = 300
"""How many characters of a registry's message are shown."""

_FORM: Final = "application/vnd.schemaregistry.v1+json"

_REFUSALS: Final = {409, 422}
"""An incompatible schema; an unreadable one."""

_NO_PATH: Final = {404, 405}

_OWN_CODES: Final = 10_000
"""The registry's own error codes start here (five digits); those of its web server have three."""


class NoPathError(SchemaRegistryError):
    """The server does not know this path: it is not a registry, or too old."""


class Http:
    """Sends requests to one registry, which may have several addresses. Any number of threads may use it.

    Args:
        sleep: waits (s). clock: for the time limit of an answer.
    """

    def __init__(
        self,
        options: RegistryOptions,
        sleep: Callable[[float], None] = time.sleep,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        self._options = options
        self._sleep = sleep
        self._clock = clock
        self._context: ssl.SSLContext | None = None

    def ask(
        self,
        path: str,
        missing: tuple[int, ...] = (),
        *,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The answer's JSON; None if the registry returns one of the codes ``missing``.

        Raises:
            ConfigError: the registry refuses access, or the files of TLS cannot be used.
            SchemaRefusedError: it refuses the schema in ``body``.
            NoPathError: it does not know this path, by the answer to each attempt. SchemaRegistryError: no attempt got
                an answer of a registry.
        """
        problem = ""
        # An address that did not answer may know the path.
        lacks_path = True
        data = None if body is None else json.dumps(body).encode()
        context = self._context = self._context or self._new_context()
        # Few retries must not keep an address that answers from being asked.
        attempts = max(1 + self._options.retries, len(self._options.urls))
        for attempt in range(attempts):
            if attempt:
                self._sleep(min(0.125 * 2**attempt, 8.0))
            url = self._options.urls[attempt % len(self._options.urls)]
            login = self._login()
            is_no_path = False
            try:
                until = self._clock.now_ms() + int(1000 * self._options.timeout)
                remaining = partial(_remaining, self._clock, until)
                with self._open(_opener(context, remaining), url + path, method, data, login) as answer:
                    return _json(answer, remaining)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code in (401, 403):
                        raise ConfigError(
                            f"the schema registry at {url} refused access ({error.code}): see the options "
                            "schema.registry.basic.auth.user.info, schema.registry.bearer.auth.token and "
                            "schema.registry.ssl.*"
                        ) from None
                    code, said = _failure(error, remaining)
                    if error.code == 404 and code in missing:
                        return None
                    if body is not None and error.code in _REFUSALS and code is not None:
                        raise SchemaRefusedError(
                            f"the schema registry refused the schema with error_code {code}: {said}"
                        ) from None
                    is_no_path = error.code in _NO_PATH and (code or 0) < _OWN_CODES
                    problem = f"it answered {error.code}"
                    if code:
                        problem += f" with error_code {code}"
                    elif error.code == 404:
                        problem += ", unlike a registry: is this its address?"
                    elif 300 <= error.code < 400:
                        problem += ", and its redirect leads to no answer"
            except (OSError, ValueError, HTTPException) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
            lacks_path = lacks_path and is_no_path
            _log.warning("schema registry at %s: %s", url, problem)
        raise (NoPathError if lacks_path else SchemaRegistryError)(
            f"the schema registry at {self.where} did not return {path.partition('?')[0]} in {attempts} attempts: "
            f"{problem} (option schema.registry.url)"
        )

    @property
    def where(self) -> str:
        """The addresses, for the text of an error."""
        return " and ".join(self._options.urls)

    def _new_context(self) -> ssl.SSLContext:
        if self._options.user_info is not None or self._options.token is not None:
            for url in self._options.urls:
                _about_to_talk(url)
        return self._tls()

    def _open(
        self,
        opener: urllib.request.OpenerDirector,
        url: str,
        method: str,
        data: bytes | None,
        login: str | None,
    ) -> Any:
        headers = {"Accept": _FORM, "Content-Type": _FORM} if data is not None else {"Accept": _FORM}
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - settings.py allows http and https only
        if login is not None:
            # Unredirected: the target of a redirect must not get the login.
            request.add_unredirected_header("Authorization", login)
        return opener.open(request, timeout=self._options.timeout)

    def _login(self) -> str | None:
        if self._options.user_info is not None:
            return f"Basic {base64.b64encode(self._options.user_info.encode()).decode()}"
        return None if self._options.token is None else f"Bearer {self._token()}"

    def _token(self) -> str:
        token = self._options.token
        if callable(token):
            try:
                token = token()
            except Exception as problem:
                # Not its text, which may contain a secret; the cause has it.
                raise SchemaRegistryError(
                    f"the callable in schema.registry.bearer.auth.token raised {type(problem).__name__}"
                ) from problem
        # http.client's error would show the value that it cannot send.
        if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
            raise ConfigError(
                "schema.registry.bearer.auth.token must give a token: ASCII characters on one line",
                key="schema.registry.bearer.auth.token",
            )
        return token

    def _tls(self) -> ssl.SSLContext:
        options = self._options
        try:
            context = ssl.create_default_context(cafile=options.ca)
            if options.certificate is not None:
                if not options.key_password:
                    warn_if_open(options.key or options.certificate, "a private key")
                context.load_cert_chain(options.certificate, options.key, options.key_password)
        except (OSError, ValueError) as problem:
            raise ConfigError(f"the files of schema.registry.ssl.* cannot be used: {problem}") from None
        return context


def _opener(context: ssl.SSLContext, remaining: Callable[[], float]) -> urllib.request.OpenerDirector:
    """Makes one request, and follows its redirects: by HTTP only, and while there is time."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Plain(remaining),
        _Secure(remaining, context),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _remaining(clock: Clock, until: int) -> float:
    """The seconds left.

    Raises:
        TimeoutError: there are none.
    """
    left = until - clock.now_ms()
    if left <= 0:
        raise TimeoutError("its answer did not end in time")
    return left / 1000


class _Incoming(io.RawIOBase):
    """Reads a socket, until a deadline. The socket's own timeout would apply to each piece."""

    def __init__(self, sock: socket.socket, remaining: Callable[[], float]) -> None:
        self._sock = sock
        # It counts readers, so that the socket is closed after the last.
        self._raw: Any = sock.makefile("rb", buffering=0)
        self._remaining = remaining

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._remaining())
        found: int | None = self._raw.readinto(buffer)
        return found

    def close(self) -> None:
        self._raw.close()
        super().close()


def _answer_until(remaining: Callable[[], float]) -> Callable[..., HTTPResponse]:
    def make(sock: socket.socket, *arguments: Any, **more: Any) -> HTTPResponse:
        made = HTTPResponse(sock, *arguments, **more)
        made.fp.close()
        made.fp = io.BufferedReader(_Incoming(sock, remaining))
        return made

    return make


def _connection_until(
    kind: type[HTTPConnection], remaining: Callable[[], float]
) -> Callable[..., HTTPConnection]:
    def make(host: str, **more: Any) -> HTTPConnection:
        made = kind(host, **{**more, "timeout": remaining()})
        made.response_class = _answer_until(remaining)  # type: ignore[assignment]
        return made

    return make


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, remaining: Callable[[], float]) -> None:
        super().__init__()
        self._remaining = remaining

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_connection_until(HTTPConnection, self._remaining), request)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, remaining: Callable[[], float], context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._remaining = remaining
        self._tls = context

    def https_open(self, request: urllib.request.Request) -> Any:
        make = _connection_until(HTTPSConnection, self._remaining)
        return self.do_open(make, request, context=self._tls)


def _json(answer: Any, remaining: Callable[[], float]) -> Any:
    """An answer's JSON.

    Raises:
        ValueError: it is not JSON, too large or nested too deeply. TimeoutError: it is not complete in time.
    """
    text = bytearray()
    while piece := answer.read1(1 << 16):
        text += piece
        if len(text) > MOST_BYTES:
            raise ValueError(f"its answer has more than {MOST_BYTES >> 20} MiB")
        remaining()
    try:
        found = json.loads(text)
        if b"\\u" in text:
            # Half a surrogate pair cannot be sent or written.
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError:
        raise ValueError("its answer contains text that is not Unicode") from None
    except ValueError:
        raise ValueError("its answer is not JSON") from None
    except RecursionError:
        raise ValueError("its answer is nested too deeply") from None


def _failure(answer: Any, remaining: Callable[[], float]) -> tuple[int | None, str]:
    """The registry's own error code and message in an answer; None and an empty text if it has none."""
    try:
        found = _json(answer, remaining)
    except (OSError, ValueError, HTTPException):
        return None, ""
    code = found.get("error_code") if isinstance(found, dict) else None
    if not isinstance(code, int):
        return None, ""
    return code, printable(str(found.get("message", ""))[:MOST_SAID])


@lru_cache
def _about_to_talk(url: str) -> None:
    """Warn, once, when a password or a token is about to cross a network unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        _log.warning("the login of the schema registry is sent to %s unencrypted: use https://", url)
