"""What confluent-kafka's serialisers ask of a registry and write, for each of `cases.py`; kept in golden.json.

A program:

    PYTHONPATH=src:. python tests/registry/golden.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.registry.cases import CASES, TOPIC, Case

from kadence_testing.schema_registry import RegistryRequest, SchemaRegistryServer

GOLDEN = Path(__file__).with_name("golden.json")


def prepare(server: SchemaRegistryServer, case: Case) -> list[dict[str, Any]]:
    """Register what the schema needs, and itself where that is said; its references."""
    references: list[dict[str, Any]] = []
    for (subject, schema), name in zip(case.needs, case.names, strict=True):
        server.add(subject, schema, case.kind, list(references))
        references.append({"name": name, "subject": subject, "version": 1})
    if case.registered:
        server.add(f"{TOPIC}-value", case.schema, case.kind, references)
    return references


def told(requests: Iterable[RegistryRequest]) -> list[list[Any]]:
    """The requests that change something, or might."""
    return [
        [
            request.method,
            # Confluent's client says what is the default, too.
            request.path.partition("?")[0] + "?normalize" * ("normalize=true" in request.path.lower()),
            json.loads(request.body),
        ]
        for request in requests
        if request.method != "GET"
    ]


def written_by_confluent(case: Case) -> dict[str, Any]:
    # Whoever looks into the file needs none of confluent-kafka.
    from tests.registry.confluent import client_of, serializer_of, written_with

    with SchemaRegistryServer() as server, client_of(server.url) as client:
        references = prepare(server, case)
        written, headers = written_with(serializer_of(case, client, references), case)
        found: dict[str, Any] = {
            "written": [each.hex() for each in written],
            "requests": told(server.requests),
        }
        if case.in_header:
            found["headers"] = [[(name, data.hex()) for name, data in added] for added in headers]
        return found


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({case.name: written_by_confluent(case) for case in CASES}, indent=1) + "\n")
