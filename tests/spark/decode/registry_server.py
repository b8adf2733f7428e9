"""A schema registry on loopback: the few answers that the client asks for. The real one is a JVM service."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class RegistryServer:
    """What it has, and what it was asked.

    Attributes:
        schemas: by id. subjects: newest first by name. requests: path and Authorization of each.
        failures: so many requests are answered 500 first. token: the Authorization it wants.
        fixed: status and body of every answer, in place of its own.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.failures = 0
        self.token: str | None = None
        self.fixed: tuple[int, bytes] | None = None
        self.url = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        self.requests.append((path, authorization))
        if self.token is not None and authorization != self.token:
            return 401, {"error_code": 401}
        if self.failures:
            self.failures -= 1
            return 500, {"error_code": 50001}
        parts = [unquote(part) for part in urlsplit(path).path.split("/")[1:]]
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
        else:
            found = self.subjects.get(parts[1])
        unknown = {"error_code": 40403 if parts[0] == "schemas" else 40401, "message": "not found"}
        return (200, found) if found is not None else (404, unknown)


@contextmanager
def running() -> Iterator[RegistryServer]:
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, content = registry.answer(self.path, self.headers.get("Authorization"))
            body = json.dumps(content).encode()
            if registry.fixed is not None:
                code, body = registry.fixed
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
