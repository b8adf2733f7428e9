"""A schema registry on loopback, in memory, with Confluent's REST API: for tests and for a laptop.

The real one is a JVM service. This one registers schemas, finds them by id, GUID, subject, version and text, and
returns the error codes of the real one. It has contexts, each of which counts ids from 1, and keeps deleted versions
until they are deleted permanently. It checks that a schema is valid, but not its compatibility: NONE is the only level.
It accepts a Protobuf schema only as the base64 of a compiled file, as serialisers register it: compiling a text needs
protoc.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from kadence_testing.avro_text import avro_text

__all__ = ["RegistryRequest", "SchemaRegistryServer"]

_DEFAULT: Final = "."
"""The context of subjects that name none."""

MOST_BYTES: Final = 16 << 20
"""The longest request body that is read."""


class _RefusedError(Exception):
    """An error response: status, error code, message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class RegistryRequest:
    """A request that the registry received.

    Attributes:
        method: such as ``GET``. path: with its query. body: its content.
        authorization: the header, if there was one.
    """

    method: str
    path: str
    body: bytes = b""
    authorization: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class _Subject:
    """The id of each version, those among them that were deleted, and the last number that a version got."""

    ids: dict[int, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    last: int = 0

    def versions(self, *, deleted: bool = False) -> dict[int, int]:
        """The id of each version. deleted: also of those that were deleted."""
        return {number: each for number, each in self.ids.items() if deleted or number not in self.deleted}


@dataclass(slots=True)
class _Context:
    """The schemas by id, and the id of each."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)


_Body = Mapping[str, Any]


class SchemaRegistryServer:
    """A registry at ``url``, from entering ``with`` until leaving it.

    Attributes:
        url: where it listens; on 127.0.0.1 only.
        requests: all requests so far, in order.

    Args:
        port: 0: any free one.
        authorization: the header Authorization that each request needs, such as ``Bearer secret``; None: none.
        ssl_context: the TLS context, which also decides whether a client needs a certificate. None: no TLS.
    """

    def __init__(
        self, port: int = 0, *, authorization: str | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._port = port
        self._tls = ssl_context
        self._authorization = authorization
        self._lock = threading.Lock()
        self._contexts: dict[str, _Context] = {_DEFAULT: _Context()}
        self._subjects: dict[str, _Subject] = {}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.requests: list[RegistryRequest] = []
        self.url = ""

    def __enter__(self) -> Self:
        server = _Server(("127.0.0.1", self._port), _handler_of(self, self._tls))
        self._server = server
        self.url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{server.server_port}"
        self._thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": 0.01},
            name="kadence-schema-registry",
            daemon=True,
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema, as a producer would.

        Args:
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``. references: dicts with ``name``, ``subject`` and ``version``.

        Returns:
            its id.

        Raises:
            ValueError: the schema cannot be read.
        """
        body = {"schema": schema, "schemaType": kind, "references": list(references)}
        try:
            with self._lock:
                return int(self._register(subject, body, normalize=False)["id"])
        except _RefusedError as problem:
            raise ValueError(str(problem)) from None

    def answer(self, request: RegistryRequest) -> tuple[int, bytes]:
        """Status and JSON for a request."""
        self.requests.append(request)
        try:
            if self._authorization is not None and request.authorization != self._authorization:
                raise _RefusedError(401, 401, "Unauthorized")
            with self._lock:
                found = self._answer(request)
        except _RefusedError as problem:
            return problem.status, _text({"error_code": problem.code, "message": str(problem)}).encode()
        return 200, _text(found).encode()

    # ------------------------------------------------------------ the calls

    def _answer(self, request: RegistryRequest) -> Any:
        address = urlsplit(request.path)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        path = address.path.rstrip("/")
        if (within := _WITHIN.fullmatch(path)) is not None:
            query["context"], path = unquote(within[1]), within[2]
        for method, pattern, call in _CALLS:
            matched = pattern.fullmatch(path)
            if matched is not None and method == request.method:
                return call(
                    self,
                    query,
                    _read(request.body),
                    *(unquote(part) for part in matched.groups() if part is not None),
                )
        raise _RefusedError(404, 404, "HTTP 404 Not Found")

    def _by_id(self, query: _Body, body: _Body, schema_id: str) -> Any:
        _, schema = self._known_id(query, schema_id)
        return {**schema, "guid": _guid(schema)}

    def _by_guid(self, query: _Body, body: _Body, guid: str) -> Any:
        for context in self._contexts.values():
            for schema in context.schemas.values():
                if _guid(schema) == guid.lower():
                    return {**schema, "guid": _guid(schema)}
        raise _RefusedError(404, 40403, f"Schema {guid} not found")

    def _places_of(self, query: _Body, body: _Body, schema_id: str) -> Any:
        number = int(schema_id)
        context, _ = self._known_id(query, schema_id)
        return [
            {"subject": name, "version": version}
            for name, subject in self._subjects.items()
            for version, each in subject.versions(deleted=_flag(query, "deleted")).items()
            if each == number and _context_of(name) == context
        ]

    def _known_id(self, query: _Body, text: str) -> tuple[str, dict[str, Any]]:
        """The schema of an id, in the context of the subject that is named, and that context.

        A subject without a context is looked for in all of them, the default one first.
        """
        name = _qualified(query, query.get("subject", ""))
        contexts = [_context_of(name)]
        if name and not name.startswith(":"):
            contexts += [_context_of(each) for each in self._subjects if each.endswith(f":{name}")]
        for context in contexts:
            found = self._contexts.get(context, _Context()).schemas.get(int(text))
            if found is not None:
                return context, found
        raise _RefusedError(404, 40403, f"Schema {text} not found")

    def _list_contexts(self, query: _Body, body: _Body) -> Any:
        return sorted(self._contexts)

    def _list_subjects(self, query: _Body, body: _Body) -> Any:
        prefix = _qualified(query, query.get("subjectPrefix", ""))
        return sorted(
            name
            for name, subject in self._subjects.items()
            if subject.versions(deleted=_flag(query, "deleted")) and name.startswith(prefix)
        )

    def _list_versions(self, query: _Body, body: _Body, name: str) -> Any:
        return list(self._subject(query, name).versions(deleted=_flag(query, "deleted")))

    def _version(self, query: _Body, body: _Body, name: str, version: str) -> Any:
        versions = self._subject(query, name).versions(deleted=_flag(query, "deleted"))
        number = max(versions) if version in ("latest", "-1") else int(version) if version.isdigit() else 0
        if number not in versions:
            raise _RefusedError(404, 40402, f"Version {version} not found.")
        return self._told(_qualified(query, name), number)

    def _told(self, name: str, number: int) -> dict[str, Any]:
        schema_id = self._subjects[name].ids[number]
        schema = self._contexts[_context_of(name)].schemas[schema_id]
        return {"subject": name, "version": number, "id": schema_id, "guid": _guid(schema), **schema}

    def _post_version(self, query: _Body, body: _Body, name: str) -> Any:
        return self._register(_qualified(query, name), body, normalize=_flag(query, "normalize"))

    def _register(self, name: str, body: _Body, *, normalize: bool) -> dict[str, Any]:
        schema = self._checked(name, body)
        context = self._contexts.setdefault(_context_of(name), _Context())
        identity = _identity(schema, normalize=normalize)
        schema_id = context.ids.setdefault(identity, len(context.schemas) + 1)
        context.schemas.setdefault(schema_id, schema)
        subject = self._subjects.setdefault(name, _Subject())
        if schema_id not in subject.versions().values():
            subject.last += 1
            subject.ids[subject.last] = schema_id
        return {"id": schema_id, "guid": _guid(context.schemas[schema_id])}

    def _look_up(self, query: _Body, body: _Body, name: str) -> Any:
        normalize, place = _flag(query, "normalize"), _qualified(query, name)
        subject = self._subject(query, name)
        wanted = _identity(self._checked(place, body), normalize=normalize)
        known = self._contexts[_context_of(place)].schemas
        for version, each in subject.versions(deleted=_flag(query, "deleted")).items():
            if _identity(known[each], normalize=normalize) == wanted:
                return self._told(place, version)
        raise _RefusedError(404, 40403, "Schema not found")

    def _delete(self, query: _Body, body: _Body, name: str) -> Any:
        is_final = _flag(query, "permanent")
        subject = self._subject({**query, "deleted": str(is_final).lower()}, name)
        return [
            self._delete_one(subject, each, is_final=is_final) for each in subject.versions(deleted=is_final)
        ]

    def _delete_version(self, query: _Body, body: _Body, name: str, version: str) -> Any:
        is_final = _flag(query, "permanent")
        found = self._version({**query, "deleted": str(is_final).lower()}, body, name, version)
        return self._delete_one(self._subjects[found["subject"]], found["version"], is_final=is_final)

    def _delete_one(self, subject: _Subject, version: int, *, is_final: bool) -> int:
        if is_final:
            if version not in subject.deleted:
                raise _RefusedError(
                    404, 40407, f"Version {version} was not deleted first before being permanently deleted"
                )
            del subject.ids[version]
        subject.deleted.add(version)
        return version

    def _get_level(self, query: _Body, body: _Body, *_: str) -> Any:
        return {"compatibilityLevel": "NONE"}

    def _put_level(self, query: _Body, body: _Body, *_: str) -> Any:
        if body.get("compatibility") != "NONE":
            raise _RefusedError(
                422,
                42203,
                "Invalid compatibility level: this registry is for tests, and has NONE only",
            )
        return {"compatibility": "NONE"}

    def _is_compatible(self, query: _Body, body: _Body, name: str, version: str) -> Any:
        self._checked(_qualified(query, name), body)
        return {"is_compatible": True}

    def _list_types(self, query: _Body, body: _Body) -> Any:
        return ["JSON", "PROTOBUF", "AVRO"]

    # ------------------------------------------------------------ schemas

    def _subject(self, query: _Body, name: str) -> _Subject:
        subject = self._subjects.get(_qualified(query, name))
        if subject is None or not subject.versions(deleted=_flag(query, "deleted")):
            raise _RefusedError(404, 40401, f"Subject '{name}' not found.")
        return subject

    def _checked(self, subject: str, body: _Body) -> dict[str, Any]:
        """A schema for a subject, in the form in which it is stored. Its references are in its context."""
        text, kind = body.get("schema"), body.get("schemaType") or "AVRO"
        references = body.get("references") or []
        if not isinstance(text, str) or kind not in ("AVRO", "PROTOBUF", "JSON"):
            raise _RefusedError(422, 42201, "Invalid schema")
        for each in references:
            try:
                place = _qualified({"context": _context_of(subject)}, each["subject"])
                self._version({}, {}, place, str(each["version"]))
            except (KeyError, TypeError, _RefusedError):
                raise _RefusedError(422, 42201, f"Invalid schema: no such reference {each!r}") from None
        if kind == "PROTOBUF":
            _check_descriptor(text)
        else:
            text = _kept(text, kind, is_whole=not references)
        made: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            made["schemaType"] = kind
        if references:
            made["references"] = references
        return made


def _flag(query: _Body, name: str) -> bool:
    return query.get(name) == "true"


def _context_of(subject: str) -> str:
    """``:.staging:orders-value`` is in ``.staging``."""
    return subject[1:].partition(":")[0] if subject.startswith(":") else _DEFAULT


def _qualified(query: _Body, subject: str) -> str:
    """A subject with its context: its own, or that of the request's path."""
    subject = subject.removeprefix(f":{_DEFAULT}:")
    context = query.get("context", _DEFAULT)
    return subject if context == _DEFAULT or subject.startswith(":") else f":{context}:{subject}"


def _guid(schema: dict[str, Any]) -> str:
    """A key that is equal for equal schemas, in all contexts."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, _identity(schema, normalize=False)))


def _read(body: bytes) -> _Body:
    if not body:
        return {}
    try:
        made = json.loads(body)
    except (ValueError, RecursionError):
        made = None
    if not isinstance(made, dict):
        raise _RefusedError(400, 400, "Unable to process JSON")
    return made


def _identity(schema: dict[str, Any], *, normalize: bool) -> str:
    """A key that is equal for equal schemas."""
    kind, text = schema.get("schemaType", "AVRO"), schema["schema"]
    if normalize and kind == "AVRO":
        text = avro_text(json.loads(text), normalized=True)
    elif normalize and kind == "JSON":
        text = _text(json.loads(text), sort=True)
    return _text({**schema, "schema": text}, sort=True)


def _kept(text: str, kind: str, *, is_whole: bool) -> str:
    """A JSON document as the real registry stores and returns it.

    Args:
        is_whole: it does not refer to another schema.
    """
    try:
        made = json.loads(text)
        if kind != "AVRO":
            return _text(made)
        if is_whole:
            _check_avro(made)
        return avro_text(made)
    except (ValueError, RecursionError):
        raise _RefusedError(422, 42201, "Invalid schema: not JSON") from None


def _check_avro(schema: Any) -> None:
    try:
        import fastavro
    except ImportError:
        return
    try:
        fastavro.parse_schema(schema)
    except Exception as problem:  # noqa: BLE001 - what a strange schema makes it trip over can be anything
        raise _RefusedError(422, 42201, f"Invalid schema: {problem}") from None


def _check_descriptor(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _RefusedError(
            422,
            42201,
            "Invalid schema: this registry is for tests, and takes compiled Protobuf in base64 only",
        ) from None


def _text(value: Any, *, sort: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


_WITHIN: Final = re.compile("/contexts/([^/]+)(/.+)")
"""A call in a context."""

_CALLS: Final[tuple[tuple[str, re.Pattern[str], Callable[..., Any]], ...]] = tuple(
    (method, re.compile(pattern.replace("NAME", "([^/]+)")), call)
    for method, pattern, call in (
        ("GET", r"/schemas/ids/(\d{1,10})", SchemaRegistryServer._by_id),
        ("GET", r"/schemas/ids/(\d{1,10})/versions", SchemaRegistryServer._places_of),
        ("GET", "/schemas/guids/NAME", SchemaRegistryServer._by_guid),
        ("GET", "/contexts", SchemaRegistryServer._list_contexts),
        ("GET", "/schemas/types", SchemaRegistryServer._list_types),
        ("GET", "/subjects", SchemaRegistryServer._list_subjects),
        ("GET", "/subjects/NAME/versions", SchemaRegistryServer._list_versions),
        ("GET", "/subjects/NAME/versions/NAME", SchemaRegistryServer._version),
        ("POST", "/subjects/NAME/versions", SchemaRegistryServer._post_version),
        ("POST", "/subjects/NAME", SchemaRegistryServer._look_up),
        ("DELETE", "/subjects/NAME", SchemaRegistryServer._delete),
        ("DELETE", "/subjects/NAME/versions/NAME", SchemaRegistryServer._delete_version),
        ("GET", "/config(?:/NAME)?", SchemaRegistryServer._get_level),
        ("PUT", "/config(?:/NAME)?", SchemaRegistryServer._put_level),
        ("POST", "/compatibility/subjects/NAME/versions/NAME", SchemaRegistryServer._is_compatible),
    )
)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Python's 5 is less than the connections that one client opens at once; a dropped one is retried after a second.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that is refused or disconnects sees that itself."""

    def server_bind(self) -> None:
        """As that of HTTPServer, without a DNS lookup of this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])


def _handler_of(
    registry: SchemaRegistryServer, tls: ssl.SSLContext | None = None
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def setup(self) -> None:
            """Do the handshake on the request's own thread, so that a silent client does not block others."""
            if tls is not None:
                self.request.settimeout(self.timeout)
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            """Close the TLS socket, too: the server closes only the socket below it."""
            super().finish()
            if tls is not None:
                self.request.close()

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if not 0 <= size <= MOST_BYTES:
                self.send_error(413)
                return
            request = RegistryRequest(
                self.command, self.path, self.rfile.read(size), self.headers.get("Authorization")
            )
            status, content = registry.answer(request)
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names that http.server calls

        def log_message(self, *arguments: object) -> None:
            """Log nothing: `requests` has all requests."""

    return Handler
