"""A client of a schema registry: schemas by id and by subject, over HTTP.

What an id stands for never changes, so a worker asks once for each. Whoever may write to a topic can put ids into
records that the registry does not know, so a worker asks for such an id once a minute. Python's own urllib does: a task
makes a handful of requests in its life, and confluent-kafka's client would bring librdkafka and a second HTTP client
along.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from kadence.errors import ConfigError, TransportError
from kadence.logs import logger
from kadence.security.oauth import is_loopback
from kadence.spark.decode.isolation import BadRecordError
from kadence.spark.decode.options import RegistryOptions

__all__ = ["Registered", "Registry", "Schemas"]

_log = logger("kadence.spark")

ATTEMPTS: Final = 4
"""Of each look-up, spread over the addresses, with a wait of 0.25 s, 0.5 s and 1 s between them."""

TIMEOUT_S: Final = 10.0

REFUSED_MS: Final = 60_000
"""So long an id without a schema is not asked for again: the schema may be registered meanwhile."""

MOST_REFUSED: Final = 10_000
"""So many ids without a schema are remembered."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as the registry has it.

    Attributes:
        kind: AVRO, PROTOBUF or JSON. text: the schema; base64 of a file descriptor for Protobuf.
        references: what it refers to, by the names it uses, in the order in which they build on each other.
    """

    kind: str
    text: str
    references: tuple[tuple[str, Registered], ...] = ()


@dataclass(slots=True)
class Registry:
    """A client of a schema registry over HTTP. Used by one thread at a time.

    Raises:
        BadRecordError: there is no schema of that id.
        ConfigError: the registry refuses us, or knows no such subject.
        TransportError: it did not answer, again and again.
    """

    options: RegistryOptions
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    _opener: urllib.request.OpenerDirector | None = field(default=None, repr=False)

    def by_id(self, schema_id: int, *, kind: str) -> Registered:
        """The schema that a record names."""
        found = self._get(f"/schemas/ids/{schema_id}", kind)
        if found is None:
            raise BadRecordError(f"schema id {schema_id} is not in the registry")
        made = self._registered(found, kind)
        if made.kind != kind:
            raise BadRecordError(f"schema id {schema_id} is of type {made.kind}, not {kind}")
        return made

    def newest(self, subject: str, *, kind: str) -> Registered:
        """The newest schema of a subject."""
        found = self._version(subject, "latest", kind)
        if found.kind != kind:
            raise ConfigError(
                f"subject {subject!r} of the schema registry is of type {found.kind}, not {kind}"
            )
        return found

    def _version(self, subject: str, version: str, kind: str) -> Registered:
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", kind)
        if found is None:
            raise ConfigError(
                f"the schema registry has no subject {subject!r} with version {version}; the option value.subject or "
                "key.subject names another"
            )
        return self._registered(found, kind)

    def _registered(self, found: dict[str, Any], kind: str) -> Registered:
        references = tuple(
            (item["name"], self._version(item["subject"], str(item["version"]), kind))
            for item in found.get("references") or ()
        )
        return Registered(found.get("schemaType") or "AVRO", found["schema"], references)

    # ------------------------------------------------------------ HTTP

    def _get(self, path: str, kind: str) -> dict[str, Any] | None:
        """The answer's JSON; None for what does not exist."""
        # Of a Protobuf schema we take the compiled form: to compile its text would need protoc.
        query = "?format=serialized" if kind == "PROTOBUF" else ""
        problem = ""
        if self._opener is None:
            if self.options.user_info is not None or self.options.token is not None:
                for url in self.options.urls:
                    _about_to_talk(url)
            self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self._tls()))
        for attempt in range(ATTEMPTS):
            if attempt:
                self.sleep(0.125 * 2**attempt)
            url = self.options.urls[attempt % len(self.options.urls)]
            try:
                with self._open(self._opener, url + path + query) as answer:
                    made: dict[str, Any] = json.load(answer)
                    return made
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404:
                        return None
                    if error.code in (401, 403):
                        raise ConfigError(
                            f"the schema registry at {url} refused access ({error.code}): see the options "
                            "schema.registry.basic.auth.user.info, schema.registry.bearer.auth.token and "
                            "schema.registry.ssl.*"
                        ) from None
                    problem = f"it answered {error.code}"
            except (OSError, ValueError) as error:
                problem = str(getattr(error, "reason", error))
            _log.warning("schema registry at %s: %s", url, problem)
        raise TransportError(
            f"the schema registry at {' and '.join(self.options.urls)} did not give {path} in {ATTEMPTS} attempts: "
            f"{problem}"
        )

    def _open(self, opener: urllib.request.OpenerDirector, url: str) -> Any:
        request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 - options.py allows http and https only
        options = self.options
        # Unredirected: whoever a redirect leads to is not told who we are.
        if options.user_info is not None:
            secret = base64.b64encode(options.user_info.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {secret}")
        elif options.token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {options.token}")
        return opener.open(request, timeout=TIMEOUT_S)

    def _tls(self) -> ssl.SSLContext:
        options = self.options
        try:
            context = ssl.create_default_context(cafile=options.ca)
            if options.certificate is not None:
                context.load_cert_chain(options.certificate, options.key, options.key_password)
        except (OSError, ValueError) as problem:
            raise ConfigError(f"the files of schema.registry.ssl.* cannot be used: {problem}") from None
        return context


@lru_cache
def _about_to_talk(url: str) -> None:
    """Warn, once, when a password or a token is about to cross a network for everybody to read."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        _log.warning("the login of the schema registry is sent to %s unencrypted: use https://", url)


class Schemas:
    """Schemas by id, each asked for once; ids without a usable schema once a minute. Used by one thread at a time.

    Args:
        ask: for a schema, by options, id and kind; raises `BadRecordError` where there is none.
    """

    def __init__(self, ask: Callable[[RegistryOptions, int, str], Registered] | None = None) -> None:
        self._ask = lru_cache(maxsize=1024)(ask or _by_id)
        self._refused: dict[tuple[RegistryOptions, int, str], tuple[int, str]] = {}

    def get(self, now: int, options: RegistryOptions, schema_id: int, kind: str) -> Registered:
        """The schema of this id.

        Raises:
            BadRecordError: there is none, or it is of another kind. Others as of `Registry`.
        """
        key = options, schema_id, kind
        until, reason = self._refused.get(key, (now, ""))
        if now < until:
            raise BadRecordError(reason)
        try:
            return self._ask(*key)
        except BadRecordError as problem:
            self._refused.pop(key, None)
            while len(self._refused) >= MOST_REFUSED:
                # The oldest stands first.
                self._refused.pop(next(iter(self._refused)), None)
            self._refused[key] = now + REFUSED_MS, str(problem)
            raise


def _by_id(options: RegistryOptions, schema_id: int, kind: str) -> Registered:
    return Registry(options).by_id(schema_id, kind=kind)
