from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.registry.registry_server import RegistryServer, running

from kadence_schemas import answers
from kadence_spark.decode import formats


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(answers, "LAG_S", 0.0)
    formats.decoder_of.cache_clear()
    formats.client_of.cache_clear()
    with running() as server:
        yield server
