"""The stand-in registry, which here also answers as no registry should."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kadence_testing.schema_registry import RegistryRequest, SchemaRegistryServer


class RegistryServer(SchemaRegistryServer):
    """What it has beside its own, unchecked.

    Attributes:
        schemas: by id. subjects: newest by name.
        failures: so many requests are answered 500 first. token: the Authorization it wants.
        fixed: status and body of every answer, in place of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[str, Any]] = {}
        self.failures = 0
        self.token: str | None = None
        self.fixed: tuple[int, bytes] | None = None

    @property
    def asked(self) -> list[str]:
        """The paths that it was asked for."""
        return [request.path for request in self.requests]

    def answer(self, request: RegistryRequest) -> tuple[int, bytes]:
        status, content = super().answer(request)
        if self.fixed is not None:
            return self.fixed
        if self.token is not None and request.authorization != self.token:
            return 401, b'{"error_code": 401}'
        if self.failures:
            self.failures -= 1
            return 500, b'{"error_code": 50001}'
        found = self._set(request.path.partition("?")[0].split("/"))
        return (status, content) if found is None else (200, json.dumps(found).encode())

    def _set(self, parts: list[str]) -> dict[str, Any] | None:
        if parts[1:3] == ["schemas", "ids"]:
            return self.schemas.get(int(parts[3]))
        return self.subjects.get(parts[2].replace("%2F", "/")) if len(parts) > 2 else None


@contextmanager
def running() -> Iterator[RegistryServer]:
    registry = RegistryServer()
    with registry:
        yield registry
