"""A client of a schema registry: schemas by id and by subject, over HTTP.

What an id stands for never changes, so a worker asks once for each. Whoever may write to a topic can put ids into
records that the registry does not know, so a worker asks for such an id once a minute. Only the registry itself can say
that an id has no schema, with one of its error codes: any other 404 comes from a wrong address or from something on the
way, and would make good records bad. Python's own urllib does: a task makes a handful of requests in its life, and
confluent-kafka's client would bring librdkafka and a second HTTP client along.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

from kadence.errors import ConfigError, TransportError
from kadence.logs import logger
from kadence.security.oauth import is_loopback
from kadence.spark.decode.isolation import BadRecordError
from kadence.spark.decode.options import RegistryOptions

__all__ = ["Registered", "Registry", "Schemas"]

_log = logger("kadence.spark")

_T = TypeVar("_T")
_Key: TypeAlias = "tuple[RegistryOptions, int, str]"

ATTEMPTS: Final = 4
"""Of each look-up, spread over the addresses, with a wait of 0.25 s, 0.5 s and 1 s between them."""

TIMEOUT_S: Final = 10.0

AT_ONCE: Final = 8
"""So many ids are asked for side by side."""

MOST_BYTES: Final = 16 << 20
"""No answer is read further. A registry keeps a schema as one record of a topic: 1 MiB, unless somebody raised it."""

MOST_REFERENCES: Final = 1000
"""So many other schemas one schema may need."""

LAG_S: Final = 1.0
"""So long after a first "no such id" we ask again: an instance that follows another one learns of an id a moment later
than the producer that registered it."""

REFUSED_MS: Final = 60_000
"""So long an id without a schema is not asked for again: the schema may be registered meanwhile."""

MOST_REFUSED: Final = 10_000
"""So many ids without a schema are remembered."""

MOST_KNOWN: Final = 10_000
"""So many schemas are remembered."""

NO_SUBJECT: Final = 40401
NO_VERSION: Final = 40402
NO_SCHEMA: Final = 40403
"""Error codes of Confluent's API; Karapace, Redpanda and Apicurio have the same. Apicurio says 40401 of an unknown id,
too, where it is set to legacy ids (its class CCompatExceptionMapperService)."""


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
        ConfigError: the registry refuses us, or knows no such subject.
        TransportError: it did not answer as a registry does, again and again.
    """

    options: RegistryOptions
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    _opener: urllib.request.OpenerDirector | None = field(default=None, repr=False)

    def by_ids(self, ids: Iterable[int], *, kind: str) -> dict[int, Registered | BadRecordError]:
        """The schemas that records name, asked for side by side; the reason for each id that has none of this kind."""
        self._opener = self._opener or self._new_opener()
        wanted = list(ids)
        if len(wanted) < 2:
            return {schema_id: self._by_id(schema_id, kind) for schema_id in wanted}
        pool = ThreadPoolExecutor(min(AT_ONCE, len(wanted)), "kadence-registry")
        try:
            return dict(
                zip(wanted, pool.map(lambda schema_id: self._by_id(schema_id, kind), wanted), strict=True)
            )
        finally:
            pool.shutdown(cancel_futures=True)

    def newest(self, subject: str, *, kind: str) -> Registered:
        """The newest schema of a subject."""
        found = self._get(_version(subject, "latest"), kind, (NO_SUBJECT, NO_VERSION))
        if found is None:
            raise ConfigError(
                f"the schema registry has no subject {subject!r} with a version; the option value.subject or "
                "key.subject names another"
            )
        made = self._registered(found, kind)
        if made.kind != kind:
            raise ConfigError(
                f"subject {subject!r} of the schema registry is of type {made.kind}, not {kind}"
            )
        return made

    def _by_id(self, schema_id: int, kind: str) -> Registered | BadRecordError:
        found = self._get(f"/schemas/ids/{schema_id}", kind, (NO_SCHEMA, NO_SUBJECT))
        if found is None:
            return BadRecordError(f"schema id {schema_id} is not in the registry")
        made = self._registered(found, kind)
        if made.kind != kind:
            return BadRecordError(f"schema id {schema_id} is of type {made.kind}, not {kind}")
        return made

    def _registered(self, answer: Mapping[str, Any], kind: str) -> Registered:
        """With all that it refers to, each asked for once."""
        known: dict[tuple[str, str], Registered | None] = {}

        def made(found: Mapping[str, Any]) -> Registered:
            references = []
            for item in found.get("references") or ():
                place = item["subject"], str(item["version"])
                if place not in known:
                    if len(known) >= MOST_REFERENCES:
                        raise TransportError(
                            f"a schema of the registry needs more than {MOST_REFERENCES} others"
                        )
                    known[place] = None
                    known[place] = made(self._reference(*place, kind))
                reference = known[place]
                if reference is None:
                    raise TransportError(
                        f"subject {place[0]!r} with version {place[1]} of the schema registry refers to itself"
                    )
                references.append((item["name"], reference))
            text = found["schema"]
            if not isinstance(text, str):
                raise TypeError
            return Registered(found.get("schemaType") or "AVRO", text, tuple(references))

        try:
            return made(answer)
        except (KeyError, TypeError, AttributeError):
            raise TransportError(
                f"what answers at {' and '.join(self.options.urls)} is no schema registry: its answer is JSON, but no "
                "schema (option schema.registry.url)"
            ) from None
        except RecursionError:
            raise TransportError("references of the registry's schemas are nested too deep") from None

    def _reference(self, subject: str, version: str, kind: str) -> Mapping[str, Any]:
        found = self._get(_version(subject, version), kind, (NO_SUBJECT, NO_VERSION))
        if found is None:
            raise TransportError(
                f"a schema refers to subject {subject!r} with version {version}, which the registry does not have"
            )
        return found

    # ------------------------------------------------------------ HTTP

    def _get(self, path: str, kind: str, missing: tuple[int, ...]) -> dict[str, Any] | None:
        """The answer's JSON; None where the registry says with one of these codes that there is no such thing."""
        # Of a Protobuf schema we take the compiled form: to compile its text would need protoc.
        query = "?format=serialized" if kind == "PROTOBUF" else ""
        problem = ""
        opener = self._opener = self._opener or self._new_opener()
        for attempt in range(ATTEMPTS):
            if attempt:
                self.sleep(0.125 * 2**attempt)
            url = self.options.urls[attempt % len(self.options.urls)]
            try:
                with self._open(opener, url + path + query) as answer:
                    return _object(answer)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code in (401, 403):
                        raise ConfigError(
                            f"the schema registry at {url} refused access ({error.code}): see the options "
                            "schema.registry.basic.auth.user.info, schema.registry.bearer.auth.token and "
                            "schema.registry.ssl.*"
                        ) from None
                    problem = f"it answered {error.code}"
                    if error.code == 404:
                        code = _code(error)
                        if code in missing:
                            return None
                        problem += (
                            f" with error_code {code}"
                            if code
                            else " as no registry does: is this its address?"
                        )
            except (OSError, ValueError, HTTPException) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
            _log.warning("schema registry at %s: %s", url, problem)
        raise TransportError(
            f"the schema registry at {' and '.join(self.options.urls)} did not give {path} in {ATTEMPTS} attempts: "
            f"{problem} (option schema.registry.url)"
        )

    def _new_opener(self) -> urllib.request.OpenerDirector:
        if self.options.user_info is not None or self.options.token is not None:
            for url in self.options.urls:
                _about_to_talk(url)
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=self._tls()))

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


def _version(subject: str, version: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"


def _object(answer: Any) -> dict[str, Any]:
    """An answer's JSON.

    Raises:
        ValueError: it is none, too large or nested too deep.
    """
    text = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"its answer has more than {MOST_BYTES >> 20} MiB")
    try:
        made = json.loads(text)
    except ValueError:
        raise ValueError("its answer is no JSON") from None
    except RecursionError:
        raise ValueError("its answer is nested too deep") from None
    if not isinstance(made, dict):
        raise ValueError("its answer is no JSON object")  # noqa: TRY004 - the server's mistake, not a caller's
    return made


def _code(answer: Any) -> int | None:
    """The registry's own error code in an answer; None where it has none."""
    try:
        code = _object(answer).get("error_code")
    except (OSError, ValueError, HTTPException):
        return None
    return code if isinstance(code, int) else None


@lru_cache
def _about_to_talk(url: str) -> None:
    """Warn, once, when a password or a token is about to cross a network for everybody to read."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        _log.warning("the login of the schema registry is sent to %s unencrypted: use https://", url)


class Schemas:
    """Schemas by id, each asked for once; ids without a usable schema once a minute. Used by one thread at a time.

    Args:
        ask: for schemas, by options, ids and kind; gives the reason where there is none.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        ask: Callable[[RegistryOptions, Iterable[int], str], Mapping[int, Registered | BadRecordError]]
        | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask = ask or _by_ids
        self._sleep = sleep
        self._known: dict[_Key, Registered] = {}
        self._refused: dict[_Key, tuple[int, BadRecordError]] = {}

    def get(
        self, now: int, options: RegistryOptions, ids: Iterable[int], kind: str
    ) -> dict[int, Registered | BadRecordError]:
        """The schemas of these ids, all of which are asked for side by side; the reason for an id that has none.

        Raises as `Registry` does.
        """
        made: dict[int, Registered | BadRecordError] = {}
        unknown: set[int] = set()
        for schema_id in ids:
            key = options, schema_id, kind
            if key in self._known:
                made[schema_id] = self._known[key]
            elif key in self._refused and now < self._refused[key][0]:
                made[schema_id] = self._refused[key][1]
            else:
                unknown.add(schema_id)
        return made | self._asked(now, options, unknown, kind) if unknown else made

    def _asked(
        self, now: int, options: RegistryOptions, ids: set[int], kind: str
    ) -> dict[int, Registered | BadRecordError]:
        made = dict(self._ask(options, ids, kind))
        new = {schema_id for schema_id in ids if (options, schema_id, kind) not in self._refused}
        late = {schema_id for schema_id in new if isinstance(made[schema_id], BadRecordError)}
        if late:
            self._sleep(LAG_S)
            made |= self._ask(options, late, kind)
        for schema_id, found in made.items():
            key = options, schema_id, kind
            self._refused.pop(key, None)
            if isinstance(found, BadRecordError):
                _keep(self._refused, key, (now + REFUSED_MS, found), MOST_REFUSED)
            else:
                _keep(self._known, key, found, MOST_KNOWN)
        return made


def _keep(known: dict[_Key, _T], key: _Key, value: _T, most: int) -> None:
    while len(known) >= most:
        # The oldest stands first.
        del known[next(iter(known))]
    known[key] = value


def _by_ids(
    options: RegistryOptions, ids: Iterable[int], kind: str
) -> dict[int, Registered | BadRecordError]:
    return Registry(options).by_ids(ids, kind=kind)
